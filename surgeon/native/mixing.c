/* Each image mixed with its partner, pixel by pixel with weights, for float32 batches on the CPU.
 *
 * Rows that come from one image alone are copied, and only what is used of an image is read: most
 * mixes are bound by memory. OpenMP's symbols are left open, as in example_weighted.c.
 */
#include <stdint.h>
#include <string.h>

#include "every_cpu.h"
#include "sums.h"

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

FOR_EVERY_CPU
static void combine(const float *own, const float *other, float first, float second, float offset, float *y, Size n) {
#pragma omp simd
  for (Size i = 0; i < n; i++) y[i] = first * own[i] + second * other[i] - offset;
}

/* All floats of an example alike: `first` times its own plus `second` times the partner's less `offset`, one each. */
void mix_evenly(const float *x, float *y, const int64_t *partner, Size examples, Size floats, const float *first,
                const float *second, const float *offset, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++)
    combine(x + n * floats, x + (Size)partner[n] * floats, first[n], second[n], offset[n], y + n * floats, floats);
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

/* What comes from the partner begins at `start` (examples, 2), both row and column, and ends before `stop`; there it
 * begins at `source`. `share` is what remains of each image. */
void mix_boxes(const float *x, float *y, const int64_t *partner, Size examples, Size planes, Size height, Size width,
               Size items, const float *start, const float *stop, const float *source, float *share, int threads) {
  const Size row = width * items, plane = height * row;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    const Size top = (Size)start[2 * n], left = (Size)start[2 * n + 1];
    const Size high = (Size)stop[2 * n] - top, wide = (Size)stop[2 * n + 1] - left;
    const Size from = (Size)source[2 * n] * row + (Size)source[2 * n + 1] * items;
    share[n] = 1.0f - (float)(high * wide) / (float)(height * width);
    for (Size p = 0; p < planes; p++) {
      const float *other = x + ((Size)partner[n] * planes + p) * plane + from;
      float *out = y + (n * planes + p) * plane;
      copy(x + (n * planes + p) * plane, out, plane);
      out += top * row + left * items;
      if (wide == width) {
        copy(other, out, high * row);
        continue;
      }
      for (Size h = 0; h < high; h++, out += row, other += row) copy(other, out, wide * items);
    }
  }
}

FOR_EVERY_CPU
static float add_and_clip(float *noise, float weight, Size n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; i++) {
    const float noisy = noise[i] + weight, above = noisy > 0.0f ? noisy : 0.0f;
    noise[i] = above < 1.0f ? above : 1.0f;
    sum += noise[i];
  }
  return sum;
}

/* Each pixel has the weight of its example and noise (examples, height, width), which becomes the weight in the end,
 * from 0 to 1. `share` is the mean of these. spread: (examples, width, items). */
void mix_noisily(const float *x, float *y, const int64_t *partner, Size examples, Size planes, Size height, Size width,
                 Size items, const float *weights, float *noise, float *share, float *spread, int threads) {
  const Size row = width * items, plane = height * row;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    share[n] = add_and_clip(noise + n * height * width, weights[n], height * width) / (float)(height * width);
    for (Size h = 0; h < height; h++) {
      const float *weight = noise + (n * height + h) * width;
      if (items > 1) {
        spread_out(weight, width, items, spread + n * row);
        weight = spread + n * row;
      }
      for (Size p = 0; p < planes; p++) {
        const Size own = (n * planes + p) * plane + h * row, other = ((Size)partner[n] * planes + p) * plane + h * row;
        weigh(x + own, x + other, weight, y + own, row);
      }
    }
  }
}

/* Random bits by their number: splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
FOR_EVERY_CPU
static void draw(uint64_t seed, uint64_t first, uint64_t *words, Size n) {
#pragma omp simd
  for (Size i = 0; i < n; i++) {
    uint64_t z = seed + (first + (uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    words[i] = z ^ (z >> 31);
  }
}

void random_words(const uint64_t *seed, uint64_t *words, Size count, int threads) {
  const Size part = 4096;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size i = 0; i < count; i += part) draw(*seed, (uint64_t)i, words + i, count - i < part ? count - i : part);
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
static float squares_of(const float *x, Size n, float mean) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

void mean_and_variance(const float *x, Size examples, Size floats, float *mean, float *variance, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    mean[n] = sum_of(x + n * floats, floats, 0.0f) / (float)floats;
    variance[n] = squares_of(x + n * floats, floats, mean[n]) / (float)floats;
  }
}

FOR_EVERY_CPU
static void add_plane(const float *x, float mean, Size height, Size row, float *sums_of_rows, float *squares_of_rows,
                      float *sums_of_columns, float *squares_of_columns) {
  for (Size h = 0; h < height; h++, x += row) {
    float sum = 0.0f, square = 0.0f;
#pragma omp simd reduction(+ : sum, square)
    for (Size i = 0; i < row; i++) {
      const float value = x[i] - mean, power = value * value;
      sum += value;
      square += power;
      sums_of_columns[i] += value;
      squares_of_columns[i] += power;
    }
    sums_of_rows[h] += sum;
    squares_of_rows[h] += square;
  }
}

/* The mean of each image and, around it, sums and sums of squares over each row (examples, 2, height) and each column
 * (examples, 2, width, items); both start at 0. */
void moments(const float *x, Size examples, Size planes, Size height, Size width, Size items, float *mean, float *rows,
             float *columns, int threads) {
  const Size row = width * items, plane = height * row;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    const float *image = x + n * planes * plane;
    mean[n] = sum_of(image, planes * plane, 0.0f) / (float)(planes * plane);
    for (Size p = 0; p < planes; p++)
      add_plane(image + p * plane, mean[n], height, row, rows + 2 * n * height, rows + (2 * n + 1) * height,
                columns + 2 * n * row, columns + (2 * n + 1) * row);
  }
}

FOR_EVERY_CPU
static void weigh_waves(const float *own, const float *other, const float *weight, float own_mean, float other_mean,
                        float scale, float *y, Size n) {
#pragma omp simd
  for (Size i = 0; i < n; i++)
    y[i] = scale * (weight[i] * (own[i] - own_mean) + (1.0f - weight[i]) * (other[i] - other_mean));
}

/* As mix_lines, of images around their means (examples), and divided by `norm` (examples). */
void mix_waves(const float *x, float *y, const int64_t *partner, Size examples, Size planes, Size height, Size width,
               Size items, const float *weights, const uint8_t *rows, const float *mean, const float *norm,
               float *spread, int threads) {
  const Size row = width * items, plane = height * row;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    const float *lines = weights + 2 * n * width;
    if (items > 1) {
      spread_out(lines, 2 * width, items, spread + 2 * n * row);
      lines = spread + 2 * n * row;
    }
    for (Size p = 0; p < planes; p++) {
      const Size own = (n * planes + p) * plane, other = ((Size)partner[n] * planes + p) * plane;
      for (Size h = 0; h < height; h++)
        weigh_waves(x + own + h * row, x + other + h * row, lines + rows[n * height + h] * row, mean[n],
                    mean[partner[n]], 1.0f / norm[n], y + own + h * row, row);
    }
  }
}
