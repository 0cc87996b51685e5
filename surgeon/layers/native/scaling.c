/* The passes over features that a scale and a shift by their own moments take, forward and backward: float32, on the CPU.
 *
 * Features are (outer, reduced, inner), and moments and sums go over the middle: with one of `inner` these are rows, with
 * more columns. OpenMP's symbols are left open, as in example_weighted.c.
 */
#include <omp.h>

#include "gradients.h"

typedef struct {
  const float *x, *grad;
  float *out;
  Size outer, reduced, inner;
  float *first, *second; /* (outer, inner): results of `moments` and `products` */
  const float *mean, *scale, *slope, *offset; /* (outer, inner) too, of `gradient` */
} Scaling;

enum { MOST_COLUMNS = 512 };

typedef enum { MOMENTS, PRODUCTS, GRADIENT } Pass;

FOR_EVERY_CPU
static void pass_over_row(const Scaling *job, Pass pass, Size row) {
  const Size n = job->reduced;
  const float *x = job->x + row * n;
  if (pass == MOMENTS) {
    const Moments own = moments_of_rows(x, 1, 0, n, *x);
    job->first[row] = (float)(*x + own.mean);
    job->second[row] = (float)((own.squares < 0.0 ? 0.0 : own.squares) / (own.count - 1)); /* NaN stays */
  } else if (pass == PRODUCTS) {
    double sum = 0.0, product = 0.0;
    for (Size i = 0; i < n; i += ROW_BLOCK)
      add_products(job->grad + row * n + i, x + i, smaller(ROW_BLOCK, n - i), 0.0f, &sum, &product);
    job->first[row] = (float)product;
    job->second[row] = (float)sum;
  } else {
    input_gradient(job->grad + row * n, x, job->out + row * n, n, job->mean[row], job->scale[row], job->slope[row],
                   job->offset[row]);
  }
}

FOR_EVERY_CPU
static void pass_over_columns(const Scaling *job, Pass pass, Size outer, Size from, Size columns) {
  const Size rows = job->reduced, stride = job->inner, start = outer * rows * stride + from, at = outer * stride + from;
  const float *x = job->x + start, *grad = job->grad + start;
  float memory[FLOATS_PER_CHANNEL * MOST_COLUMNS];
  if (pass == MOMENTS) {
    const Columns own = columns_at(memory, columns, 0);
    const float unbiased = (float)((double)rows / (double)(rows - 1));
    moments_of_columns(x, rows, stride, columns, own);
#pragma omp simd
    for (Size c = 0; c < columns; c++) {
      job->first[at + c] = own.about[c] + own.sum[c];
      job->second[at + c] = own.squares[c] < 0.0f ? 0.0f : own.squares[c] * unbiased;
    }
  } else if (pass == PRODUCTS) {
    float *sum = memory, *product = memory + columns, *zero = memory + 2 * columns;
    for (Size c = 0; c < columns; c++) zero[c] = job->first[at + c] = job->second[at + c] = 0.0f;
    for (Size r = 0; r < rows; r += BLOCK_ROWS) {
      products_of_block(grad + r * stride, x + r * stride, smaller(BLOCK_ROWS, rows - r), stride, columns, zero, sum,
                        product);
#pragma omp simd
      for (Size c = 0; c < columns; c++) {
        job->first[at + c] += product[c];
        job->second[at + c] += sum[c];
      }
    }
  } else {
    column_gradient(grad, x, job->out + start, rows, stride, columns, job->mean + at, job->scale + at, job->slope + at,
                    job->offset + at);
  }
}

static void pass_over(const Scaling *job, Pass pass, int threads) {
  const Size parts = (job->inner + MOST_COLUMNS - 1) / MOST_COLUMNS, items = job->outer * parts;
  threads = useful_threads(job->outer * job->reduced * job->inner, threads);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (Size item = 0; item < items; item++) {
    const Size from = item % parts * MOST_COLUMNS;
    if (job->inner == 1)
      pass_over_row(job, pass, item);
    else
      pass_over_columns(job, pass, item / parts, from, smaller(MOST_COLUMNS, job->inner - from));
  }
}

/* Mean and unbiased variance. */
void scaling_moments(const Scaling *job, int threads) { pass_over(job, MOMENTS, threads); }

/* Sums of the gradient times x, and of the gradient. */
void scaling_products(const Scaling *job, int threads) { pass_over(job, PRODUCTS, threads); }

/* grad * scale - (x - mean) * slope - offset. */
void scaling_gradient(const Scaling *job, int threads) { pass_over(job, GRADIENT, threads); }
