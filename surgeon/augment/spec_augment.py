"""SpecAugment: bands and stretches of time of a spectrogram are blanked.

D. Park et al., SpecAugment: A Simple Data Augmentation Method for Automatic Speech Recognition, Interspeech 2019:
its two masks, without the warping of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.augment.base import AugmentConfig, BatchOperation, Kind, option, register
from surgeon.augment.draws import Draws
from surgeon.core.media import Medium

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from surgeon.models.origin import Preprocessing


class SpecAugmentConfig(AugmentConfig):
    frequency: float = option(0.2, "Widest frequency mask, as a share of all bands; F in the paper.", ge=0, le=1)
    time: float = option(0.2, "Longest time mask, as a share of the clip; T in the paper.", ge=0, le=1)
    masks: int = option(1, "Number of masks of each kind.", ge=1, le=16)


@register(
    "spec-augment",
    kind=Kind.BATCH,
    paper="Park et al., Interspeech 2019",
    config=SpecAugmentConfig,
    on=(Medium.SOUND,),
)
def spec_augment(config: SpecAugmentConfig, preprocessing: Preprocessing) -> BatchOperation:  # noqa: ARG001
    """A band of frequencies and an interval of time are set to the mean, which is 0 after normalisation."""

    def mask(images: Tensor, targets: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        draws = Draws(generator, images.device)
        bands, frames = images.shape[2:]
        masked = images.clone()  # masked_fill would lose the memory format
        for _ in range(config.masks):
            masked.masked_fill_(_stretch(draws, len(images), bands, config.frequency)[:, None, :, None], 0)
            masked.masked_fill_(_stretch(draws, len(images), frames, config.time)[:, None, None, :], 0)
        return masked, targets

    return mask


def _stretch(draws: Draws, examples: int, size: int, largest: float) -> Tensor:
    """For each example a stretch (N, size) of 0 to `largest` of the whole, which lies within it."""
    import torch

    length = draws.below(torch.full((examples,), int(largest * size) + 1.0, device=draws.device))
    start = draws.below(size - length + 1)
    at = torch.arange(size, device=length.device)
    return (at >= start[:, None]) & (at < (start + length)[:, None])
