/* What several kernels use: the sum of a row. */
#ifndef SURGEON_SUMS_H
#define SURGEON_SUMS_H

#include "every_cpu.h"

FOR_EVERY_CPU
static float sum_of(const float *x, Size n, float shift) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; i++) sum += x[i] - shift;
  return sum;
}

#endif
