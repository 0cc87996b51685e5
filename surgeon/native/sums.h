/* What both kernels use: sums of a row, and code for every kind of x86 processor in one library. */
#ifndef SURGEON_SUMS_H
#define SURGEON_SUMS_H

#include <stddef.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FOR_EVERY_CPU __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define FOR_EVERY_CPU
#endif

typedef ptrdiff_t Size;

FOR_EVERY_CPU
static float sum_of(const float *x, Size n, float shift) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; i++) sum += x[i] - shift;
  return sum;
}

#endif
