/* Each image mixed with its partner, pixel by pixel with weights, for float32 batches on the CPU.
 *
 * Rows that come from one image alone are copied, and only what is used of an image is read: most
 * mixes are bound by memory. OpenMP's symbols are left open, as in example_weighted.c.
 */
#include <math.h>
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

/* Start and stop (examples, 2) of boxes with these lengths, whose middles were drawn from 0 to 1 of each side. */
void place_boxes(const float *middles, const float *lengths, Size examples, Size height, Size width, float *start,
                 float *stop) {
  for (Size i = 0; i < 2 * examples; i++) {
    const float size = (float)(i % 2 ? width : height), begin = floorf(middles[i] * size - floorf(lengths[i] / 2));
    const float end = begin + lengths[i];
    start[i] = begin > 0 ? begin : 0;
    stop[i] = end < size ? end : size;
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

/* Of a concatenation of an image's first lines (rows or columns) and the partner's others, by the sums and the sums of
 * squares of both around their means, (lines) each. */
static float deviation(const float *own, const float *other, Size lines, Size first, Size floats) {
  float sum = 0.0f, square = 0.0f;
  for (Size i = 0; i < lines; i++) {
    const float *from = i < first ? own : other;
    sum += from[i];
    square += from[lines + i];
  }
  sum /= (float)floats;
  square = square / (float)floats - sum * sum;
  return square > 0 ? sqrtf(square) : 0.0f;
}

FOR_EVERY_CPU
static void weigh_waves(const float *own, const float *other, float weight, float own_mean, float other_mean,
                        float scale, float *y, Size n) {
  const float first = scale * weight, second = scale * (1.0f - weight);
#pragma omp simd
  for (Size i = 0; i < n; i++) y[i] = first * (own[i] - own_mean) + second * (other[i] - other_mean);
}

/* The weight of the first of two waves with these deviations, and what the mixture is multiplied by. */
typedef struct {
  float weight, scale;
} Balance;

static Balance balance(float lam, float first, float second) {
  const float weight = lam * second / ((1.0f - lam) * first + lam * second);
  return (Balance){weight, 1.0f / sqrtf(weight * weight + (1.0f - weight) * (1.0f - weight))};
}

FOR_EVERY_CPU
static float sum_of(const float *x, Size n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; i++) sum += x[i];
  return sum;
}

/* Of images around their means: the upper `above` (examples) rows above the partner's others, and the left `beside`
 * columns beside the partner's others, in a mixture with weights by `lam` and by both deviations. To work with:
 * mean (examples), rows (examples, 2, height) and columns (examples, 2, width, items); the last two start at 0. */
void mix_concats(const float *x, float *y, const int64_t *partner, Size examples, Size planes, Size height, Size width,
                 Size items, const float *above, const float *beside, const float *lam, float small, float *mean,
                 float *rows, float *columns, int threads) {
  const Size row = width * items, plane = height * row, floats = planes * plane;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    mean[n] = sum_of(x + n * floats, floats) / (float)floats;
    for (Size p = 0; p < planes; p++)
      add_plane(x + n * floats + p * plane, mean[n], height, row, rows + 2 * n * height, rows + (2 * n + 1) * height,
                columns + 2 * n * row, columns + (2 * n + 1) * row);
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    const Size other = (Size)partner[n], top = (Size)above[n], left = (Size)beside[n] * items;
    const float vertical = deviation(rows + 2 * n * height, rows + 2 * other * height, height, top, floats) + small;
    const float horizontal = deviation(columns + 2 * n * row, columns + 2 * other * row, row, left, floats) + small;
    const Balance b = balance(lam[n], vertical, horizontal);
    for (Size h = 0; h < planes * height; h++) {
      const int upper = h % height < top;
      const float *own = x + n * floats + h * row, *theirs = x + other * floats + h * row;
      float *out = y + n * floats + h * row;
      weigh_waves(own, theirs, upper ? 1.0f : 1.0f - b.weight, mean[n], mean[other], b.scale, out, left);
      weigh_waves(own + left, theirs + left, upper ? b.weight : 0.0f, mean[n], mean[other], b.scale, out + left,
                  row - left);
    }
  }
}

/* Both images around their means, with weights by `lam` (examples) and by their deviations. To work with: mean and
 * deviation (examples). */
void mix_waves(const float *x, float *y, const int64_t *partner, Size examples, Size floats, const float *lam,
               float small, float *mean, float *deviation, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    mean[n] = sum_of(x + n * floats, floats) / (float)floats;
    deviation[n] = sqrtf(squares_of(x + n * floats, floats, mean[n]) / (float)floats) + small;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (Size n = 0; n < examples; n++) {
    const Size other = (Size)partner[n];
    const Balance b = balance(lam[n], deviation[n], deviation[other]);
    weigh_waves(x + n * floats, x + other * floats, b.weight, mean[n], mean[other], b.scale, y + n * floats, floats);
  }
}
