/* Each image mixed with its partner, pixel by pixel with weights, for float32 batches on the CPU.
 *
 * Rows that come from one image alone are copied, and only what is used of an image is read: most
 * mixes are bound by memory. OpenMP's symbols are left open, as in example_weighted.c.
 */
#include <stdint.h>
#include <string.h>

#include "every_cpu.h"

FOR_EVERY_CPU
static void weigh(const float *own, const float *other, const float *weight, float *y, Size n) {
#pragma omp simd
  for (Size i = 0; i < n; i++) y[i] = weight[i] * own[i] + (1.0f - weight[i]) * other[i];
}

static void copy(const float *x, float *y, Size n) {
  if (n > 0) memcpy(y, x, (size_t)n * sizeof(float));
}

/* A weight for every float, from one for every pixel. */
static void spread_out(const float *weight, Size width, Size items, float *spread) {
  if (items == 3) { /* the usual number of channels, without an inner loop */
    for (Size i = 0; i < width; i++) spread[3 * i] = spread[3 * i + 1] = spread[3 * i + 2] = weight[i];
    return;
  }
  for (Size i = 0; i < width; i++)
    for (Size c = 0; c < items; c++) spread[items * i + c] = weight[i];
}

/* A kind of row: its own floats up to `first` and from `last`, and between them a mixture, or the partner's alone. */
typedef struct {
  const float *weight;
  Size first, last;
  int replaced;
} Line;

static Line line_of(const float *weight, Size width, Size items, float *spread) {
  Size first = 0, last = width, i;
  while (first < last && weight[first] == 1.0f) first++;
  while (last > first && weight[last - 1] == 1.0f) last--;
  for (i = first; i < last && weight[i] == 0.0f;) i++;
  if (items > 1 && i < last) spread_out(weight, width, items, spread);
  return (Line){items > 1 ? spread : weight, first * items, last * items, i == last};
}

/* Rows of one kind, one after the other. */
static void mix_rows(const float *own, const float *other, Line line, float *y, Size row, Size count) {
  if (line.first == line.last) {
    copy(own, y, row * count);
  } else if (line.replaced && line.last - line.first == row) {
    copy(other, y, row * count);
  } else {
    for (; count > 0; count--, own += row, other += row, y += row) {
      copy(own, y, line.first);
      copy(own + line.last, y + line.last, row - line.last);
      if (line.replaced)
        copy(other + line.first, y + line.first, line.last - line.first);
      else
        weigh(own + line.first, other + line.first, line.weight + line.first, y + line.first, line.last - line.first);
    }
  }
}

/* x and y: (examples, planes, height, width, items). weights: (examples, 2, width) are two kinds of row,
 * and `rows` (examples, height) says which is where. spread: (examples, 2, width, items). */
void mix_lines(const float *x, float *y, const int64_t *partner, Size examples, Size planes, Size height, Size width,
               Size items, const float *weights, const uint8_t *rows, float *spread, int threads) {
  const Size row = width * items, plane = height * row;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    const Line lines[2] = {line_of(weights + 2 * n * width, width, items, spread + 2 * n * row),
                           line_of(weights + (2 * n + 1) * width, width, items, spread + (2 * n + 1) * row)};
    for (Size p = 0; p < planes; p++) {
      const float *own = x + (n * planes + p) * plane, *other = x + ((Size)partner[n] * planes + p) * plane;
      float *out = y + (n * planes + p) * plane;
      for (Size start = 0, stop; start < height; start = stop) {
        const uint8_t kind = rows[n * height + start];
        for (stop = start + 1; stop < height && rows[n * height + stop] == kind;) stop++;
        mix_rows(own + start * row, other + start * row, lines[kind], out + start * row, row, stop - start);
      }
    }
  }
}

/* boxes: (examples, 6): top, left, bottom and right of what comes from the partner, and the top and left there. */
void mix_boxes(const float *x, float *y, const int64_t *partner, Size examples, Size planes, Size height, Size width,
               Size items, const int64_t *boxes, int threads) {
  const Size row = width * items, plane = height * row;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    const int64_t *box = boxes + 6 * n;
    const Size top = box[0], left = box[1] * items, wide = (box[3] - box[1]) * items;
    copy(x + n * planes * plane, y + n * planes * plane, planes * plane);
    for (Size p = 0; p < planes; p++) {
      float *out = y + (n * planes + p) * plane + top * row + left;
      const float *other = x + ((Size)partner[n] * planes + p) * plane + box[4] * row + box[5] * items;
      if (wide == row) {
        copy(other, out, (box[2] - top) * row);
        continue;
      }
      for (Size h = top; h < box[2]; h++, out += row, other += row) copy(other, out, wide);
    }
  }
}

/* The same with a weight for each pixel: (examples, height, width). spread: (examples, width, items). */
void mix_pixels(const float *x, float *y, const int64_t *partner, Size examples, Size planes, Size height, Size width,
                Size items, const float *weights, float *spread, int threads) {
  const Size row = width * items, plane = height * row;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    for (Size p = 0; p < planes; p++) {
      const Size own = (n * planes + p) * plane, other = ((Size)partner[n] * planes + p) * plane;
      for (Size h = 0; h < height; h++) {
        const float *weight = weights + (n * height + h) * width;
        if (items > 1) {
          spread_out(weight, width, items, spread + n * row);
          weight = spread + n * row;
        }
        weigh(x + own + h * row, x + other + h * row, weight, y + own + h * row, row);
      }
    }
  }
}

FOR_EVERY_CPU
static void choose(const float *own, const float *other, const uint8_t *chance, uint8_t limit, float *y, Size n) {
#pragma omp simd
  for (Size i = 0; i < n; i++) {
    const float kept = own[i], taken = other[i]; /* both are read, so that it can be vectorised */
    y[i] = chance[i] <= limit ? kept : taken;
  }
}

static void spread_bytes(const uint8_t *chance, Size width, Size items, uint8_t *spread) {
  if (items == 3) {
    for (Size i = 0; i < width; i++) spread[3 * i] = spread[3 * i + 1] = spread[3 * i + 2] = chance[i];
    return;
  }
  for (Size i = 0; i < width; i++) memset(spread + items * i, chance[i], (size_t)items);
}

FOR_EVERY_CPU
static Size chosen(const uint8_t *chance, uint8_t limit, Size n) {
  int32_t count = 0;
#pragma omp simd reduction(+ : count)
  for (Size i = 0; i < n; i++) count += chance[i] <= limit;
  return count;
}

/* Pixels are own where their chance (examples, height, width) is not above the example's limit; `count` is
 * how many are. spread: (examples, width, items). */
void mix_chances(const float *x, float *y, const int64_t *partner, Size examples, Size planes, Size height, Size width,
                 Size items, const uint8_t *chances, const uint8_t *limits, int64_t *count, uint8_t *spread,
                 int threads) {
  const Size row = width * items, plane = height * row;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    uint8_t *wide = spread + n * row;
    count[n] = 0;
    for (Size h = 0; h < height; h++) {
      const uint8_t *chance = chances + (n * height + h) * width;
      count[n] += chosen(chance, limits[n], width);
      if (items > 1) {
        spread_bytes(chance, width, items, wide);
        chance = wide;
      }
      for (Size p = 0; p < planes; p++) {
        const Size own = (n * planes + p) * plane + h * row, other = ((Size)partner[n] * planes + p) * plane + h * row;
        choose(x + own, x + other, chance, limits[n], y + own, row);
      }
    }
  }
}

FOR_EVERY_CPU
static void add_row(const float *x, Size n, float *sum, float *square, float *sums, float *squares) {
  float total = 0.0f, energy = 0.0f;
#pragma omp simd reduction(+ : total, energy)
  for (Size i = 0; i < n; i++) {
    const float value = x[i], power = value * value;
    total += value;
    energy += power;
    sums[i] += value;
    squares[i] += power;
  }
  *sum += total;
  *square += energy;
}

/* Sums and sums of squares over each row (examples, 2, height) and each column (examples, 2, width, items);
 * both start at 0. */
void row_and_column_sums(const float *x, Size examples, Size planes, Size height, Size width, Size items, float *rows,
                         float *columns, int threads) {
  const Size row = width * items;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++)
    for (Size p = 0; p < planes; p++)
      for (Size h = 0; h < height; h++)
        add_row(x + ((n * planes + p) * height + h) * row, row, rows + 2 * n * height + h,
                rows + (2 * n + 1) * height + h, columns + 2 * n * row, columns + (2 * n + 1) * row);
}
