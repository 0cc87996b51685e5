/* BatchNorm of groups of examples in training, forward and backward: float32, on the CPU.
 *
 * A group of examples and of channels shares its statistics: of one channel in ghost BatchNorm, of more in Batch-Group
 * normalisation. Whatever shares them is handled while it is in the cache, and written straight into its place.
 * Moments are those of rows.h and columns.h.
 * OpenMP's symbols are left open, as in example_weighted.c.
 */
#include <math.h>
#include <stdlib.h>

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

/* Some channels of a group, whole sets of those that share statistics. */
FOR_EVERY_CPU
static void forward_columns(const Ghost *job, Size group, Size from, Size channels, float *memory) {
  const Size stride = job->channels, sets = stride / job->shared;
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
  for (Size c = 0; c < channels; c += job->shared) {
    const Size set = group * sets + (from + c) / job->shared;
    share(mean + c, var + c, job->shared, job->eps, job->centre + set, job->inverse + set);
    for (Size k = c; k < c + job->shared; k++) {
      own.sum[k] = job->centre[set];
      own.squares[k] = job->weight ? job->weight[from + k] * job->inverse[set] : job->inverse[set];
      own.about[k] = job->bias ? job->bias[from + k] : 0.0f;
    }
  }
  write_columns(x, y, rows, stride, channels, own.sum, own.squares, own.about, NONE, 0.0f);
}

/* Of each channel: sums of all rows, sums of a block, and what the gradient is then made of. */
enum { BYTES_PER_CHANNEL = 2 * sizeof(double) + 6 * sizeof(float) };

/* As `forward_columns`. Sums are float32 within a block and float64 across blocks. */
FOR_EVERY_CPU
static void backward_columns(const Ghost *job, Size group, Size from, Size channels, double *memory) {
  const Size stride = job->channels, sets = stride / job->shared, step = rows_of_block(channels);
  const Size start = job->bounds[group] * job->positions, rows = job->bounds[group + 1] * job->positions - start;
  const float *x = job->x + start * stride + from, *grad = job->grad + start * stride + from;
  float *out = job->grad_x + start * stride + from;
  double *restrict sum = memory, *restrict product = memory + channels;
  float *restrict block_sum = (float *)(memory + 2 * channels), *restrict block_product = block_sum + channels;
  float *restrict centre = block_sum + 2 * channels, *restrict scale = block_sum + 3 * channels;
  float *restrict slope = block_sum + 4 * channels, *restrict offset = block_sum + 5 * channels;
  for (Size c = 0; c < channels; c++) {
    sum[c] = product[c] = 0.0;
    centre[c] = job->centre[group * sets + (from + c) / job->shared];
  }
  for (Size r = 0; r < rows; r += 4 * step) { /* longer blocks than of what is read twice */
    products_of_block(grad + r * stride, x + r * stride, smaller(4 * step, rows - r), stride, channels, centre,
                      block_sum, block_product);
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      sum[c] += block_sum[c];
      product[c] += block_product[c];
    }
  }
  for (Size c = 0; c < channels; c += job->shared) {
    const double inverse = job->inverse[group * sets + (from + c) / job->shared], count = (double)(rows * job->shared);
    double all = 0.0, of_all = 0.0;
    for (Size k = c; k < c + job->shared; k++) {
      const double weight = job->weight ? job->weight[from + k] : 1.0;
      all += weight * sum[k];
      of_all += weight * product[k];
      scale[k] = (float)(weight * inverse);
      job->grad_weight[group * stride + from + k] = (float)(product[k] * inverse);
      job->grad_bias[group * stride + from + k] = (float)sum[k];
    }
    for (Size k = c; k < c + job->shared; k++) {
      slope[k] = (float)(of_all * inverse * inverse * inverse / count);
      offset[k] = (float)(inverse * all / count);
    }
  }
  const Size chunk = (NEAR_CACHE / 2 / (step * channels) + 1) * step;
  for (Size stop = rows, begin; stop > 0; stop = begin) {
    begin = stop - smaller(stop, chunk);
    const Size at = begin * stride;
    column_gradient(grad + at, x + at, out + at, stop - begin, stride, channels, centre, scale, slope, offset);
  }
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
  FOR_GROUPS(job, threads, FLOATS_PER_CHANNEL * sizeof(float),
             forward_columns(job, group, from, channels, (float *)mine))
}

int ghost_backward_columns(const Ghost *job, int threads) {
  FOR_GROUPS(job, threads, BYTES_PER_CHANNEL, backward_columns(job, group, from, channels, (double *)mine))
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
