"""What the corruptions of ImageNet-C and CIFAR-10-C share: severities, two sets of parameters, and bytes.

D. Hendrycks and T. Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR
2019. Images whose shorter side has up to 64 pixels get the parameters of CIFAR-10-C, larger ones those of ImageNet-C.
Lengths in pixels are scaled in proportion to the shorter side: they are the published ones at 32 and at 224 pixels.
As in the published generators, images are bytes before and after, and what comes out is rounded down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surgeon.conditions.base import Condition, ConditionConfig, Family, Seen, as_bytes, conditions, option
from surgeon.core.entry import summary_of
from surgeon.core.errors import SurgeonError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    Bytes = npt.NDArray[np.uint8]
    Floats = npt.NDArray[np.float32]

PAPER = "Hendrycks and Dietterich, ICLR 2019"
SEVERITIES = (1, 2, 3, 4, 5)
LARGEST_SMALL = 64
"""The shorter side up to which an image gets the parameters of CIFAR-10-C."""
NATIVE = {True: 32, False: 224}
"""The side for which each set was published, of small and of large images."""


class CorruptionConfig(ConditionConfig):
    severity: int | None = option(None, "1 (weak) to 5 (strong); without it, all five.", ge=1, le=5)


@dataclass(frozen=True)
class Frames:
    """Images to be corrupted, as bytes."""

    pixels: Bytes
    """(N, H, W, C), C is 1 or 3."""
    seen: Seen

    @property
    def side(self) -> int:
        """The shorter one, in pixels."""
        return int(min(self.pixels.shape[1:3]))

    @property
    def small(self) -> bool:
        """Whether the parameters are those of CIFAR-10-C."""
        return self.side <= LARGEST_SMALL

    @property
    def scale(self) -> float:
        """By which published lengths are multiplied."""
        return self.side / NATIVE[self.small]

    def generators(self) -> Iterator[np.random.Generator]:
        """One for each image."""
        return self.seen.generators()


Corrupt = Callable[[Any, Frames], "Floats | Bytes"]
"""From the parameters of a severity and images to images (N, H, W, C): bytes, or floats from 0 to 255 and beyond."""


def corruption(
    name: str, family: Family, *, small: Sequence[Any], large: Sequence[Any], needs: int = 1
) -> Callable[[Corrupt], Condition]:
    """Register the decorated function; the first line of its docstring is the summary.

    Args:
        name: What people type.
        family: What it is like.
        small: Parameters for small images, one for each severity: those of CIFAR-10-C.
        large: Parameters for larger images: those of ImageNet-C.
        needs: The least that the shorter side may have, in pixels.
    """

    def wrap(corrupt: Corrupt) -> Condition:
        def apply(config: CorruptionConfig, seen: Seen) -> Tensor:
            if config.severity is None:
                raise SurgeonError(f"{name} stands for five severities.", f"Give one: {name}:severity=3.")
            frames = _frames(seen, name, needs)
            return _tensor(corrupt((small if frames.small else large)[config.severity - 1], frames), seen.pixels)

        def severities(config: CorruptionConfig) -> tuple[str, ...]:
            return () if config.severity else tuple(f"{name}:severity={severity}" for severity in SEVERITIES)

        summary = summary_of(corrupt, Condition.noun, name)
        return conditions.register(name)(
            Condition(name, summary, PAPER, CorruptionConfig, family, apply, stands_for=severities)
        )

    return wrap


def _frames(seen: Seen, name: str, needs: int) -> Frames:
    import numpy as np

    _, channels, height, width = seen.pixels.shape
    if channels not in (1, 3):
        raise SurgeonError(f"{name} is for grey and colour images, and these have {channels} channels.")
    if min(height, width) < needs:
        raise SurgeonError(
            f"{name} needs images of at least {needs} pixels a side, and these have {height}x{width}.",
            "Leave it out, or enlarge the images with --input-size.",
        )
    return Frames(np.ascontiguousarray(as_bytes(seen.pixels).permute(0, 2, 3, 1).numpy()), seen)


def _tensor(corrupted: Floats | Bytes, like: Tensor) -> Tensor:
    """As pixels (N, C, H, W), channels last in memory; floats are cut off and rounded down, as the generators do."""
    import numpy as np
    import torch

    if corrupted.dtype != np.uint8:
        corrupted = np.clip(corrupted, 0, 255).astype(np.uint8)
    return torch.from_numpy(corrupted).permute(0, 3, 1, 2).to(like.device, torch.float32).div_(255)
