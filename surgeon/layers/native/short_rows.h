/* Rows that are short, as those of 7 x 7 positions: what is left over of a vector counts there.
 *
 * AVX-512 takes the remainder with a mask. Other processors do without: see rows.h.
 */
#ifndef SURGEON_SHORT_ROWS_H
#define SURGEON_SHORT_ROWS_H

#include "rows.h"

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>

#define MASKED __attribute__((target("avx512f")))
#define MASKED_INLINE static inline __attribute__((always_inline, target("avx512f")))

static int rows_are_masked(Size n) { return n <= ROW_BLOCK && __builtin_cpu_supports("avx512f"); }

/* As `moments_of_row`. */
MASKED_INLINE Moments moments_of_short_row(const float *x, Size n, float shift) {
  const Size whole = n & ~(Size)15;
  const __mmask16 rest = (__mmask16)((1u << (n - whole)) - 1);
  const __m512 shifts = _mm512_set1_ps(shift), last = _mm512_maskz_loadu_ps(rest, x + whole);
  __m512 a = _mm512_maskz_sub_ps(rest, last, shifts), b = _mm512_setzero_ps(), c = b, d = b;
  Size i = 0;
  for (; i + 64 <= whole; i += 64) {
    a = _mm512_add_ps(a, _mm512_sub_ps(_mm512_loadu_ps(x + i), shifts));
    b = _mm512_add_ps(b, _mm512_sub_ps(_mm512_loadu_ps(x + i + 16), shifts));
    c = _mm512_add_ps(c, _mm512_sub_ps(_mm512_loadu_ps(x + i + 32), shifts));
    d = _mm512_add_ps(d, _mm512_sub_ps(_mm512_loadu_ps(x + i + 48), shifts));
  }
  for (; i < whole; i += 16) b = _mm512_add_ps(b, _mm512_sub_ps(_mm512_loadu_ps(x + i), shifts));
  const float count = (float)n, inverse = 1.0f / count;
  const float sum = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
  const float about = shift + sum * inverse;
  const __m512 abouts = _mm512_set1_ps(about);
  a = _mm512_maskz_sub_ps(rest, last, abouts); /* deviations, and their squares */
  b = _mm512_mul_ps(a, a);
  c = d = _mm512_setzero_ps();
  for (i = 0; i + 32 <= whole; i += 32) {
    const __m512 one = _mm512_sub_ps(_mm512_loadu_ps(x + i), abouts);
    const __m512 other = _mm512_sub_ps(_mm512_loadu_ps(x + i + 16), abouts);
    a = _mm512_add_ps(a, one);
    b = _mm512_fmadd_ps(one, one, b);
    c = _mm512_add_ps(c, other);
    d = _mm512_fmadd_ps(other, other, d);
  }
  for (; i < whole; i += 16) {
    const __m512 one = _mm512_sub_ps(_mm512_loadu_ps(x + i), abouts);
    a = _mm512_add_ps(a, one);
    b = _mm512_fmadd_ps(one, one, b);
  }
  const float residual = _mm512_reduce_add_ps(_mm512_add_ps(a, c)) * inverse;
  const float squares = _mm512_reduce_add_ps(_mm512_add_ps(b, d));
  return (Moments){(about - shift) + residual, squares - count * residual * residual, count};
}

MASKED_INLINE void short_row_affine(const float *restrict x, float *restrict y, Size n, float centre, float scale,
                                    float bias, Activation activation, float slope) {
  const Size whole = n & ~(Size)15;
  for (Size i = 0; i < whole; i += 16)
#pragma omp simd
    for (Size k = 0; k < 16; k++) y[i + k] = activate(activation, slope, (x[i + k] - centre) * scale + bias);
  if (whole == n) return;
  const __mmask16 rest = (__mmask16)((1u << (n - whole)) - 1);
  float last[16];
  _mm512_storeu_ps(last, _mm512_maskz_loadu_ps(rest, x + whole));
#pragma omp simd
  for (Size k = 0; k < 16; k++) last[k] = activate(activation, slope, (last[k] - centre) * scale + bias);
  _mm512_mask_storeu_ps(y + whole, rest, _mm512_loadu_ps(last));
}

#else
#define rows_are_masked(n) 0
#define MASKED
#define MASKED_INLINE static inline
#define moments_of_short_row moments_of_row
#define short_row_affine row_affine
#endif

#endif
