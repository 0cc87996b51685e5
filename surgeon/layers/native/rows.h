/* Moments of rows: a channel's positions are contiguous, (N, C, positions).
 *
 * Everything is read block by block: for the mean of the first part of a block, and then for the deviations from that,
 * whose own mean corrects it; once more where that is far from the first. Sums are float32 within a block, in many parts,
 * and float64 across blocks.
 */
#ifndef SURGEON_ROWS_H
#define SURGEON_ROWS_H

#include "activations.h"

enum { ROW_BLOCK = 4096, LONG_ROW = 256, PILOT = 8 }; /* floats; 16 KiB; the eighth part of a block */

typedef struct {
  double mean, squares, count; /* mean: less the shift; squares: of the deviations, their sum */
} Moments;

/* One sum has to wait for itself: a long row is added up in four streams. */
INLINE float sum_of(const float *x, Size n, float shift) {
  float sum = 0.0f;
  Size i = 0;
  if (n >= LONG_ROW) {
    const Size part = n / 4;
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
#pragma omp simd reduction(+ : a, b, c, d)
    for (Size k = 0; k < part; k++) {
      a += x[k] - shift;
      b += x[k + part] - shift;
      c += x[k + 2 * part] - shift;
      d += x[k + 3 * part] - shift;
    }
    sum = (a + b) + (c + d);
    i = 4 * part;
  }
#pragma omp simd reduction(+ : sum)
  for (Size k = i; k < n; k++) sum += x[k] - shift;
  return sum;
}

INLINE void add_deviations(const float *x, Size n, float mean, double *sums, double *squares) {
  float sum = 0.0f, square = 0.0f;
  Size i = 0;
  if (n >= LONG_ROW) {
    const Size part = n / 2;
    float other_sum = 0.0f, other_square = 0.0f;
#pragma omp simd reduction(+ : sum, square, other_sum, other_square)
    for (Size k = 0; k < part; k++) {
      const float deviation = x[k] - mean, other = x[k + part] - mean;
      sum += deviation;
      square += deviation * deviation;
      other_sum += other;
      other_square += other * other;
    }
    sum += other_sum;
    square += other_square;
    i = 2 * part;
  }
#pragma omp simd reduction(+ : sum, square)
  for (Size k = i; k < n; k++) {
    const float deviation = x[k] - mean;
    sum += deviation;
    square += deviation * deviation;
  }
  *sums += sum;
  *squares += square;
}

/* Moments of a part of some rows, which are `stride` apart. */
INLINE Moments block_of_rows(const float *x, Size rows, Size stride, Size n, float shift) {
  const Size part = n < 16 * PILOT ? smaller(n, 16) : n / PILOT;
  const double count = (double)(rows * n);
  double sum = 0.0, residual = 0.0, squares = 0.0;
  for (Size r = 0; r < rows; r++) sum += sum_of(x + r * stride, part, shift);
  float about = (float)(shift + sum / (double)(rows * part));
  for (int again = 0; again < 2; again++) {
    residual = squares = 0.0;
    for (Size r = 0; r < rows; r++) add_deviations(x + r * stride, n, about, &residual, &squares);
    residual /= count;
    if (again || 2 * count * residual * residual <= squares) break; /* else that part was unlike the rest */
    about = (float)(about + residual);
  }
  return (Moments){((double)about - shift) + residual, squares - count * residual * residual, count};
}

INLINE void merge(Moments *all, Moments block) {
  const double share = block.count / (all->count + block.count), difference = block.mean - all->mean;
  all->squares += block.squares + difference * difference * share * all->count;
  all->mean += difference * share;
  all->count += block.count;
}

INLINE Moments moments_of_rows(const float *x, Size rows, Size stride, Size n, float shift) {
  if (rows * n <= ROW_BLOCK) return block_of_rows(x, rows, stride, n, shift);
  Moments all = {0.0, 0.0, 0.0};
  const Size step = n < ROW_BLOCK ? ROW_BLOCK / n : 1;
  for (Size r = 0; r < rows; r += step)
    for (Size i = 0; i < n; i += ROW_BLOCK)
      merge(&all, block_of_rows(x + r * stride + i, smaller(step, rows - r), stride, smaller(ROW_BLOCK, n - i), shift));
  return all;
}

/* Of rows side by side: the mean less the shift, and the variance. */
INLINE void moments_of_few_rows(const float *x, Size rows, Size n, const float *shift, float *difference, float *var,
                                const float *soon) {
  (void)soon;
  for (Size r = 0; r < rows; r++) {
    const Moments own = moments_of_rows(x + r * n, 1, 0, n, shift[r]);
    difference[r] = (float)own.mean;
    var[r] = (float)(own.squares / own.count);
  }
}

INLINE void row_affine(const float *restrict x, float *restrict y, Size n, float centre, float scale, float bias,
                       Activation activation, float slope) {
#pragma omp simd
  for (Size i = 0; i < n; i++) y[i] = activate(activation, slope, (x[i] - centre) * scale + bias);
}

#endif
