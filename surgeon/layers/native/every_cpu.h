/* What all kernels use: code for every kind of x86 processor in one library. */
#ifndef SURGEON_EVERY_CPU_H
#define SURGEON_EVERY_CPU_H

#include <stddef.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FOR_EVERY_CPU __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define FOR_EVERY_CPU
#endif

typedef ptrdiff_t Size;

#endif
