/* Ghost BatchNorm in training, forward and backward, for float32 (N, C, positions) on the CPU.
 *
 * Each channel of each group of examples is handled while it is in the cache, and written straight
 * into its place. Sums are float32 within a row of positions and float64 across rows.
 * OpenMP's symbols are left open, as in example_weighted.c.
 */
#include <math.h>

#include "sums.h"

FOR_EVERY_CPU
static float squares_of(const float *x, Size n, float mean) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

FOR_EVERY_CPU
static void affine(const float *x, float *y, Size n, float mean, float scale, float bias) {
#pragma omp simd
  for (Size i = 0; i < n; i++) y[i] = (x[i] - mean) * scale + bias;
}

FOR_EVERY_CPU
static float product_of(const float *grad, const float *x, Size n, float mean) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; i++) sum += grad[i] * (x[i] - mean);
  return sum;
}

FOR_EVERY_CPU
static void input_gradient(const float *grad, const float *x, float *out, Size n, float mean, float scale, float slope,
                           float offset) {
#pragma omp simd
  for (Size i = 0; i < n; i++) out[i] = grad[i] * scale - (x[i] - mean) * slope - offset;
}

/* bounds: groups + 1 indices of examples; mean and inverse_std: (groups, channels). */
void ghost_forward(const float *x, float *y, Size channels, Size positions, const Size *bounds, Size groups,
                   const float *weight, const float *bias, float eps, float *mean, float *inverse_std, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size item = 0; item < groups * channels; item++) {
    const Size group = item / channels, c = item % channels;
    const Size first = bounds[group], last = bounds[group + 1], example = channels * positions;
    const double count = (double)((last - first) * positions);
    const float shift = x[first * example + c * positions];
    double sum = 0.0, squares = 0.0;
    for (Size n = first; n < last; n++) sum += sum_of(x + n * example + c * positions, positions, shift);
    const float m = (float)(shift + sum / count);
    for (Size n = first; n < last; n++) squares += squares_of(x + n * example + c * positions, positions, m);
    const float inverse = (float)(1.0 / sqrt(squares / count + eps));
    const float scale = weight ? weight[c] * inverse : inverse;
    for (Size n = first; n < last; n++)
      affine(x + n * example + c * positions, y + n * example + c * positions, positions, m, scale,
             bias ? bias[c] : 0.0f);
    mean[item] = m;
    inverse_std[item] = inverse;
  }
}

/* grad_weight and grad_bias: (groups, channels), to be summed over the groups. */
void ghost_backward(const float *grad, const float *x, float *grad_x, Size channels, Size positions, const Size *bounds,
                    Size groups, const float *weight, const float *mean, const float *inverse_std, float *grad_weight,
                    float *grad_bias, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size item = 0; item < groups * channels; item++) {
    const Size group = item / channels, c = item % channels;
    const Size first = bounds[group], last = bounds[group + 1], example = channels * positions;
    const double count = (double)((last - first) * positions);
    const double inverse = inverse_std[item], scale = (weight ? weight[c] : 1.0) * inverse;
    double sum = 0.0, product = 0.0;
    for (Size n = first; n < last; n++) {
      const Size row = n * example + c * positions;
      sum += sum_of(grad + row, positions, 0.0f);
      product += product_of(grad + row, x + row, positions, mean[item]);
    }
    const float slope = (float)(scale * product * inverse * inverse / count), offset = (float)(scale * sum / count);
    for (Size n = first; n < last; n++) {
      const Size row = n * example + c * positions;
      input_gradient(grad + row, x + row, grad_x + row, positions, mean[item], (float)scale, slope, offset);
    }
    grad_weight[item] = (float)(product * inverse);
    grad_bias[item] = (float)sum;
  }
}
