/* What all kernels use: code for every kind of x86 processor in one library. */
#ifndef SURGEON_EVERY_CPU_H
#define SURGEON_EVERY_CPU_H

#include <omp.h>
#include <stddef.h>

/* Sanitizers run before the loader has chosen among clones. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__) && \
    !defined(__SANITIZE_ADDRESS__)
#define FOR_EVERY_CPU __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define FOR_EVERY_CPU
#endif

/* Parts of a function that is compiled for every CPU have to become part of each of its versions. */
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

typedef ptrdiff_t Size;

INLINE Size smaller(Size a, Size b) { return a < b ? a : b; }

/* A thread's share of all items, from the last to the first: what the operation before wrote last is still in a cache, and
 * what is written last is what the next one reads first. */
#define FOR_OWN_SHARE(item, items)                                                                             \
  for (Size item = (items) * (omp_get_thread_num() + 1) / omp_get_num_threads(),                               \
            first_item = (items)*omp_get_thread_num() / omp_get_num_threads();                                 \
       item-- > first_item;)

/* More threads than there is work for cost more than they save; torch's own operations have the same limit. */
INLINE int useful_threads(Size floats, int threads) { return floats < 32768 ? 1 : threads; }

#endif
