"""Noise of a single frequency.

D. Yin et al., A Fourier Perspective on Model Robustness in Computer Vision, NeurIPS 2019. The error at every frequency,
with the low ones in the centre, is the Fourier heat map of a network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import model_validator

from surgeon.conditions.base import ConditionConfig, Family, Seen, option, register

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 4


class FourierConfig(ConditionConfig):
    row: float | None = option(
        None, "Frequency from top to bottom: 1 is the highest of the image's rows, 0 none.", ge=-1, le=1
    )
    column: float | None = option(None, "Frequency from left to right, likewise.", ge=-1, le=1)
    norm: float | None = option(
        None,
        "L2 norm of the noise in each channel; default: a quarter of the root of the number of pixels, 8 at 32x32.",
        ge=0,
        allow_inf_nan=False,
    )
    grid: int = option(
        9, "Without row and column: frequencies along each side of the map; odd, so that 0 is included.", ge=3, le=255
    )
    highest: float = option(1.0, "Without row and column: the highest of these frequencies.", gt=0, le=1)

    @model_validator(mode="after")
    def _check(self) -> FourierConfig:
        if (self.row is None) != (self.column is None):
            raise ValueError("a row without a column" if self.column is None else "a column without a row")
        if self.grid % 2 == 0:
            raise ValueError(f"grid={self.grid}: an even number has no centre")
        return self


def frequencies(config: FourierConfig) -> list[float]:
    """Those of a map, each way, from the lowest to the highest."""
    half = config.grid // 2
    return [round(config.highest * number / half, DIGITS) + 0.0 for number in range(-half, half + 1)]


def mirrored(row: float, column: float) -> tuple[float, float]:
    """The frequency that stands for both itself and its mirror image, of which the noise is the same."""
    return (row, column) if (row, column) >= (-row, -column) else (-row + 0.0, -column + 0.0)


def _map(config: FourierConfig) -> tuple[str, ...]:
    """Every frequency of a map but for the mirror images."""
    if config.row is not None:
        return ()
    norm = "" if config.norm is None else f",norm={config.norm:g}"
    each_way = frequencies(config)
    found = dict.fromkeys(mirrored(row, column) for row in each_way for column in each_way)
    return tuple(f"fourier:row={row:g},column={column:g}{norm}" for row, column in found)


@register("fourier", family=Family.FOURIER, config=FourierConfig, paper="Yin et al., NeurIPS 2019", stands_for=_map)
def fourier(config: FourierConfig, seen: Seen) -> Tensor:
    """Noise of a single frequency, with a random sign per channel; without row and column, a map of many."""
    import torch

    from surgeon.conditions.kernels.spectrum import basis_image

    height, width = seen.pixels.shape[-2:]
    norm = (height * width) ** 0.5 / 4 if config.norm is None else config.norm
    wave = basis_image(height, width, config.row or 0.0, config.column or 0.0) * norm
    channels = seen.pixels.shape[1]
    heads = torch.stack([torch.randint(0, 2, (channels,), generator=each) for each in seen.torch_generators()])
    signs = (heads * 2 - 1).view(-1, channels, 1, 1)
    return (seen.pixels + (signs * wave).to(seen.pixels)).clamp(0, 1)
