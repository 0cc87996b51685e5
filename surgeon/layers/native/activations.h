/* Activations that follow a normalisation, in the form that compilers vectorise: no calls, no choices within choices.
 *
 * NaN stays NaN, and large numbers and infinities give what torch's formulas give in float64.
 */
#ifndef SURGEON_ACTIVATIONS_H
#define SURGEON_ACTIVATIONS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "every_cpu.h"

/* The numbers stand in surgeon/layers/activations.py too. */
typedef enum { NONE, RELU, RELU6, SILU, HARDSWISH, LEAKY_RELU, GELU, GELU_TANH } Activation;

/* e^x for x up to 0, to two units in the last place, and 0 below e^-87. With e^x = 2^n e^r: the sum with 1.5 * 2^23 rounds
 * to n and holds it in its lowest bits; e^r is that of the Cephes library. */
INLINE float exponential(float x) {
  const float rounded = x * 1.44269504f + 12582912.0f, n = rounded - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float power = 1.9875691500e-4f;
  power = power * r + 1.3981999507e-3f;
  power = power * r + 8.3334519073e-3f;
  power = power * r + 4.1665795894e-2f;
  power = power * r + 1.6666665459e-1f;
  power = power * r + 5.0000001201e-1f;
  power = power * (r * r) + r + 1.0f;
  uint32_t bits, exponent;
  memcpy(&bits, &power, sizeof bits);
  memcpy(&exponent, &rounded, sizeof exponent);
  bits += exponent << 23;
  memcpy(&power, &bits, sizeof power);
  return x < -87.0f ? 0.0f : power;
}

/* x times the logistic function of `logit`, which has the sign of x. */
INLINE float gated(float x, float logit) {
  const float small = exponential(-fabsf(logit));
  return (x < 0.0f ? x * small : x) / (1.0f + small);
}

/* Half of erfc(|x| / sqrt 2), to 1.2e-7 of itself: Numerical Recipes' Chebyshev fit. */
INLINE float normal_tail(float x) {
  const float z = fabsf(x) * 0.70710678f, t = 1.0f / (1.0f + 0.5f * z);
  float fit = 0.17087277f;
  fit = fit * t - 0.82215223f;
  fit = fit * t + 1.48851587f;
  fit = fit * t - 1.13520398f;
  fit = fit * t + 0.27886807f;
  fit = fit * t - 0.18628806f;
  fit = fit * t + 0.09678418f;
  fit = fit * t + 0.37409196f;
  fit = fit * t + 1.00002368f;
  fit = fit * t - 1.26551223f;
  return 0.5f * t * exponential(fit - z * z);
}

/* 0 for negative numbers; by its bits, since a choice that hangs on a choice becomes slow code. */
INLINE float positive_part(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits &= (uint32_t)(x < 0.0f) - 1u;
  memcpy(&x, &bits, sizeof x);
  return x;
}

INLINE float activate(Activation activation, float slope, float x) {
  switch (activation) {
    case RELU: return positive_part(x);
    case RELU6: return positive_part(x > 6.0f ? 6.0f : x);
    case SILU: return gated(x, x);
    case HARDSWISH: {
      const float size = fabsf(x), within = copysignf(size > 3.0f ? 3.0f : size, x);
      return x * ((within + 3.0f) * (1.0f / 6.0f));
    }
    case LEAKY_RELU: return x > 0.0f ? x : x * slope;
    case GELU: {
      const float tail = normal_tail(x);
      return x * (x > 0.0f ? 1.0f - tail : tail);
    }
    case GELU_TANH: return gated(x, 1.5957691216f * (x + 0.044715f * x * x * x));
    default: return x;
  }
}

/* A statement for each activation, in which `activation` is a constant. */
#define WITH_ACTIVATION(value, ...)          \
  {                                          \
    const Activation activation = value;     \
    __VA_ARGS__;                             \
    break;                                   \
  }
#define FOR_ACTIVATION(chosen, ...)                          \
  switch (chosen) {                                          \
    case RELU: WITH_ACTIVATION(RELU, __VA_ARGS__)              \
    case RELU6: WITH_ACTIVATION(RELU6, __VA_ARGS__)            \
    case SILU: WITH_ACTIVATION(SILU, __VA_ARGS__)              \
    case HARDSWISH: WITH_ACTIVATION(HARDSWISH, __VA_ARGS__)    \
    case LEAKY_RELU: WITH_ACTIVATION(LEAKY_RELU, __VA_ARGS__)  \
    case GELU: WITH_ACTIVATION(GELU, __VA_ARGS__)              \
    case GELU_TANH: WITH_ACTIVATION(GELU_TANH, __VA_ARGS__)    \
    default: WITH_ACTIVATION(NONE, __VA_ARGS__)                \
  }

#endif
