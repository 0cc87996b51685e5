"""Activations that follow a normalisation, by the numbers of surgeon/layers/activations.py. NaN stays NaN."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activated(y, slope, activation: tl.constexpr):
    """In float32."""
    if activation == 1:  # ReLU
        y = tl.where(y < 0, 0.0, y)
    elif activation == 2:  # ReLU6
        y = tl.where(y < 0, 0.0, tl.where(y > 6, 6.0, y))
    elif activation == 3:  # SiLU
        y = y / (1 + tl.exp(-y))
    elif activation == 4:  # Hardswish
        within = tl.where(y < -3, -3.0, tl.where(y > 3, 3.0, y))
        y = y * ((within + 3) * (1 / 6))
    elif activation == 5:  # LeakyReLU
        y = tl.where(y > 0, y, y * slope)
    elif activation == 6:  # GELU
        y = y * (0.5 + 0.5 * tl.erf(y * 0.7071067811865476))
    elif activation == 7:  # GELU by tanh
        y = y / (1 + tl.exp(-1.5957691216057308 * (y + 0.044715 * y * y * y)))
    return y
