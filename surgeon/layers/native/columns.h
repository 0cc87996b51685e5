/* Moments of columns: a position's channels are contiguous, (N, positions, C), torch's channels-last.
 *
 * As in rows.h a block is read twice while it is in a near cache, its mean is corrected, and blocks are merged. Eight
 * rows are added up at a time, so that the sums, which are in memory, are read and written for every eighth row only.
 * Where all channels together do not fit into a core's cache, some of them are taken at a time: a row is `stride` floats
 * long, of which the functions see the first `channels`.
 */
#ifndef SURGEON_COLUMNS_H
#define SURGEON_COLUMNS_H

#include "activations.h"

enum { COLUMN_BLOCK = 6144, FEWEST_ROWS = 24 }; /* floats; 24 KiB */
enum { NEAR_CACHE = 131072, LINE = 16 };         /* floats; 512 KiB, 64 bytes */

/* How many channels to take at a time: as many of `rows` rows as fit, in whole lines and in sets of `shared`, and so that
 * there is work for all threads. */
INLINE Size channels_at_once(Size channels, Size shared, Size rows, Size items, int threads) {
  const Size unit = shared > 1 ? shared : LINE, units = (channels + unit - 1) / unit;
  Size parts = smaller(1 + rows * channels / NEAR_CACHE, units);
  while (parts < units && items * parts % threads && items * parts < 4 * threads) parts++;
  return (units + parts - 1) / parts * unit;
}

/* Of each channel: mean less the shift, and summed squares of deviations; and the same of a block. */
typedef struct {
  float *mean, *squares, *about, *block_mean, *block_squares;
} Columns;

enum { FLOATS_PER_CHANNEL = 5 };

INLINE Columns columns_at(float *memory, Size channels, Size index) {
  float *start = memory + FLOATS_PER_CHANNEL * channels * index;
  return (Columns){start, start + channels, start + 2 * channels, start + 3 * channels, start + 4 * channels};
}

INLINE void merge(Size channels, float *restrict mean, float *restrict squares, Size done, const float *restrict new_mean,
                  const float *restrict new_squares, Size new_rows) {
  const float share = (float)new_rows / (float)(done + new_rows), between = share * (float)done;
#pragma omp simd
  for (Size c = 0; c < channels; c++) {
    const float difference = new_mean[c] - mean[c];
    mean[c] += difference * share;
    squares[c] += new_squares[c] + difference * difference * between;
  }
}

#define EIGHT(f) (((f(0) + f(1)) + (f(2) + f(3))) + ((f(4) + f(5)) + (f(6) + f(7))))

INLINE void sums_of_columns(const float *restrict x, Size rows, Size stride, Size channels, const float *restrict shift,
                            float *restrict sum) {
  Size r = 0;
#pragma omp simd
  for (Size c = 0; c < channels; c++) sum[c] = 0.0f;
  for (; r + 8 <= rows; r += 8) {
    const float *restrict at = x + r * stride;
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
#define SHIFTED(k) (at[(k)*stride + c] - shift[c])
      sum[c] += EIGHT(SHIFTED);
#undef SHIFTED
    }
  }
  for (; r < rows; r++)
#pragma omp simd
    for (Size c = 0; c < channels; c++) sum[c] += x[r * stride + c] - shift[c];
}

INLINE void deviations_of_columns(const float *restrict x, Size rows, Size stride, Size channels, const float *restrict about,
                                  float *restrict sum, float *restrict squares) {
  Size r = 0;
#pragma omp simd
  for (Size c = 0; c < channels; c++) sum[c] = squares[c] = 0.0f;
  for (; r + 8 <= rows; r += 8) {
    const float *restrict at = x + r * stride;
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
#define DEVIATION(k) (at[(k)*stride + c] - about[c])
#define SQUARE(k) (DEVIATION(k) * DEVIATION(k))
      sum[c] += EIGHT(DEVIATION);
      squares[c] += EIGHT(SQUARE);
#undef DEVIATION
#undef SQUARE
    }
  }
  for (; r < rows; r++)
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      const float deviation = x[r * stride + c] - about[c];
      sum[c] += deviation;
      squares[c] += deviation * deviation;
    }
}

INLINE void block_of_columns(const float *restrict x, Size rows, Size stride, Size channels, const float *restrict shift,
                             float *restrict mean, float *restrict squares, float *restrict about) {
  const float inverse = 1.0f / (float)rows;
  sums_of_columns(x, rows, stride, channels, shift, mean);
#pragma omp simd
  for (Size c = 0; c < channels; c++) about[c] = shift[c] + mean[c] * inverse;
  deviations_of_columns(x, rows, stride, channels, about, mean, squares);
#pragma omp simd
  for (Size c = 0; c < channels; c++) {
    const float residual = mean[c] * inverse;
    squares[c] -= residual * mean[c];
    mean[c] = (about[c] - shift[c]) + residual;
  }
}

/* Rows of a block: as many as are in the nearest cache, and enough to be worth their merging. */
INLINE Size rows_of_block(Size channels) {
  const Size rows = COLUMN_BLOCK / channels / 8 * 8;
  return rows < FEWEST_ROWS ? FEWEST_ROWS : rows;
}

INLINE void moments_of_columns(const float *x, Size rows, Size stride, Size channels, const float *shift, Columns out) {
  const Size step = rows_of_block(channels);
  block_of_columns(x, smaller(step, rows), stride, channels, shift, out.mean, out.squares, out.about);
  for (Size done = step; done < rows; done += step) {
    const Size n = smaller(step, rows - done);
    block_of_columns(x + done * stride, n, stride, channels, shift, out.block_mean, out.block_squares, out.about);
    merge(channels, out.mean, out.squares, done, out.block_mean, out.block_squares, n);
  }
}

/* Rows less their centre, times scale, plus bias, and an activation. */
INLINE void column_affine(const float *restrict x, float *restrict y, Size rows, Size stride, Size channels,
                          const float *restrict centre, const float *restrict scale, const float *restrict bias,
                          Activation activation, float slope) {
  Size r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float *restrict from = x + r * stride;
    float *restrict to = y + r * stride;
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      const float centred_by = centre[c], times = scale[c], plus = bias[c];
#define ROW(k) to[(k)*stride + c] = activate(activation, slope, (from[(k)*stride + c] - centred_by) * times + plus)
      ROW(0);
      ROW(1);
      ROW(2);
      ROW(3);
#undef ROW
    }
  }
  for (; r < rows; r++)
#pragma omp simd
    for (Size c = 0; c < channels; c++)
      y[r * stride + c] = activate(activation, slope, (x[r * stride + c] - centre[c]) * scale[c] + bias[c]);
}

#endif
