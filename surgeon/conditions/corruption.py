"""What the corruptions of ImageNet-C and CIFAR-10-C share: severities, two sets of parameters, and bytes.

D. Hendrycks and T. Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR
2019. Images whose shorter side has up to 64 pixels get the parameters of CIFAR-10-C, larger ones those of ImageNet-C.
Lengths in pixels are scaled in proportion to the shorter side: they are the published ones at 32 and at 224 pixels.
As in the published generators, images are bytes before and after, and what comes out is rounded down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from surgeon.conditions.base import Condition, ConditionConfig, Family, Seen, conditions, option
from surgeon.core.entry import summary_of
from surgeon.core.errors import SurgeonError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL import Image
    from torch import Tensor

    Bytes = npt.NDArray[np.uint8]
    Floats = npt.NDArray[np.float32]

PAPER = "Hendrycks and Dietterich, ICLR 2019"
SEVERITIES = (1, 2, 3, 4, 5)
LARGEST_SMALL = 64
"""The shorter side up to which an image gets the parameters of CIFAR-10-C."""
NATIVE = {True: 32, False: 224}
"""The side for which each set was published, of small and of large images."""
ROUNDING = 1e-3
"""Of 255: what is a whole number up to the errors of float32 is not rounded down to the one below."""


class CorruptionConfig(ConditionConfig):
    severity: int | None = option(None, "1 (weak) to 5 (strong). Default: all five.", ge=1, le=5)


@dataclass(frozen=True)
class Frame:
    """One image to be corrupted."""

    pixels: Bytes
    """(H, W, C), C is 1 or 3. Not to be changed."""
    seed: int

    @property
    def side(self) -> int:
        """The shorter one, in pixels."""
        return int(min(self.pixels.shape[:2]))

    @property
    def small(self) -> bool:
        """Whether the parameters are those of CIFAR-10-C."""
        return self.side <= LARGEST_SMALL

    @property
    def scale(self) -> float:
        """By which published lengths are multiplied."""
        return self.side / NATIVE[self.small]

    @cached_property
    def generator(self) -> np.random.Generator:
        """All that is random about this image is drawn from it."""
        import numpy as np

        return np.random.Generator(np.random.SFC64(self.seed))

    def length(self, published: float) -> int:
        """A whole number of pixels, at least one."""
        return max(round(published * self.scale), 1)

    def floats(self) -> Floats:
        """The pixels as floats from 0 to 255, to be changed at will."""
        import numpy as np

        return self.pixels.astype(np.float32)

    def picture(self) -> Image.Image:
        """The image as Pillow has it."""
        from PIL import Image

        return Image.fromarray(self.pixels if self.pixels.shape[2] == 3 else self.pixels[..., 0])


Corrupt = Callable[[Any, Frame], "Floats | Bytes"]
"""From the parameters of a severity and an image to an image (H, W, C): bytes, or floats from 0 to 255 and beyond."""


def corruption(
    name: str, family: Family, *, small: Sequence[Any], large: Sequence[Any], needs: int = 1, moves: bool = False
) -> Callable[[Corrupt], Condition]:
    """Register the decorated function; the first line of its docstring is the summary.

    Args:
        name: What people type.
        family: What it is like.
        small: Parameters for small images, one for each severity: those of CIFAR-10-C.
        large: Parameters for larger images: those of ImageNet-C.
        needs: The least that the shorter side may have, in pixels.
        moves: Whether pixels are moved, and nothing else: then masks are moved by the same random numbers.
    """

    def wrap(corrupt: Corrupt) -> Condition:
        def apply(config: CorruptionConfig, seen: Seen) -> Tensor:
            if config.severity is None:
                raise SurgeonError(f"{name} stands for five severities.", f"Give one: {name}:severity=3.")
            _check(seen, name, needs)
            chosen = (small if min(seen.pixels.shape[2:]) <= LARGEST_SMALL else large)[config.severity - 1]
            return _each(lambda frame: corrupt(chosen, frame), seen)

        def of_masks(config: CorruptionConfig, seen: Seen, masks: Tensor) -> Tensor:
            assert config.severity is not None
            chosen = (small if min(seen.pixels.shape[2:]) <= LARGEST_SMALL else large)[config.severity - 1]
            return _moved(lambda frame: corrupt(chosen, frame), seen, masks)

        def severities(config: CorruptionConfig) -> tuple[str, ...]:
            return () if config.severity else tuple(f"{name}:severity={severity}" for severity in SEVERITIES)

        summary = summary_of(corrupt, Condition.noun, name)
        return conditions.register(name)(
            Condition(
                name,
                summary,
                PAPER,
                CorruptionConfig,
                family,
                apply,
                stands_for=severities,
                moves=moves,
                of_masks=of_masks if moves else None,
            )
        )

    return wrap


def _moved(corrupt: Callable[[Frame], Floats | Bytes], seen: Seen, masks: Tensor) -> Tensor:
    """Masks whose pixels come from where those of the images come from: what is moved is a picture of the places."""
    import numpy as np
    import torch

    height, width = masks.shape[1:]
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    places = np.stack([rows, columns, np.zeros_like(rows)], axis=2).astype(np.float32)
    found = []
    for mask, seed in zip(masks, seen.seeds(), strict=True):
        came_from = np.rint(corrupt(Frame(places, seed))[..., :2]).astype(np.int64)  # type: ignore[arg-type]
        row, column = came_from[..., 0].clip(0, height - 1), came_from[..., 1].clip(0, width - 1)
        found.append(mask[torch.from_numpy(row), torch.from_numpy(column)])
    return torch.stack(found)


def _check(seen: Seen, name: str, needs: int) -> None:
    _, channels, height, width = seen.pixels.shape
    if channels not in (1, 3):
        raise SurgeonError(f"{name} is for grey and colour images, and these have {channels} channels.")
    if min(height, width) < needs:
        raise SurgeonError(
            f"{name} needs images of at least {needs} pixels a side, and these have {height}x{width}.",
            "Leave it out, or enlarge the images with --input-size.",
        )


def _each(corrupt: Callable[[Frame], Floats | Bytes], seen: Seen) -> Tensor:
    """All images corrupted one by one; large ones by as many threads as torch has, since the arithmetic frees them.

    Torch computes nothing here: its threads would wait for each other at every step.
    """
    import numpy as np
    import torch

    pixels = seen.pixels.detach().cpu().permute(0, 2, 3, 1).numpy()
    found = np.empty(pixels.shape, dtype=np.float32)

    def one(number: int, seed: int) -> None:
        as_bytes = np.rint(pixels[number] * np.float32(255)).clip(0, 255).astype(np.uint8, order="C")
        corrupted = corrupt(Frame(as_bytes, seed))
        if corrupted.dtype != np.uint8:
            corrupted = np.floor(np.clip(corrupted + np.float32(ROUNDING), 0, 255))
        np.divide(corrupted, np.float32(255), out=found[number], casting="unsafe", dtype=np.float32)

    threads = torch.get_num_threads()
    if threads == 1 or min(pixels.shape[1:3]) <= LARGEST_SMALL:
        for number, seed in enumerate(seen.seeds()):
            one(number, seed)
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="corrupt") as pool:
            list(pool.map(one, range(len(pixels)), seen.seeds()))
    return torch.from_numpy(found).permute(0, 3, 1, 2).to(seen.pixels.device)
