/* Rows that are short, as those of 7 x 7 positions: what is left over of a vector counts there, and so does adding up a
 * vector.
 *
 * AVX-512 takes the remainder with a mask, and sixteen rows, or pieces of one, are added up together. Other processors do
 * without: see rows.h.
 */
#ifndef SURGEON_SHORT_ROWS_H
#define SURGEON_SHORT_ROWS_H

#include "rows.h"

enum { MOST_ROWS = 16 };

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>

#define MASKED __attribute__((target("avx512f")))
#define MASKED_INLINE static inline __attribute__((always_inline, target("avx512f")))

static int rows_are_masked(void) { return __builtin_cpu_supports("avx512f"); }

/* The sums of sixteen vectors, in order. */
MASKED_INLINE __m512 sixteen_sums(const __m512 *v) {
  __m512 four[4];
  for (int i = 0; i < 4; i++) {
    const __m512 a = v[4 * i], b = v[4 * i + 1], c = v[4 * i + 2], d = v[4 * i + 3];
    const __m512d ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
    const __m512d cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
    four[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
  }
#define HALVES(a, b, low, high) _mm512_add_ps(_mm512_shuffle_f32x4(a, b, low), _mm512_shuffle_f32x4(a, b, high))
  return HALVES(HALVES(four[0], four[1], 0x44, 0xEE), HALVES(four[2], four[3], 0x44, 0xEE), 0x88, 0xDD);
#undef HALVES
}

/* Of at most MOST_ROWS rows of at most ROW_BLOCK floats: the mean less the shift, and the variance. The arrays have room
 * for MOST_ROWS numbers. As much memory from `soon` on is fetched meanwhile. */
MASKED static void moments_of_pieces(const float *x, Size rows, Size n, const float *shift, float *difference, float *var,
                                     const float *soon) {
  const Size whole = n & ~(Size)15, pilot = n < 16 ? n : smaller(whole, 16 * (1 + n / 128));
  const __mmask16 rest = (__mmask16)((1u << (n - whole)) - 1), used = (__mmask16)((1u << rows) - 1);
  const __mmask16 first = n < 16 ? rest : (__mmask16)0xFFFF;
  const __m512 inverse = _mm512_set1_ps(1.0f / (float)n);
  __m512 sums[MOST_ROWS], squares[MOST_ROWS];
  float about[MOST_ROWS];
  for (Size r = rows; r < MOST_ROWS; r++) sums[r] = squares[r] = _mm512_setzero_ps();
  for (Size r = 0; r < rows; r++) {
    sums[r] = _mm512_maskz_loadu_ps(first, x + r * n);
    for (Size i = 16; i < pilot; i += 16) sums[r] = _mm512_add_ps(sums[r], _mm512_loadu_ps(x + r * n + i));
  }
  const __m512 abouts = _mm512_mul_ps(sixteen_sums(sums), _mm512_set1_ps(1.0f / (float)pilot));
  _mm512_storeu_ps(about, abouts);
  for (Size r = 0; r < rows; r++) {
    const float *row = x + r * n, *fetched = soon + r * n;
    const __m512 centre = _mm512_set1_ps(about[r]);
    __m512 a = _mm512_maskz_sub_ps(rest, _mm512_maskz_loadu_ps(rest, row + whole), centre); /* deviations */
    __m512 b = _mm512_mul_ps(a, a), c = _mm512_setzero_ps(), d = c;                         /* and their squares */
    Size i = 0;
    for (; i + 32 <= whole; i += 32) {
      __builtin_prefetch(fetched + i, 1);
      __builtin_prefetch(fetched + i + 16, 1);
      const __m512 one = _mm512_sub_ps(_mm512_loadu_ps(row + i), centre);
      const __m512 other = _mm512_sub_ps(_mm512_loadu_ps(row + i + 16), centre);
      a = _mm512_add_ps(a, one);
      b = _mm512_fmadd_ps(one, one, b);
      c = _mm512_add_ps(c, other);
      d = _mm512_fmadd_ps(other, other, d);
    }
    __builtin_prefetch(fetched + i, 1);
    if (i < whole) {
      __builtin_prefetch(fetched + i + 16, 1);
      const __m512 one = _mm512_sub_ps(_mm512_loadu_ps(row + i), centre);
      c = _mm512_add_ps(c, one);
      d = _mm512_fmadd_ps(one, one, d);
    }
    sums[r] = _mm512_add_ps(a, c);
    squares[r] = _mm512_add_ps(b, d);
  }
  const __m512 residual = _mm512_mul_ps(sixteen_sums(sums), inverse);
  const __m512 spread = _mm512_fnmadd_ps(residual, residual, _mm512_mul_ps(sixteen_sums(squares), inverse));
  _mm512_storeu_ps(difference, _mm512_add_ps(_mm512_sub_ps(abouts, _mm512_maskz_loadu_ps(used, shift)), residual));
  _mm512_storeu_ps(var, spread);
}

/* The same of rows of any length. */
MASKED_INLINE void moments_of_short_rows(const float *x, Size rows, Size n, const float *shift, float *difference,
                                         float *var, const float *soon) {
  if (n <= ROW_BLOCK) {
    moments_of_pieces(x, rows, n, shift, difference, var, soon);
    return;
  }
  for (Size r = 0; r < rows; r++) {
    Moments all = {0.0, 0.0, 0.0};
    float shifts[MOST_ROWS], differences[MOST_ROWS], vars[MOST_ROWS];
    for (Size p = 0; p < MOST_ROWS; p++) shifts[p] = shift[r];
    for (Size i = 0, size, pieces; i < n; i += pieces * size) {
      size = smaller(ROW_BLOCK, n - i);
      pieces = smaller((n - i) / size, MOST_ROWS);
      moments_of_pieces(x + r * n + i, pieces, size, shifts, differences, vars, soon + r * n + i);
      for (Size p = 0; p < pieces; p++)
        merge(&all, (Moments){differences[p], (double)vars[p] * (double)size, (double)size});
    }
    difference[r] = (float)all.mean;
    var[r] = (float)(all.squares / all.count);
  }
}

/* The last vector overlaps the one before. */
MASKED_INLINE void short_row_affine(const float *restrict x, float *restrict y, Size n, float centre, float scale,
                                    float bias, Activation activation, float slope) {
  if (n < 16) {
    const __mmask16 rest = (__mmask16)((1u << n) - 1);
    float last[16];
    _mm512_storeu_ps(last, _mm512_maskz_loadu_ps(rest, x));
#pragma omp simd
    for (Size k = 0; k < 16; k++) last[k] = activate(activation, slope, (last[k] - centre) * scale + bias);
    _mm512_mask_storeu_ps(y, rest, _mm512_loadu_ps(last));
    return;
  }
#define SIXTEEN(at)                     \
  _Pragma("omp simd") for (Size k = 0; k < 16; k++) \
      y[(at) + k] = activate(activation, slope, (x[(at) + k] - centre) * scale + bias)
  for (Size i = 0; i + 16 <= n; i += 16) SIXTEEN(i);
  if (n & 15) SIXTEEN(n - 16);
#undef SIXTEEN
}

#else
#define rows_are_masked() 0
#define MASKED
#define MASKED_INLINE static inline
#define moments_of_short_rows moments_of_few_rows
#define short_row_affine row_affine
#endif

#endif
