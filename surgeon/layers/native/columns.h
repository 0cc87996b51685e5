/* Moments of columns: a position's channels are contiguous, (N, positions, C), torch's channels-last.
 *
 * Everything is read once, for the sums of deviations and of their squares. These are taken about the mean of what came
 * before, so that they do not cancel: first about the mean of a few rows, and whenever the rows that are done have
 * grown fourfold, about their mean. Eight rows are added up at a time, since the sums are in memory, and in blocks, which
 * round less than one long sum does. A row is `stride` floats long, of which the functions see the first `channels`.
 *
 * Eight rows side by side are more streams than processors fetch ahead of by themselves: the loops ask for what comes next.
 */
#ifndef SURGEON_COLUMNS_H
#define SURGEON_COLUMNS_H

#include "activations.h"

enum { FIRST_ROWS = 8, BLOCK_ROWS = 128 };
enum { NEAR_CACHE = 98304, LINE = 16 }; /* floats; 384 KiB, 64 bytes */
enum { READ_AHEAD = 4096, WRITE_AHEAD = 2048 }; /* floats */

/* Fetches memory that is needed soon, to read (0) or to write (1) it. Past its end nothing happens: processors ignore such
 * hints. */
#define FETCH(from, floats, write) \
  for (Size ahead = 0; ahead < (floats); ahead += LINE) __builtin_prefetch((from) + ahead, write)

/* Floats of some rows, if a thread does whole ones: other threads fetch the other parts of theirs. */
INLINE Size whole_rows(Size rows, Size stride, Size channels) { return channels == stride ? rows * stride : 0; }

/* How many channels are one thread's at a time: all, or as few as give every thread something to do, in whole lines and
 * in sets of `shared`. */
INLINE Size channels_at_once(Size channels, Size shared, Size items, int threads) {
  const Size unit = shared > 1 ? shared : LINE, units = (channels + unit - 1) / unit;
  Size parts = 1;
  while (parts < units && items * parts % threads && items * parts < 4 * threads) parts++;
  return (units + parts - 1) / parts * unit;
}

/* Of each channel: sums of deviations and of their squares, and the same of a block. */
typedef struct {
  float *about, *sum, *squares, *block_sum, *block_squares;
} Columns;

enum { FLOATS_PER_CHANNEL = 5 };

INLINE Columns columns_at(float *memory, Size channels, Size index) {
  float *start = memory + FLOATS_PER_CHANNEL * channels * index;
  return (Columns){start, start + channels, start + 2 * channels, start + 3 * channels, start + 4 * channels};
}

#define EIGHT(f) (((f(0) + f(1)) + (f(2) + f(3))) + ((f(4) + f(5)) + (f(6) + f(7))))

INLINE void mean_of_columns(const float *restrict x, Size rows, Size stride, Size channels, float *restrict mean) {
  const float inverse = 1.0f / (float)rows;
#pragma omp simd
  for (Size c = 0; c < channels; c++) mean[c] = 0.0f;
  for (Size r = 0; r < rows; r++)
#pragma omp simd
    for (Size c = 0; c < channels; c++) mean[c] += x[r * stride + c] * inverse;
}

INLINE void deviations_of_columns(const float *restrict x, Size rows, Size stride, Size channels, const float *restrict about,
                                  float *restrict sum, float *restrict squares) {
  Size r = 0;
#pragma omp simd
  for (Size c = 0; c < channels; c++) sum[c] = squares[c] = 0.0f;
  for (; r + 8 <= rows; r += 8) {
    const float *restrict at = x + r * stride;
    FETCH(at + READ_AHEAD, whole_rows(8, stride, channels), 0);
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

/* About the mean of all rows so far. */
INLINE void recentre(Size channels, Size rows, Columns of) {
  const float inverse = 1.0f / (float)rows, count = (float)rows;
  float *restrict about = of.about, *restrict sum = of.sum, *restrict squares = of.squares;
#pragma omp simd
  for (Size c = 0; c < channels; c++) {
    const float centre = about[c] + sum[c] * inverse, moved = centre - about[c];
    squares[c] -= moved * (2.0f * sum[c] - count * moved);
    sum[c] -= count * moved;
    about[c] = centre;
  }
}

/* Afterwards: the mean is `about` and a mean deviation of `sum`; `squares` is the variance. */
INLINE void moments_of_columns(const float *x, Size rows, Size stride, Size channels, Columns of) {
  Size next = 4 * FIRST_ROWS;
  mean_of_columns(x, smaller(FIRST_ROWS, rows), stride, channels, of.about);
#pragma omp simd
  for (Size c = 0; c < channels; c++) of.sum[c] = of.squares[c] = 0.0f;
  for (Size done = 0, n; done < rows; done += n) {
    if (done >= next) {
      recentre(channels, done, of);
      next = 4 * done;
    }
    n = smaller(smaller(BLOCK_ROWS, done ? rows : 4 * FIRST_ROWS), rows - done);
    deviations_of_columns(x + done * stride, n, stride, channels, of.about, of.block_sum, of.block_squares);
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      of.sum[c] += of.block_sum[c];
      of.squares[c] += of.block_squares[c];
    }
  }
  const float inverse = 1.0f / (float)rows;
#pragma omp simd
  for (Size c = 0; c < channels; c++) {
    of.sum[c] *= inverse;
    of.squares[c] = of.squares[c] * inverse - of.sum[c] * of.sum[c];
  }
}

/* ---- fewer sets of rows than threads: each thread takes a share of the rows of every set, since whole rows are read
 * faster than parts of them ---- */

enum { MOST_SHARES = 16, FEWEST_SHARED = 64 };

/* Whether the rows of every set are shared. */
INLINE int rows_are_shared(Size sets, Size rows, int threads) {
  return sets < threads && threads <= MOST_SHARES && rows >= FEWEST_SHARED * threads;
}

/* Mean and variance of all rows from those of the shares, which `sum` and `squares` of each hold. */
INLINE void moments_of_shares(const Columns *shares, const Size *rows, int threads, Size channels, float *restrict mean,
                              float *restrict var) {
  const float *restrict first = shares[0].sum;
  float all = 0.0f;
  for (int t = 0; t < threads; t++) all += (float)rows[t];
#pragma omp simd
  for (Size c = 0; c < channels; c++) mean[c] = var[c] = 0.0f;
  for (int t = 1; t < threads; t++) {
    const float part = (float)rows[t] / all, *restrict own = shares[t].sum;
#pragma omp simd
    for (Size c = 0; c < channels; c++) mean[c] += part * (own[c] - first[c]);
  }
#pragma omp simd
  for (Size c = 0; c < channels; c++) mean[c] += first[c];
  for (int t = 0; t < threads; t++) {
    const float part = (float)rows[t] / all, *restrict own = shares[t].sum, *restrict spread = shares[t].squares;
#pragma omp simd
    for (Size c = 0; c < channels; c++) var[c] += part * (spread[c] + (own[c] - mean[c]) * (own[c] - mean[c]));
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
    FETCH(from + WRITE_AHEAD, whole_rows(4, stride, channels), 0);
    FETCH(to + WRITE_AHEAD, whole_rows(4, stride, channels), 1);
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

/* Rows that are written at a time: 24 KiB, if that is enough of them. */
INLINE Size rows_of_block(Size channels) {
  const Size rows = 6144 / channels / 4 * 4;
  return rows < 4 ? 4 : rows;
}

/* All rows in that way, as far as a near cache holds them from the last ones on: these are still there. */
INLINE void write_columns(const float *x, float *y, Size rows, Size stride, Size channels, const float *centre,
                          const float *scale, const float *bias, Activation activation, float slope) {
  const Size step = rows_of_block(channels), chunk = (NEAR_CACHE / (step * channels) + 1) * step;
  for (Size stop = rows, start; stop > 0; stop = start) {
    start = stop - smaller(stop, chunk);
    column_affine(x + start * stride, y + start * stride, stop - start, stride, channels, centre, scale, bias,
                  activation, slope);
  }
}

#endif
