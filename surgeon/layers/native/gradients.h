/* Gradients of a scale and a shift that depend on moments, of rows and of columns: what they are made of, and themselves. */
#ifndef SURGEON_GRADIENTS_H
#define SURGEON_GRADIENTS_H

#include "columns.h"
#include "rows.h"

/* ---- rows ---- */

/* Sums of the gradient, and of its product with the deviations. */
INLINE void add_products(const float *grad, const float *x, Size n, float mean, double *sums, double *products) {
  float sum = 0.0f, product = 0.0f;
  Size i = 0;
  if (n >= LONG_ROW) {
    const Size part = n / 2;
    float other_sum = 0.0f, other_product = 0.0f;
#pragma omp simd reduction(+ : sum, product, other_sum, other_product)
    for (Size k = 0; k < part; k++) {
      sum += grad[k];
      product += grad[k] * (x[k] - mean);
      other_sum += grad[k + part];
      other_product += grad[k + part] * (x[k + part] - mean);
    }
    sum += other_sum;
    product += other_product;
    i = 2 * part;
  }
#pragma omp simd reduction(+ : sum, product)
  for (Size k = i; k < n; k++) {
    sum += grad[k];
    product += grad[k] * (x[k] - mean);
  }
  *sums += sum;
  *products += product;
}

INLINE void input_gradient(const float *restrict grad, const float *restrict x, float *restrict out, Size n, float mean,
                           float scale, float slope, float offset) {
#pragma omp simd
  for (Size i = 0; i < n; i++) out[i] = grad[i] * scale - (x[i] - mean) * slope - offset;
}

/* ---- columns ---- */

/* The same sums of each channel. */
INLINE void products_of_block(const float *restrict grad, const float *restrict x, Size rows, Size stride, Size channels,
                              const float *restrict centre, float *restrict sum, float *restrict product) {
  Size r = 0;
#pragma omp simd
  for (Size c = 0; c < channels; c++) sum[c] = product[c] = 0.0f;
  for (; r + 8 <= rows; r += 8) {
    const float *restrict g = grad + r * stride, *restrict at = x + r * stride;
    FETCH(g + WRITE_AHEAD, whole_rows(8, stride, channels), 0);
    FETCH(at + WRITE_AHEAD, whole_rows(8, stride, channels), 0);
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
#define GRADIENT(k) (g[(k)*stride + c])
#define PRODUCT(k) (GRADIENT(k) * (at[(k)*stride + c] - centre[c]))
      sum[c] += EIGHT(GRADIENT);
      product[c] += EIGHT(PRODUCT);
#undef GRADIENT
#undef PRODUCT
    }
  }
  for (; r < rows; r++)
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      sum[c] += grad[r * stride + c];
      product[c] += grad[r * stride + c] * (x[r * stride + c] - centre[c]);
    }
}

INLINE void column_gradient(const float *restrict grad, const float *restrict x, float *restrict out, Size rows,
                            Size stride, Size channels, const float *restrict centre, const float *restrict scale,
                            const float *restrict slope, const float *restrict offset) {
  Size r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float *restrict g = grad + r * stride, *restrict from = x + r * stride;
    float *restrict to = out + r * stride;
    FETCH(g + WRITE_AHEAD, whole_rows(4, stride, channels), 0);
    FETCH(from + WRITE_AHEAD, whole_rows(4, stride, channels), 0);
    FETCH(to + WRITE_AHEAD, whole_rows(4, stride, channels), 1);
#pragma omp simd
    for (Size c = 0; c < channels; c++) {
      const float centred_by = centre[c], times = scale[c], less = slope[c], constant = offset[c];
#define ROW(k) to[(k)*stride + c] = g[(k)*stride + c] * times - (from[(k)*stride + c] - centred_by) * less - constant
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
      out[r * stride + c] = grad[r * stride + c] * scale[c] - (x[r * stride + c] - centre[c]) * slope[c] - offset[c];
}

#endif
