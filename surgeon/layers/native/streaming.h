/* Results that are larger than the caches go past them, which saves reading what they overwrite. */
#ifndef SURGEON_STREAMING_H
#define SURGEON_STREAMING_H

#include <string.h>

#include "every_cpu.h"

enum { STREAMED = 1 << 21, STREAM_BLOCK = 4096 }; /* floats; 8 MiB, and 16 KiB */

/* Of so many floats, in pieces of at least `piece`: less than a few lines at a time is not worth it. */
INLINE int is_streamed(Size floats, Size piece) { return floats >= STREAMED && piece >= 128; }

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>

INLINE void stream(float *restrict to, const float *restrict from, Size n) {
  const Size ahead = smaller(n, (Size)((64 - ((size_t)to & 63)) & 63) / 4);
  memcpy(to, from, sizeof(float) * (size_t)ahead);
  Size i = ahead;
  for (; i + 16 <= n; i += 16)
    for (Size k = 0; k < 16; k += 4) _mm_stream_ps(to + i + k, _mm_loadu_ps(from + i + k));
  memcpy(to + i, from + i, sizeof(float) * (size_t)(n - i));
}

/* Before another thread may read what was streamed. */
INLINE void end_of_stream(void) { _mm_sfence(); }

#else
INLINE void stream(float *restrict to, const float *restrict from, Size n) {
  memcpy(to, from, sizeof(float) * (size_t)n);
}

INLINE void end_of_stream(void) {}
#endif

#endif
