"""Images without their high frequencies.

D. Yin et al., A Fourier Perspective on Model Robustness in Computer Vision, NeurIPS 2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import ConditionConfig, Family, Seen, option, register

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 4


class LowPassConfig(ConditionConfig):
    bandwidth: float | None = option(
        None, "Width of the square of low frequencies that is kept, as a share of the spectrum: 0.25 is 8 at 32x32.",
        gt=0, le=1,
    )  # fmt: skip
    points: int = option(
        8, "Without a bandwidth: the curve has the bandwidths 1/points, 2/points, … below 1.", ge=2, le=256
    )


def _curve(config: LowPassConfig) -> tuple[str, ...]:
    """All bandwidths but the whole, which is the image itself."""
    if config.bandwidth is not None:
        return ()
    shares = (round(number / config.points, DIGITS) for number in range(1, config.points))
    return tuple(f"low-pass:bandwidth={share:g}" for share in shares)


@register("low-pass", family=Family.FOURIER, config=LowPassConfig, paper="Yin et al., NeurIPS 2019", stands_for=_curve)
def low_pass(config: LowPassConfig, seen: Seen) -> Tensor:
    """Only the low frequencies of the image; without a bandwidth, a curve of several."""
    from surgeon.conditions.kernels.spectrum import low_frequencies

    return low_frequencies(seen.pixels, 1.0 if config.bandwidth is None else config.bandwidth).clamp(0, 1)
