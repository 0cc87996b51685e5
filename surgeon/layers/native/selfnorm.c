/* SelfNorm of a training batch, forward and backward: float32, on the CPU, positions of a channel contiguous.
 *
 * All that concerns a channel is done in one go, so that its features come from memory once: the moments of each of its
 * rows (a row is an example's positions), the gates, whose BatchNorm needs them all, and the product.
 * OpenMP's symbols are left open, as in example_weighted.c.
 */
#include <math.h>
#include <omp.h>

#include "gradients.h"

/* A gate is most / (1 + exp(-BatchNorm(filter * (mean, deviation)))). With two, y = x * first + mean * (second - first). */
typedef struct {
  const float *x, *grad;
  float *out; /* y, or the gradient of x */
  Size examples, channels, positions, gates;
  float *rows;                   /* (2 + gates, channels, examples): mean, deviation, values of gates */
  float *sums;                   /* (4, channels, examples), for the backward pass */
  float *gradients;              /* (gates, 4 * channels): of the parameters */
  const float *parameters[2][3]; /* of each gate: the filter, (channels, 2), and BatchNorm's weight and bias */
  float *running[2][2];          /* running mean and variance, or NULL */
  float factor[2];               /* by which the running ones move */
  float norm_eps[2], eps, most;
} SelfNorm;

enum { SHORT_ROW = 256 };

/* Mean, and the sum of the squares of deviations. */
INLINE float moments_of_row(const float *x, Size n, float *squares) {
  if (n > SHORT_ROW) {
    const Moments own = moments_of_rows(x, 1, 0, n, *x);
    *squares = own.squares < 0.0 ? 0.0f : (float)own.squares; /* NaN stays */
    return (float)(*x + own.mean);
  }
  const float inverse = 1.0f / (float)n;
  float sum = 0.0f, residual = 0.0f, square = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; i++) sum += x[i];
  const float about = sum * inverse;
#pragma omp simd reduction(+ : residual, square)
  for (Size i = 0; i < n; i++) {
    const float deviation = x[i] - about;
    residual += deviation;
    square += deviation * deviation;
  }
  square -= residual * residual * inverse;
  *squares = square < 0.0f ? 0.0f : square;
  return about + residual * inverse;
}

INLINE float logistic(float logit, float most) {
  const float small = exponential(-fabsf(logit)), value = (logit < 0.0f ? most * small : most) / (1.0f + small);
  return logit == logit ? value : logit; /* NaN stays */
}

/* What a gate's BatchNorm is given. */
#define COMBINED(n) (mean[n] * first + deviation[n] * second)

INLINE void moments_of_combined(const float *restrict mean, const float *restrict deviation, Size count, double first,
                                double second, double *centre, double *squares) {
  double sum = 0.0, square = 0.0;
#pragma omp simd reduction(+ : sum)
  for (Size n = 0; n < count; n++) sum += COMBINED(n);
  const double about = sum / (double)count;
#pragma omp simd reduction(+ : square)
  for (Size n = 0; n < count; n++) square += (COMBINED(n) - about) * (COMBINED(n) - about);
  *centre = about;
  *squares = square;
}

INLINE void find_values(const SelfNorm *job, Size gate, Size channel) {
  const Size count = job->examples, start = channel * count, all = job->channels * count;
  const float *restrict mean = job->rows + start, *restrict deviation = job->rows + all + start;
  float *restrict values = job->rows + (2 + gate) * all + start;
  const double first = job->parameters[gate][0][2 * channel], second = job->parameters[gate][0][2 * channel + 1];
  double centre, squares;
  moments_of_combined(mean, deviation, count, first, second, &centre, &squares);
  const double scale = job->parameters[gate][1][channel] / sqrt(squares / (double)count + job->norm_eps[gate]);
  const float bias = job->parameters[gate][2][channel], most = job->most;
#pragma omp simd
  for (Size n = 0; n < count; n++) values[n] = logistic((float)((COMBINED(n) - centre) * scale) + bias, most);
  if (job->running[gate][0]) {
    float *to_mean = job->running[gate][0] + channel, *to_var = job->running[gate][1] + channel;
    const double factor = job->factor[gate];
    *to_mean = (float)((1.0 - factor) * *to_mean + factor * centre);
    *to_var = (float)((1.0 - factor) * *to_var + factor * squares / (double)(count - 1));
  }
}

/* Gradients of a gate's parameters; adds those of mean and deviation. */
INLINE void differentiate(const SelfNorm *job, Size gate, Size channel) {
  const Size count = job->examples, start = channel * count, all = job->channels * count;
  const float *restrict mean = job->rows + start, *restrict deviation = job->rows + all + start;
  const float *restrict values = job->rows + (2 + gate) * all + start;
  const float *restrict sums = job->sums + start, *restrict products = job->sums + all + start;
  float *restrict of_mean = job->sums + 2 * all + start, *restrict of_deviation = job->sums + 3 * all + start;
  const double first = job->parameters[gate][0][2 * channel], second = job->parameters[gate][0][2 * channel + 1];
  const float share_of_products = gate == 0, share_of_sums = gate == 1 ? 1.0f : job->gates == 2 ? -1.0f : 0.0f;
  const float inverse_most = 1.0f / job->most;
  double centre, squares, sum = 0.0, product = 0.0, of_first = 0.0, of_second = 0.0;
  moments_of_combined(mean, deviation, count, first, second, &centre, &squares);
  const double inverse = 1.0 / sqrt(squares / (double)count + job->norm_eps[gate]);
#define OF_VALUE(n) (products[n] * share_of_products + mean[n] * sums[n] * share_of_sums)
#define OF_LOGIT(n) (OF_VALUE(n) * values[n] * (1.0f - values[n] * inverse_most))
#define NORMALISED(n) ((COMBINED(n) - centre) * inverse)
#pragma omp simd reduction(+ : sum, product)
  for (Size n = 0; n < count; n++) {
    sum += OF_LOGIT(n);
    product += OF_LOGIT(n) * NORMALISED(n);
  }
  const double scale = job->parameters[gate][1][channel] * inverse;
#pragma omp simd reduction(+ : of_first, of_second)
  for (Size n = 0; n < count; n++) {
    const double of_combined = scale * (OF_LOGIT(n) - (sum + NORMALISED(n) * product) / (double)count);
    of_first += of_combined * mean[n];
    of_second += of_combined * deviation[n];
    of_mean[n] += (float)(of_combined * first);
    of_deviation[n] += (float)(of_combined * second);
  }
#undef NORMALISED
#undef OF_LOGIT
#undef OF_VALUE
  float *gradients = job->gradients + 4 * gate * job->channels;
  gradients[2 * channel] = (float)of_first;
  gradients[2 * channel + 1] = (float)of_second;
  gradients[2 * job->channels + channel] = (float)product;
  gradients[3 * job->channels + channel] = (float)sum;
}

FOR_EVERY_CPU
static void forward(const SelfNorm *job, Size channel) {
  const Size size = job->positions, start = channel * job->examples, all = job->channels * job->examples;
  float *mean = job->rows + start, *deviation = mean + all;
  const float *first = deviation + all, *second = first + all;
  for (Size n = 0; n < job->examples; n++) {
    float squares;
    mean[n] = moments_of_row(job->x + (n * job->channels + channel) * size, size, &squares);
    deviation[n] = sqrtf(squares / (float)(size - 1) + job->eps);
  }
  for (Size gate = 0; gate < job->gates; gate++) find_values(job, gate, channel);
  for (Size n = job->examples - 1; n >= 0; n--) { /* the last ones are still in the cache */
    const Size at = (n * job->channels + channel) * size;
    const float *restrict x = job->x + at;
    float *restrict y = job->out + at;
    const float scale = first[n];
    if (job->gates == 1) {
#pragma omp simd
      for (Size i = 0; i < size; i++) y[i] = x[i] * scale; /* a gate of 1 changes no bit */
    } else {
      const float shift = mean[n] * (second[n] - scale);
#pragma omp simd
      for (Size i = 0; i < size; i++) y[i] = x[i] * scale + shift;
    }
  }
}

FOR_EVERY_CPU
static void backward(const SelfNorm *job, Size channel) {
  const Size size = job->positions, start = channel * job->examples, all = job->channels * job->examples;
  const float *mean = job->rows + start, *deviation = mean + all, *first = deviation + all, *second = first + all;
  float *sums = job->sums + start, *products = sums + all, *of_mean = products + all, *of_deviation = of_mean + all;
  for (Size n = 0; n < job->examples; n++) {
    const Size at = (n * job->channels + channel) * size;
    double sum = 0.0, product = 0.0;
    for (Size i = 0; i < size; i += ROW_BLOCK)
      add_products(job->grad + at + i, job->x + at + i, smaller(ROW_BLOCK, size - i), 0.0f, &sum, &product);
    sums[n] = (float)sum;
    products[n] = (float)product;
    of_mean[n] = job->gates == 1 ? 0.0f : sums[n] * (second[n] - first[n]);
    of_deviation[n] = 0.0f;
  }
  for (Size gate = 0; gate < job->gates; gate++) differentiate(job, gate, channel);
  for (Size n = job->examples - 1; n >= 0; n--) {
    const Size at = (n * job->channels + channel) * size;
    const float slope = of_deviation[n] / (deviation[n] * (float)(size - 1));
    input_gradient(job->grad + at, job->x + at, job->out + at, size, mean[n], first[n], -slope,
                   -of_mean[n] / (float)size);
  }
}

#define FOR_CHANNELS(job, threads, compute)                                                         \
  const int wanted = useful_threads((job)->examples * (job)->channels * (job)->positions, threads); \
  _Pragma("omp parallel for num_threads(wanted) schedule(static) if (wanted > 1)")                  \
  for (Size channel = 0; channel < (job)->channels; channel++) compute(job, channel);

void selfnorm_forward(const SelfNorm *job, int threads) { FOR_CHANNELS(job, threads, forward) }

void selfnorm_backward(const SelfNorm *job, int threads) { FOR_CHANNELS(job, threads, backward) }
