/* Inference with each example's own moments mixed into the running ones, and an activation: float32, on the CPU.
 *
 * Each example's moments are taken and applied while its values are still in the cache, so that
 * the layer reads and writes main memory exactly as often as plain BatchNorm does.
 * Moments are those of rows.h and columns.h, shifted by the running mean: a large common offset does not cancel.
 *
 * Built without Python or torch headers. OpenMP's symbols are left open on purpose and resolve to
 * the runtime that torch has loaded, so that both share one pool of threads.
 */
#include <math.h>
#include <stdlib.h>

#include "columns.h"
#include "rows.h"
#include "short_rows.h"

typedef struct {
  const float *x;
  float *y;
  Size examples, channels, positions;
  const float *mean, *var, *weight, *bias, *alpha;
  float eps;
  float errors, share; /* standard errors that explain a difference, and the share of what is beyond; negative: all do */
  int activation;
  float slope;
} Job;

/* Standard errors of mean and variance, as factors of the running deviation and variance. */
typedef struct {
  float of_mean, of_var, share;
} Noise;

static Noise noise_of(const Job *job) {
  const double values = (double)job->positions;
  /* One value has no variance that could be told from noise. */
  const double of_var = values > 1 ? job->errors * sqrt(2 / (values - 1)) : INFINITY;
  return (Noise){(float)(job->errors / sqrt(values)), (float)of_var, job->share};
}

/* What is left of a difference of either sign when noise is taken off. */
INLINE float beyond(float difference, float noise) {
  const float left = fabsf(difference) - noise, kept = left < 0.0f ? 0.0f : left;
  return difference < 0.0f ? -kept : kept;
}

/* Running moments moved towards the example's own, `difference` from theirs, as far as noise does not explain. */
INLINE void correct(const Noise *noise, float *mean, float *var, float *difference, float own) {
  const float moved = noise->share * beyond(*difference, noise->of_mean * sqrtf(*var));
  const float limit = noise->of_var == INFINITY ? INFINITY : noise->of_var * *var;
  const float changed = *var + noise->share * beyond(own - *var, limit);
  *mean += moved;
  *difference -= moved;
  *var = changed < 0.0f ? 0.0f : changed;
}

/* From running and own moments to what has to be subtracted, and the inverse deviation. */
INLINE void mix(float alpha, float eps, float mean, float var, float difference, float own, float *centre,
                float *inverse) {
  /* An infinite value makes an example's moments infinite; at alpha = 0 they do not count, where 0 * inf would be NaN. */
  const float far = alpha == 0.0f ? 0.0f : difference, own_var = alpha == 0.0f ? 0.0f : own;
  const float mixed = alpha * own_var + (1 - alpha) * var + alpha * (1 - alpha) * far * far;
  *centre = mean + alpha * far;
  *inverse = 1.0f / sqrtf(mixed + eps);
}

/* From differences of means and from variances of some channels, in place: what is subtracted and what is multiplied. */
INLINE void mix_channels(const Job *job, const Noise *noise, Size from, Size channels, float *restrict difference,
                         float *restrict own) {
  const float *restrict mean = job->mean + from, *restrict var = job->var + from, *restrict alpha = job->alpha + from;
  if (job->errors >= 0.0f) {
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      float corrected = mean[c], spread = var[c], left = difference[c];
      correct(noise, &corrected, &spread, &left, own[c]);
      mix(alpha[c], job->eps, corrected, spread, left, own[c], difference + c, own + c);
    }
  } else {
#pragma omp simd
    for (Size c = 0; c < channels; c++)
      mix(alpha[c], job->eps, mean[c], var[c], difference[c], own[c], difference + c, own + c);
  }
  if (job->weight) {
#pragma omp simd
    for (Size c = 0; c < channels; c++) own[c] *= job->weight[from + c];
  }
}

INLINE float bias_of(const Job *job, Size c) { return job->bias ? job->bias[c] : 0.0f; }

/* ---- positions of a channel are contiguous: (N, C, positions) ---- */

enum { ROWS_IN_CACHE = 8192 }; /* floats; 32 KiB */

/* A few rows at a time, as far as a near cache holds them: one row alone would have to wait for its own moments. */
INLINE Size rows_at_once(const Job *job, Size row, Size last) {
  const Size fitting = ROWS_IN_CACHE / job->positions, least = fitting < 1 ? 1 : smaller(fitting, MOST_ROWS);
  return smaller(smaller(least, job->channels - row % job->channels), last - row);
}

#define WEIGH_ROWS(moments_of, affine)                                                                        \
  const Size n = job->positions;                                                                              \
  const Noise noise = noise_of(job);                                                                          \
  float difference[MOST_ROWS], own[MOST_ROWS];                                                                \
  for (Size row = first, rows; row < last; row += rows) {                                                     \
    const Size c = row % job->channels;                                                                       \
    rows = rows_at_once(job, row, last);                                                                      \
    moments_of(job->x + row * n, rows, n, job->mean + c, difference, own, job->y + row * n);                  \
    mix_channels(job, &noise, c, rows, difference, own);                                                      \
    FOR_ACTIVATION(job->activation, for (Size r = 0; r < rows; r++) {                                         \
      const Size at = (row + r) * n;                                                                          \
      affine(job->x + at, job->y + at, n, difference[r], own[r], bias_of(job, c + r), activation, job->slope); \
    })                                                                                                        \
  }

FOR_EVERY_CPU
static void weigh_rows(const Job *job, Size first, Size last) { WEIGH_ROWS(moments_of_few_rows, row_affine) }

MASKED static void weigh_short_rows(const Job *job, Size first, Size last) {
  WEIGH_ROWS(moments_of_short_rows, short_row_affine)
}

/* Example by example, from the last to the first, for the reason at FOR_OWN_SHARE. */
static void weigh(const Job *job, Size first, Size last) {
  const int masked = rows_are_masked();
  for (Size stop = last, start; stop > first; stop = start) {
    start = (stop - 1) / job->channels * job->channels;
    if (start < first) start = first;
    if (masked)
      weigh_short_rows(job, start, stop);
    else
      weigh_rows(job, start, stop);
  }
}

int example_weighted_rows(const Job *job, int threads) {
  const Size rows = job->positions ? job->examples * job->channels : 0;
  threads = useful_threads(rows * job->positions, threads);
  if (threads == 1) {
    weigh(job, 0, rows);
    return 0;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int part = 0; part < threads; part++) weigh(job, rows * part / threads, rows * (part + 1) / threads);
  return 0;
}

/* ---- channels of a position are contiguous: (N, positions, C), torch's channels-last ---- */

/* Some channels of an example. */
FOR_EVERY_CPU
static void weigh_columns(const Job *job, Size example, Size first, Size channels, Columns own) {
  const Size rows = job->positions, stride = job->channels, start = example * rows * stride + first;
  const Noise noise = noise_of(job);
  const float *mean = job->mean + first;
  moments_of_columns(job->x + start, rows, stride, channels, own);
#pragma omp simd
  for (Size c = 0; c < channels; c++) own.sum[c] += own.about[c] - mean[c];
  mix_channels(job, &noise, first, channels, own.sum, own.squares);
  for (Size c = 0; c < channels; c++) own.about[c] = bias_of(job, first + c);
  FOR_ACTIVATION(job->activation, write_columns(job->x + start, job->y + start, rows, stride, channels, own.sum,
                                                own.squares, own.about, activation, job->slope))
}

/* Of some positions of an example, one thread's share: the mean less the running one, and the variance. */
FOR_EVERY_CPU
static void moments_of_share(const Job *job, Size first, Size rows, Columns own) {
  const Size channels = job->channels;
  moments_of_columns(job->x + first * channels, rows, channels, channels, own);
#pragma omp simd
  for (Size c = 0; c < channels; c++) own.sum[c] += own.about[c] - job->mean[c];
}

/* A share, by the moments of all of them. */
FOR_EVERY_CPU
static void weigh_share(const Job *job, const Columns *shares, const Size *rows, int threads, Size first, Size own_rows,
                        Columns own) {
  const Size channels = job->channels;
  const Noise noise = noise_of(job);
  float *difference = own.block_sum, *var = own.block_squares;
  moments_of_shares(shares, rows, threads, channels, difference, var);
  mix_channels(job, &noise, 0, channels, difference, var);
  for (Size c = 0; c < channels; c++) own.about[c] = bias_of(job, c);
  FOR_ACTIVATION(job->activation,
                 write_columns(job->x + first * channels, job->y + first * channels, own_rows, channels, channels,
                               difference, var, own.about, activation, job->slope))
}

/* Every example, one after the other. */
static int weigh_in_shares(const Job *job, int threads) {
  const Size own = FLOATS_PER_CHANNEL * job->channels;
  float *memory = malloc(sizeof(float) * (size_t)own * (size_t)threads);
  if (!memory) return 1;
  Columns shares[MOST_SHARES];
  Size rows[MOST_SHARES];
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num(), there = omp_get_num_threads();
    const Size first = job->positions * thread / there;
    shares[thread] = columns_at(memory, job->channels, thread);
    rows[thread] = job->positions * (thread + 1) / there - first;
    for (Size example = job->examples; example-- > 0;) {
      const Size at = example * job->positions + first;
      moments_of_share(job, at, rows[thread], shares[thread]);
#pragma omp barrier
      weigh_share(job, shares, rows, there, at, rows[thread], shares[thread]);
#pragma omp barrier
    }
  }
  free(memory);
  return 0;
}

int example_weighted_columns(const Job *job, int threads) {
  const Size channels = job->channels;
  if (!job->positions) return 0;
  threads = useful_threads(job->examples * channels * job->positions, threads);
  if (rows_are_shared(job->examples, job->positions, threads)) return weigh_in_shares(job, threads);
  const Size width = channels_at_once(channels, 1, job->examples, threads);
  const Size parts = (channels + width - 1) / width, items = job->examples * parts;
  const Size own = FLOATS_PER_CHANNEL * width;
  float *memory = malloc(sizeof(float) * (size_t)own * (size_t)threads);
  if (!memory) return 1;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const Columns columns = columns_at(memory + own * omp_get_thread_num(), width, 0);
    FOR_OWN_SHARE(item, items) {
      const Size first = item % parts * width;
      weigh_columns(job, item / parts, first, smaller(width, channels - first), columns);
    }
  }
  free(memory);
  return 0;
}
