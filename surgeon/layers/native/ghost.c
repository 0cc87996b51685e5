/* BatchNorm of groups of examples in training, forward and backward: float32, on the CPU.
 *
 * A group of examples and of channels shares its statistics: of one channel in ghost BatchNorm, of more in Batch-Group
 * normalisation. Whatever shares them is handled while it is in the cache, and written straight into its place.
 * Moments are those of rows.h and columns.h.
 * OpenMP's symbols are left open, as in example_weighted.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "gradients.h"
#include "rows.h"

typedef struct {
  const float *x;
  float *y;
  Size channels, positions, shared; /* shared: channels of a group of channels */
  const Size *bounds;               /* groups + 1 indices of examples */
  Size groups;
  const float *weight, *bias;
  float eps;
  float *mean, *var;       /* (groups, channels), of each channel by itself */
  float *centre, *inverse; /* (groups, channels / shared), mean and inverse deviation of what shares them */
  const float *grad;
  float *grad_x, *grad_weight, *grad_bias; /* the last two: (groups, channels), to be summed over the groups */
} Ghost;

INLINE Size floats_of(const Ghost *job) { return job->bounds[job->groups] * job->channels * job->positions; }

/* Mean and inverse deviation of channels together, from the moments of each. */
INLINE void share(const float *mean, const float *var, Size n, float eps, float *centre, float *inverse) {
  double middle = 0.0, spread = 0.0;
  for (Size c = 0; c < n; c++) middle += mean[c];
  middle /= (double)n;
  for (Size c = 0; c < n; c++) spread += var[c] + (mean[c] - middle) * (mean[c] - middle);
  *centre = n == 1 ? mean[0] : (float)middle;
  *inverse = (float)(1.0 / sqrt((n == 1 ? var[0] : spread / (double)n) + eps));
}

/* ---- positions of a channel are contiguous: (N, C, positions) ---- */

/* An item is a group of examples and a group of channels. */
FOR_EVERY_CPU
static void forward_rows(const Ghost *job, Size item) {
  const Size sets = job->channels / job->shared, group = item / sets, from = item % sets * job->shared;
  const Size first = job->bounds[group], last = job->bounds[group + 1];
  const Size n = job->positions, example = job->channels * n;
  float *mean = job->mean + group * job->channels, *var = job->var + group * job->channels;
  for (Size c = from; c < from + job->shared; c++) {
    const float *x = job->x + first * example + c * n;
    const Moments own = moments_of_rows(x, last - first, example, n, *x);
    const double spread = own.squares / own.count;
    mean[c] = (float)(*x + own.mean);
    var[c] = (float)(spread < 0.0 ? 0.0 : spread); /* NaN stays */
  }
  float centre, inverse;
  share(mean + from, var + from, job->shared, job->eps, &centre, &inverse);
  job->centre[item] = centre;
  job->inverse[item] = inverse;
  for (Size c = from; c < from + job->shared; c++) {
    const float scale = job->weight ? job->weight[c] * inverse : inverse, bias = job->bias ? job->bias[c] : 0.0f;
    for (Size row = first; row < last; row++) {
      const Size at = row * example + c * n;
      row_affine(job->x + at, job->y + at, n, centre, scale, bias, NONE, 0.0f);
    }
  }
}

FOR_EVERY_CPU
static void backward_rows(const Ghost *job, Size item) {
  const Size sets = job->channels / job->shared, group = item / sets, from = item % sets * job->shared;
  const Size first = job->bounds[group], last = job->bounds[group + 1];
  const Size n = job->positions, example = job->channels * n;
  const double count = (double)((last - first) * n * job->shared), inverse = job->inverse[item];
  const float centre = job->centre[item];
  double sum = 0.0, product = 0.0;
  for (Size c = from; c < from + job->shared; c++) {
    double own_sum = 0.0, own_product = 0.0;
    for (Size row = first; row < last; row++) {
      const Size at = row * example + c * n;
      add_products(job->grad + at, job->x + at, n, centre, &own_sum, &own_product);
    }
    const double weight = job->weight ? job->weight[c] : 1.0;
    sum += weight * own_sum;
    product += weight * own_product;
    job->grad_weight[group * job->channels + c] = (float)(own_product * inverse);
    job->grad_bias[group * job->channels + c] = (float)own_sum;
  }
  const float slope = (float)(product * inverse * inverse * inverse / count), offset = (float)(inverse * sum / count);
  for (Size c = from; c < from + job->shared; c++) {
    const float scale = (float)((job->weight ? job->weight[c] : 1.0) * inverse);
    for (Size row = first; row < last; row++) {
      const Size at = row * example + c * n;
      input_gradient(job->grad + at, job->x + at, job->grad_x + at, n, centre, scale, slope, offset);
    }
  }
}

#define FOR_ITEMS(job, threads, ...)                                    \
  const Size items = (job)->groups * ((job)->channels / (job)->shared); \
  const int wanted = useful_threads(floats_of(job), threads);           \
  _Pragma("omp parallel num_threads(wanted) if (wanted > 1)")           \
  FOR_OWN_SHARE(item, items) __VA_ARGS__;                               \
  return 0;

int ghost_forward_rows(const Ghost *job, int threads) { FOR_ITEMS(job, threads, forward_rows(job, item)) }

int ghost_backward_rows(const Ghost *job, int threads) { FOR_ITEMS(job, threads, backward_rows(job, item)) }

/* ---- channels of a position are contiguous: (N, positions, C), torch's channels-last ---- */

/* From the moments of some channels of a group, whole sets of those that share statistics: what is subtracted,
 * multiplied and added. The first two may take the places of the moments. */
INLINE void normalisation(const Ghost *job, Size group, Size from, Size channels, const float *mean, const float *var,
                          float *centre, float *scale, float *bias, int told) {
  for (Size c = 0; c < channels; c += job->shared) {
    float middle, inverse;
    share(mean + c, var + c, job->shared, job->eps, &middle, &inverse);
    if (told) {
      const Size set = group * (job->channels / job->shared) + (from + c) / job->shared;
      job->centre[set] = middle;
      job->inverse[set] = inverse;
    }
    for (Size k = c; k < c + job->shared; k++) {
      centre[k] = middle;
      scale[k] = job->weight ? job->weight[from + k] * inverse : inverse;
      bias[k] = job->bias ? job->bias[from + k] : 0.0f;
    }
  }
}

/* Some channels of a group, whole sets. */
FOR_EVERY_CPU
static void forward_columns(const Ghost *job, Size group, Size from, Size channels, float *memory) {
  const Size stride = job->channels;
  const Size start = job->bounds[group] * job->positions, rows = job->bounds[group + 1] * job->positions - start;
  const float *x = job->x + start * stride + from;
  float *y = job->y + start * stride + from;
  float *mean = job->mean + group * stride + from, *var = job->var + group * stride + from;
  const Columns own = columns_at(memory, channels, 0);
  moments_of_columns(x, rows, stride, channels, own);
#pragma omp simd
  for (Size c = 0; c < channels; c++) {
    mean[c] = own.about[c] + own.sum[c];
    var[c] = own.squares[c] < 0.0f ? 0.0f : own.squares[c]; /* NaN stays */
  }
  normalisation(job, group, from, channels, mean, var, own.sum, own.squares, own.about, 1);
  write_columns(x, y, rows, stride, channels, own.sum, own.squares, own.about, NONE, 0.0f);
}

INLINE Size rows_of_group(const Ghost *job, Size group) {
  return (job->bounds[group + 1] - job->bounds[group]) * job->positions;
}

/* The first row of a thread's share of a group. */
INLINE Size start_of_share(const Ghost *job, Size group, int thread, int threads) {
  return job->bounds[group] * job->positions + rows_of_group(job, group) * thread / threads;
}

/* Whether threads share the rows of every group. */
INLINE int groups_are_shared(const Ghost *job, int threads) {
  for (Size group = 0; group < job->groups; group++)
    if (!rows_are_shared(job->groups, rows_of_group(job, group), threads)) return 0;
  return job->groups > 0;
}

/* Mean and variance of some rows, one thread's share. */
FOR_EVERY_CPU
static void moments_of_share(const Ghost *job, Size first, Size rows, Columns own) {
  const Size channels = job->channels;
  moments_of_columns(job->x + first * channels, rows, channels, channels, own);
#pragma omp simd
  for (Size c = 0; c < channels; c++) {
    own.sum[c] += own.about[c];
    own.squares[c] = own.squares[c] < 0.0f ? 0.0f : own.squares[c]; /* NaN stays */
  }
}

/* A share, by the moments of all of them. One of the threads tells these. */
FOR_EVERY_CPU
static void forward_share(const Ghost *job, Size group, const Columns *shares, const Size *rows, int threads, int thread,
                          Size first) {
  const Size channels = job->channels;
  const Columns own = shares[thread];
  float *mean = own.block_sum, *var = own.block_squares;
  moments_of_shares(shares, rows, threads, channels, mean, var);
  if (thread == 0) {
    memcpy(job->mean + group * channels, mean, sizeof(float) * (size_t)channels);
    memcpy(job->var + group * channels, var, sizeof(float) * (size_t)channels);
  }
  normalisation(job, group, 0, channels, mean, var, mean, var, own.about, thread == 0);
  write_columns(job->x + first * channels, job->y + first * channels, rows[thread], channels, channels, mean, var,
                own.about, NONE, 0.0f);
}

/* Every group, one after the other. */
static int forward_in_shares(const Ghost *job, int threads) {
  const Size own = FLOATS_PER_CHANNEL * job->channels;
  float *memory = malloc(sizeof(float) * (size_t)own * (size_t)threads);
  if (!memory) return 1;
  Columns shares[MOST_SHARES];
  Size rows[MOST_SHARES];
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num(), there = omp_get_num_threads();
    shares[thread] = columns_at(memory, job->channels, thread);
    for (Size group = job->groups; group-- > 0;) {
      const Size first = start_of_share(job, group, thread, there);
      rows[thread] = start_of_share(job, group, thread + 1, there) - first;
      moments_of_share(job, first, rows[thread], shares[thread]);
#pragma omp barrier
      forward_share(job, group, shares, rows, there, thread, first);
#pragma omp barrier
    }
  }
  free(memory);
  return 0;
}

/* Of each channel: sums of all rows and of a block, and what the gradient is then made of. */
typedef struct {
  double *sum, *product;
  float *block_sum, *block_product, *centre, *scale, *slope, *offset;
} Products;

enum { BYTES_PER_CHANNEL = 2 * sizeof(double) + 6 * sizeof(float) };

INLINE Products products_at(char *memory, Size channels) {
  double *sums = (double *)memory;
  float *floats = (float *)(sums + 2 * channels);
  return (Products){sums, sums + channels, floats, floats + channels, floats + 2 * channels, floats + 3 * channels,
                    floats + 4 * channels, floats + 5 * channels};
}

/* Sums of some rows: float32 within a block and float64 across blocks. */
INLINE void sum_products(const Ghost *job, Size group, Size start, Size rows, Size from, Size channels, Products own) {
  const Size stride = job->channels, sets = stride / job->shared, step = 4 * rows_of_block(channels);
  const float *x = job->x + start * stride + from, *grad = job->grad + start * stride + from;
  double *restrict sum = own.sum, *restrict product = own.product;
  const float *restrict block_sum = own.block_sum, *restrict block_product = own.block_product;
  for (Size c = 0; c < channels; c++) {
    sum[c] = product[c] = 0.0;
    own.centre[c] = job->centre[group * sets + (from + c) / job->shared];
  }
  for (Size r = 0; r < rows; r += step) { /* longer blocks than of what is read twice */
    products_of_block(grad + r * stride, x + r * stride, smaller(step, rows - r), stride, channels, own.centre,
                      own.block_sum, own.block_product);
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      sum[c] += block_sum[c];
      product[c] += block_product[c];
    }
  }
}

/* From the sums over a group: the gradients of weight and bias, if they are to be told, and what the input's is made of. */
INLINE void parts_of_gradient(const Ghost *job, Size group, Size from, Size channels, const double *sum,
                              const double *product, Products own, int told) {
  const Size stride = job->channels, sets = stride / job->shared;
  const double count = (double)(rows_of_group(job, group) * job->shared);
  for (Size c = 0; c < channels; c += job->shared) {
    const double inverse = job->inverse[group * sets + (from + c) / job->shared];
    double all = 0.0, of_all = 0.0;
    for (Size k = c; k < c + job->shared; k++) {
      const double weight = job->weight ? job->weight[from + k] : 1.0;
      all += weight * sum[k];
      of_all += weight * product[k];
      own.scale[k] = (float)(weight * inverse);
      if (told) {
        job->grad_weight[group * stride + from + k] = (float)(product[k] * inverse);
        job->grad_bias[group * stride + from + k] = (float)sum[k];
      }
    }
    for (Size k = c; k < c + job->shared; k++) {
      own.slope[k] = (float)(of_all * inverse * inverse * inverse / count);
      own.offset[k] = (float)(inverse * all / count);
    }
  }
}

/* The gradient of some rows, as far as a near cache holds them from the last ones on. */
INLINE void write_gradient(const Ghost *job, Size start, Size rows, Size from, Size channels, Products own) {
  const Size stride = job->channels, step = rows_of_block(channels);
  const Size chunk = (NEAR_CACHE / 2 / (step * channels) + 1) * step;
  for (Size stop = rows, begin; stop > 0; stop = begin) {
    begin = stop - smaller(stop, chunk);
    const Size at = (start + begin) * stride + from;
    column_gradient(job->grad + at, job->x + at, job->grad_x + at, stop - begin, stride, channels, own.centre,
                    own.scale, own.slope, own.offset);
  }
}

/* As `forward_columns`. */
FOR_EVERY_CPU
static void backward_columns(const Ghost *job, Size group, Size from, Size channels, char *memory) {
  const Size start = job->bounds[group] * job->positions, rows = rows_of_group(job, group);
  const Products own = products_at(memory, channels);
  sum_products(job, group, start, rows, from, channels, own);
  parts_of_gradient(job, group, from, channels, own.sum, own.product, own, 1);
  write_gradient(job, start, rows, from, channels, own);
}

FOR_EVERY_CPU
static void sums_of_share(const Ghost *job, Size group, Size first, Size rows, Products own) {
  sum_products(job, group, first, rows, 0, job->channels, own);
}

/* A share, by the sums of all of them; `sum` and `product` have room for their totals. */
FOR_EVERY_CPU
static void backward_share(const Ghost *job, Size group, const Products *shares, int threads, int thread, Size first,
                           Size rows, double *restrict sum, double *restrict product) {
  const Size channels = job->channels;
  for (Size c = 0; c < channels; c++) sum[c] = product[c] = 0.0;
  for (int t = 0; t < threads; t++) {
    const double *restrict own_sum = shares[t].sum, *restrict own_product = shares[t].product;
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      sum[c] += own_sum[c];
      product[c] += own_product[c];
    }
  }
  parts_of_gradient(job, group, 0, channels, sum, product, shares[thread], thread == 0);
  write_gradient(job, first, rows, 0, channels, shares[thread]);
}

/* As `forward_in_shares`. */
static int backward_in_shares(const Ghost *job, int threads) {
  const size_t channels = (size_t)job->channels, totals = 2 * sizeof(double) * channels;
  const size_t own = totals + (BYTES_PER_CHANNEL * channels + 7) / 8 * 8;
  char *memory = malloc(own * (size_t)threads);
  if (!memory) return 1;
  Products shares[MOST_SHARES];
#pragma omp parallel num_threads(threads)
  {
    const int thread = omp_get_thread_num(), there = omp_get_num_threads();
    double *sum = (double *)(memory + own * (size_t)thread);
    shares[thread] = products_at((char *)sum + totals, job->channels);
    for (Size group = job->groups; group-- > 0;) {
      const Size first = start_of_share(job, group, thread, there);
      const Size rows = start_of_share(job, group, thread + 1, there) - first;
      sums_of_share(job, group, first, rows, shares[thread]);
#pragma omp barrier
      backward_share(job, group, shares, there, thread, first, rows, sum, sum + channels);
#pragma omp barrier
    }
  }
  free(memory);
  return 0;
}

/* Does something for all groups, with memory of a number of bytes for each channel. */
#define FOR_GROUPS(job, threads, bytes, ...)                                                                          \
  const int wanted = useful_threads(floats_of(job), threads);                                                         \
  const Size width = channels_at_once((job)->channels, (job)->shared, (job)->groups, wanted);                         \
  const Size parts = ((job)->channels + width - 1) / width;                                                           \
  const size_t own = ((bytes) * (size_t)width + 7) / 8 * 8;                                                           \
  char *memory = malloc(own * (size_t)wanted);                                                                        \
  if (!memory) return 1;                                                                                              \
  _Pragma("omp parallel num_threads(wanted) if (wanted > 1)") {                                                       \
    char *mine = memory + own * (size_t)omp_get_thread_num();                                                         \
    FOR_OWN_SHARE(item, (job)->groups * parts) {                                                                      \
      const Size from = item % parts * width, group = item / parts, channels = smaller(width, (job)->channels - from); \
      __VA_ARGS__;                                                                                                    \
    }                                                                                                                 \
  }                                                                                                                   \
  free(memory);                                                                                                       \
  return 0;

int ghost_forward_columns(const Ghost *job, int threads) {
  const int useful = useful_threads(floats_of(job), threads);
  if (groups_are_shared(job, useful)) return forward_in_shares(job, useful);
  FOR_GROUPS(job, threads, FLOATS_PER_CHANNEL * sizeof(float),
             forward_columns(job, group, from, channels, (float *)mine))
}

int ghost_backward_columns(const Ghost *job, int threads) {
  const int useful = useful_threads(floats_of(job), threads);
  if (groups_are_shared(job, useful)) return backward_in_shares(job, useful);
  FOR_GROUPS(job, threads, BYTES_PER_CHANNEL, backward_columns(job, group, from, channels, mine))
}

/* Running moments of each channel, (2, channels), moved towards those of all groups together: both moments are mixed. */
FOR_EVERY_CPU
void ghost_running(const float *mean, const float *var, const Size *bounds, Size groups, Size channels,
                   const float *running_mean, const float *running_var, double factor, float *updated) {
  const double examples = (double)bounds[groups];
  for (Size c = 0; c < channels; c++) {
    double middle = 0.0, spread = 0.0;
    for (Size g = 0; g < groups; g++) middle += (double)(bounds[g + 1] - bounds[g]) / examples * mean[g * channels + c];
    for (Size g = 0; g < groups; g++) {
      const double away = mean[g * channels + c] - middle;
      spread += (double)(bounds[g + 1] - bounds[g]) / examples * (var[g * channels + c] + away * away);
    }
    const double difference = middle - running_mean[c];
    updated[c] = (float)(running_mean[c] + factor * difference);
    updated[channels + c] = (float)(factor * spread + (1 - factor) * running_var[c] +
                                    factor * (1 - factor) * difference * difference);
  }
}
