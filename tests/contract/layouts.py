"""Inputs in every memory layout that a view can have."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.helpers import randn

EXAMPLES, CHANNELS = 7, 6

Numbers = Callable[..., Tensor]
"""Random numbers of a shape, contiguous."""


def _odd_strides_of_single_positions(numbers: Numbers) -> Tensor:
    return numbers(EXAMPLES, CHANNELS).as_strided((EXAMPLES, CHANNELS, 1, 1), (CHANNELS, 1, 50, 999))


LAYOUTS: dict[str, Callable[[Numbers], Tensor]] = {
    "contiguous": lambda n: n(7, 6, 4, 3),
    "channels-last": lambda n: n(7, 6, 4, 3).contiguous(memory_format=torch.channels_last),
    "channel slice": lambda n: n(7, 12, 4, 3)[:, 3:9],
    "channel chunk of channels-last": lambda n: n(7, 4, 3, 12).chunk(2, -1)[1].permute(0, 3, 1, 2),
    "crop": lambda n: n(7, 6, 8, 9)[:, :, 2:6, 3:6],
    "every other example": lambda n: n(14, 6, 4, 3)[::2],
    "every other channel": lambda n: n(7, 12, 4, 3)[:, ::2],
    "every other row": lambda n: n(7, 6, 8, 3)[:, :, ::2],
    "every other column": lambda n: n(7, 6, 4, 6)[..., ::2],
    "rows and columns exchanged": lambda n: n(7, 6, 3, 4).transpose(2, 3),
    "examples and channels exchanged": lambda n: n(6, 7, 4, 3).transpose(0, 1),
    "permuted": lambda n: n(3, 7, 4, 6).permute(1, 3, 2, 0),
    "one example expanded": lambda n: n(1, 6, 4, 3).expand(7, -1, -1, -1),
    "one channel expanded": lambda n: n(7, 1, 4, 3).expand(-1, 6, -1, -1),
    "one column expanded": lambda n: n(7, 6, 4, 1).expand(-1, -1, -1, 3),
    "overlapping windows": lambda n: n(7, 6, 6).unfold(2, 3, 1),
    "unaligned": lambda n: n(7 * 6 * 4 * 3 + 1)[1:].view(7, 6, 4, 3),
    "odd strides of single positions": _odd_strides_of_single_positions,
    "sequence, channels last": lambda n: n(7, 5, 6).transpose(1, 2),
    "rows, transposed": lambda n: n(6, 7).t(),
    "rows, every other one": lambda n: n(14, 6)[::2],
    "volume, channel slice of channels-last": lambda n: n(7, 2, 4, 3, 12)[..., :6].permute(0, 4, 1, 2, 3),
}
IMAGES = [name for name, make in LAYOUTS.items() if make(torch.empty).shape[2:] == (4, 3)]
WITH_POSITIONS = [name for name, make in LAYOUTS.items() if make(torch.empty)[0, 0].numel() > 1]

TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-11, torch.bfloat16: 2**-6}


def laid_out(layout: str, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Random numbers around 0.3 in a layout; a leaf of which gradients may be asked."""
    return LAYOUTS[layout](lambda *shape: (0.3 + 1.7 * randn(*shape, seed=seed)).to(dtype))


def contiguous_double(x: Tensor) -> Tensor:
    return x.detach().double().clone(memory_format=torch.contiguous_format)


def assert_near(actual: Tensor, expected: Tensor, dtype: torch.dtype, what: str) -> None:
    """As near as the dtype allows, measured by the largest number: gradients are differences of such."""
    assert actual.shape == expected.shape, what
    error = (actual.double() - expected).abs().max() / (1 + expected.abs().max())
    allowed = TOLERANCES[dtype] * (8 if "gradient" in what else 1)  # two values that are near make a steep slope
    assert error <= allowed, f"{what} is off by {error:.1e}"
