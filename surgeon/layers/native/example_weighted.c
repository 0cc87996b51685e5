/* Example-weighted normalisation of float32 activations on the CPU.
 *
 * Each example's moments are taken and applied while its values are still in the cache, so that
 * the layer reads and writes main memory exactly as often as plain BatchNorm does.
 * Moments are two-pass (deviations from a mean that is already known), block by block, and
 * shifted by the running mean: a large common offset does not cancel.
 *
 * Built without Python or torch headers. OpenMP's symbols are left open on purpose and resolve to
 * the runtime that torch has loaded, so that both share one pool of threads.
 */
#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "sums.h"

enum { BLOCK_FLOATS = 8192 }; /* 32 KiB: a block's second pass reads the nearest cache */

typedef struct {
  const float *mean, *var, *weight, *bias, *alpha;
  float eps;
} Norm;

/* From an example's moments to what has to be subtracted, multiplied and added. */
static void mix(const Norm *norm, Size c, float mean, float var, float *centre, float *scale, float *bias) {
  const float alpha = norm->alpha[c], difference = mean - norm->mean[c];
  const float mixed = alpha * var + (1 - alpha) * norm->var[c] + alpha * (1 - alpha) * difference * difference;
  *centre = norm->mean[c] + alpha * difference;
  *scale = (norm->weight ? norm->weight[c] : 1.0f) / sqrtf(mixed + norm->eps);
  *bias = norm->bias ? norm->bias[c] : 0.0f;
}

/* ---- positions of a channel are contiguous: (N, C, positions) ---- */

FOR_EVERY_CPU
static float squares_of(const float *x, Size n, float shift, float shifted_mean) {
  float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
  for (Size i = 0; i < n; i++) {
    const float deviation = (x[i] - shift) - shifted_mean;
    squares += deviation * deviation;
  }
  return squares;
}

/* Sums are float32 within a block and float64 across blocks. */
static void row_moments(const float *x, Size n, float shift, float *mean, float *var) {
  double sum = 0.0, squares = 0.0;
  for (Size i = 0; i < n; i += BLOCK_FLOATS) sum += sum_of(x + i, n - i < BLOCK_FLOATS ? n - i : BLOCK_FLOATS, shift);
  const float shifted_mean = (float)(sum / (double)n);
  for (Size i = 0; i < n; i += BLOCK_FLOATS)
    squares += squares_of(x + i, n - i < BLOCK_FLOATS ? n - i : BLOCK_FLOATS, shift, shifted_mean);
  *mean = shift + shifted_mean;
  *var = (float)(squares / (double)n);
}

FOR_EVERY_CPU
static void row_affine(const float *x, float *y, Size n, float centre, float scale, float bias) {
#pragma omp simd
  for (Size i = 0; i < n; i++) y[i] = (x[i] - centre) * scale + bias;
}

int example_weighted_rows(const float *x, float *y, Size examples, Size channels, Size positions, const float *mean,
                          const float *var, const float *weight, const float *bias, const float *alpha, float eps,
                          int threads) {
  const Norm norm = {mean, var, weight, bias, alpha, eps};
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size row = 0; row < examples * channels; row++) {
    const Size c = row % channels;
    float m, v, scale, shift;
    row_moments(x + row * positions, positions, mean[c], &m, &v);
    mix(&norm, c, m, v, &m, &scale, &shift);
    row_affine(x + row * positions, y + row * positions, positions, m, scale, shift);
  }
  return 0;
}

/* ---- channels of a position are contiguous: (N, positions, C), torch's channels-last ---- */

/* Moments of some rows, per column: means and summed squared deviations. */
typedef struct {
  float *mean, *squares, *block_mean, *block_squares;
} Columns;

static Columns columns_at(float *memory, Size channels, Size index) {
  float *start = memory + 4 * channels * index;
  return (Columns){start, start + channels, start + 2 * channels, start + 3 * channels};
}

FOR_EVERY_CPU
static void merge(Size channels, float *restrict mean, float *restrict squares, Size done, const float *restrict new_mean,
                  const float *restrict new_squares, Size new_rows) {
  const float share = (float)new_rows / (float)(done + new_rows), between = share * (float)done;
#pragma omp simd
  for (Size c = 0; c < channels; c++) {
    const float difference = new_mean[c] - mean[c];
    mean[c] += difference * share;
    squares[c] += new_squares[c] + difference * difference * between;
  }
}

FOR_EVERY_CPU
static void block_moments(const float *restrict x, Size rows, Size channels, const float *restrict shift,
                          float *restrict mean, float *restrict squares) {
  const float inverse = 1.0f / (float)rows;
  for (Size c = 0; c < channels; c++) mean[c] = squares[c] = 0.0f;
  for (Size r = 0; r < rows; r++)
#pragma omp simd
    for (Size c = 0; c < channels; c++) mean[c] += x[r * channels + c] - shift[c];
#pragma omp simd
  for (Size c = 0; c < channels; c++) mean[c] = shift[c] + mean[c] * inverse;
  for (Size r = 0; r < rows; r++)
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      const float deviation = x[r * channels + c] - mean[c];
      squares[c] += deviation * deviation;
    }
}

static void column_moments(const float *x, Size rows, Size channels, const float *shift, Columns out) {
  const Size step = channels < BLOCK_FLOATS ? BLOCK_FLOATS / channels : 1;
  for (Size c = 0; c < channels; c++) out.mean[c] = out.squares[c] = 0.0f;
  for (Size done = 0; done < rows; done += step) {
    const Size n = rows - done < step ? rows - done : step;
    block_moments(x + done * channels, n, channels, shift, out.block_mean, out.block_squares);
    merge(channels, out.mean, out.squares, done, out.block_mean, out.block_squares, n);
  }
}

/* Turn moments into centre (mean), scale (squares) and bias (block_mean), in place. */
static void mix_columns(const Norm *norm, Size rows, Size channels, Columns io) {
  for (Size c = 0; c < channels; c++)
    mix(norm, c, io.mean[c], io.squares[c] / (float)rows, &io.mean[c], &io.squares[c], &io.block_mean[c]);
}

FOR_EVERY_CPU
static void column_affine(const float *restrict x, float *restrict y, Size rows, Size channels,
                          const float *restrict centre, const float *restrict scale, const float *restrict bias) {
  for (Size r = 0; r < rows; r++)
#pragma omp simd
    for (Size c = 0; c < channels; c++)
      y[r * channels + c] = (x[r * channels + c] - centre[c]) * scale[c] + bias[c];
}

/* One example by all threads: each takes a stretch of its rows. */
static void split_example(const float *x, float *y, Size rows, Size channels, const Norm *norm, float *memory,
                          int parts) {
  const Columns whole = columns_at(memory, channels, 0);
#pragma omp parallel num_threads(parts)
  {
#pragma omp for schedule(static)
    for (int part = 0; part < parts; part++) {
      const Size start = rows * part / parts, stop = rows * (part + 1) / parts;
      column_moments(x + start * channels, stop - start, channels, norm->mean, columns_at(memory, channels, part));
    }
#pragma omp single
    {
      for (int part = 1; part < parts; part++) {
        const Size start = rows * part / parts, stop = rows * (part + 1) / parts;
        const Columns next = columns_at(memory, channels, part);
        merge(channels, whole.mean, whole.squares, start, next.mean, next.squares, stop - start);
      }
      mix_columns(norm, rows, channels, whole);
    }
#pragma omp for schedule(static)
    for (int part = 0; part < parts; part++) {
      const Size start = rows * part / parts, stop = rows * (part + 1) / parts;
      column_affine(x + start * channels, y + start * channels, stop - start, channels, whole.mean, whole.squares,
                    whole.block_mean);
    }
  }
}

int example_weighted_columns(const float *x, float *y, Size examples, Size channels, Size positions, const float *mean,
                             const float *var, const float *weight, const float *bias, const float *alpha, float eps,
                             int threads) {
  const Norm norm = {mean, var, weight, bias, alpha, eps};
  const Size example = positions * channels;
  float *memory = malloc(sizeof(float) * 4 * (size_t)channels * (size_t)threads);
  if (!memory) return 1;
  if (examples >= threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (Size n = 0; n < examples; n++) {
      const Columns own = columns_at(memory, channels, omp_get_thread_num());
      column_moments(x + n * example, positions, channels, mean, own);
      mix_columns(&norm, positions, channels, own);
      column_affine(x + n * example, y + n * example, positions, channels, own.mean, own.squares, own.block_mean);
    }
  } else {
    const int parts = positions < threads ? (int)positions : threads;
    for (Size n = 0; n < examples; n++)
      split_example(x + n * example, y + n * example, positions, channels, &norm, memory, parts);
  }
  free(memory);
  return 0;
}
