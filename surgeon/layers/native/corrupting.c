/* The loops of image corruptions, each on one image (height, width, items), on the CPU.
 *
 * They are called from threads, one image each, and start none of their own.
 */
#include <stdint.h>
#include <string.h>

#include "every_cpu.h"

/* The image with a margin: `rows` and `columns` say from where each row and column is taken. */
static void pad(const float *x, Size width, Size items, const int32_t *rows, Size high, const int32_t *columns,
                Size wide, Size margin, float *y) {
  for (Size h = 0; h < high; h++) {
    const float *from = x + rows[h] * width * items;
    float *to = y + h * wide * items;
    for (Size w = 0; w < margin; w++)
      for (Size c = 0; c < items; c++) to[w * items + c] = from[columns[w] * items + c];
    memcpy(to + margin * items, from, (size_t)(width * items) * sizeof(float));
    for (Size w = margin + width; w < wide; w++)
      for (Size c = 0; c < items; c++) to[w * items + c] = from[columns[w] * items + c];
  }
}

FOR_EVERY_CPU
static void add_four(const float *a, const float *b, const float *c, const float *d, const float *weights, float *y,
                     Size n) {
  const float p = weights[0], q = weights[1], r = weights[2], s = weights[3];
#pragma omp simd
  for (Size i = 0; i < n; i++) y[i] += p * a[i] + q * b[i] + r * c[i] + s * d[i];
}

FOR_EVERY_CPU
static void add_one(const float *a, float weight, float *y, Size n) {
#pragma omp simd
  for (Size i = 0; i < n; i++) y[i] += weight * a[i];
}

/* y = sum of weights[t] * x shifted by offsets[t] (down, right), none longer than `margin`. padded: scratch. */
void corrupt_filter(const float *x, Size height, Size width, Size items, const int32_t *rows, const int32_t *columns,
                    Size margin, const int32_t *offsets, const float *weights, Size taps, float *padded, float *y) {
  const Size wide = width + 2 * margin, row = width * items;
  pad(x, width, items, rows, height + 2 * margin, columns, wide, margin, padded);
  memset(y, 0, (size_t)(height * row) * sizeof(float));
  for (Size h = 0; h < height; h++) {
    const float *at = padded + ((h + margin) * wide + margin) * items;
    Size t = 0;
#define SHIFTED(t) (at + (offsets[2 * (t)] * wide + offsets[2 * (t) + 1]) * items)
    for (; t + 4 <= taps; t += 4)
      add_four(SHIFTED(t), SHIFTED(t + 1), SHIFTED(t + 2), SHIFTED(t + 3), weights + t, y + h * row, row);
    for (; t < taps; t++) add_one(SHIFTED(t), weights[t], y + h * row, row);
#undef SHIFTED
  }
}

/* Each pixel is replaced by one nearby, one after the other from the end; draws (rounds, rows, columns, 2: right, down). */
void corrupt_shuffle(uint8_t *x, Size height, Size width, Size items, const int8_t *draws, Size delta, Size rounds) {
  for (Size i = 0; i < rounds; i++)
    for (Size h = height - delta; h > delta; h--)
      for (Size w = width - delta; w > delta; w--, draws += 2)
        memmove(x + (h * width + w) * items, x + ((h + draws[1]) * width + w + draws[0]) * items, (size_t)items);
}

FOR_EVERY_CPU
static void between(const float *a, const float *b, float weight, float *y, Size n) {
#pragma omp simd
  for (Size i = 0; i < n; i++) y[i] = a[i] + weight * (b[i] - a[i]);
}

static void add_between_columns(const float *x, const int32_t *first, const float *weight, Size width, Size items,
                                float *y) {
  if (items == 3) { /* the usual number of channels, without an inner loop */
    for (Size w = 0; w < width; w++, y += 3) {
      const float *a = x + 3 * first[w], f = weight[w];
      y[0] += a[0] + f * (a[3] - a[0]);
      y[1] += a[1] + f * (a[4] - a[1]);
      y[2] += a[2] + f * (a[5] - a[2]);
    }
    return;
  }
  for (Size w = 0; w < width; w++, y += items)
    for (Size c = 0; c < items; c++) {
      const float *a = x + first[w] * items + c;
      y[c] += a[0] + weight[w] * (a[items] - a[0]);
    }
}

/* y = sum over enlargements of x; pixel (h, w) of one is interpolated behind rows[h] and columns[w], by how far. */
void corrupt_zoom(const float *x, Size height, Size width, Size items, const int32_t *rows, const float *below,
                  const int32_t *columns, const float *right, Size zooms, float *scratch, float *y) {
  const Size row = width * items;
  memset(y, 0, (size_t)(height * row) * sizeof(float));
  for (Size h = 0; h < height; h++)
    for (Size z = 0; z < zooms; z++) {
      const float *a = x + rows[z * height + h] * row;
      between(a, a + row, below[z * height + h], scratch, row);
      add_between_columns(scratch, columns + z * width, right + z * width, width, items, y + h * row);
    }
}

/* A place from -0.5 to size - 0.5 as the first of two neighbours and the weight of the second. */
static inline Size neighbour(float place, Size size, float *weight, Size *second) {
  const float last = (float)(size - 1), within = place < 0 ? 0 : place > last ? last : place;
  const Size first = (Size)within;
  *weight = within - (float)first;
  *second = first + 1 < size ? first + 1 : first;
  return first;
}

/* Pixel i of y is interpolated at rows[i] and columns[i] of x, which lie within it. */
void corrupt_sample(const float *x, Size height, Size width, Size items, const float *rows, const float *columns,
                    float *y) {
  for (Size i = 0; i < height * width; i++, y += items) {
    float below, right;
    Size lower, farther;
    const Size upper = neighbour(rows[i], height, &below, &lower), near = neighbour(columns[i], width, &right, &farther);
    const float *a = x + (upper * width + near) * items, *b = x + (upper * width + farther) * items;
    const float *c = x + (lower * width + near) * items, *d = x + (lower * width + farther) * items;
    for (Size k = 0; k < items; k++) {
      const float top = a[k] + right * (b[k] - a[k]), bottom = c[k] + right * (d[k] - c[k]);
      y[k] = top + below * (bottom - top);
    }
  }
}

/* Bytes drawn from a distribution for each value of a byte: cumulative (256, counts), and guide (256, 256), below which
 * no count needs to be looked for; byte_of (counts). u is uniform from 0 to 1. */
void corrupt_draw(const uint8_t *x, const float *u, Size n, const float *cumulative, Size counts, const int32_t *guide,
                  const uint8_t *byte_of, uint8_t *y) {
  for (Size i = 0; i < n; i++) {
    const float *row = cumulative + x[i] * counts;
    Size k = guide[x[i] * 256 + (Size)(u[i] * 256.0f)];
    while (k < counts - 1 && u[i] >= row[k]) k++;
    y[i] = byte_of[k];
  }
}

/* Gaussian numbers by the inverse of their distribution: quantiles of 4096 parts, and 4096 of each outermost one. */
void corrupt_normals(const uint32_t *words, Size n, const float *quantiles, const float *tail, float scale, float *y) {
  for (Size i = 0; i < n; i++) {
    const uint32_t word = words[i], part = word >> 20;
    float value;
    if (part == 0 || part == 4095) {
      const uint32_t inner = (part ? ~word : word) & 0xfffff, piece = inner >> 8;
      const float low = tail[piece] + (float)(inner & 0xff) * (1.0f / 256) * (tail[piece + 1] - tail[piece]);
      value = part ? -low : low;
    } else {
      value = quantiles[part] + (float)(word & 0xfffff) * (1.0f / 1048576) * (quantiles[part + 1] - quantiles[part]);
    }
    y[i] = scale * value;
  }
}
