"""White noise behind a clip, at a given ratio of their powers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import ConditionConfig, Family, Seen, option, register
from surgeon.core.media import Medium

if TYPE_CHECKING:
    from torch import Tensor

DECIBELS = (20, 10, 0)


class WhiteNoiseConfig(ConditionConfig):
    snr: int | float | None = option(
        None, f"Signal-to-noise ratio in dB; default: all of {', '.join(map(str, DECIBELS))}.", ge=-60, le=120
    )


def _ratios(config: WhiteNoiseConfig) -> tuple[str, ...]:
    return () if config.snr is not None else tuple(f"white-noise:snr={snr}" for snr in DECIBELS)


@register("white-noise", family=Family.SOUND, config=WhiteNoiseConfig, stands_for=_ratios, on=Medium.SOUND)
def white_noise(config: WhiteNoiseConfig, seen: Seen) -> Tensor:
    """White noise added to the waveform, at a signal-to-noise ratio over each clip; silence stays silent."""
    import torch

    from surgeon.core.errors import SurgeonError

    if config.snr is None:
        raise SurgeonError("white-noise stands for several ratios.", "Give one: white-noise:snr=10.")
    clips = seen.pixels
    noise = torch.stack([torch.randn(clips.shape[1:], generator=one) for one in seen.torch_generators()])
    noise = noise.to(clips.device)
    # Of the noise that was drawn, not of its distribution: the ratio is met by every clip.
    power, of_noise = (waveforms.square().mean((1, 2, 3), keepdim=True) for waveforms in (clips, noise))
    return clips + noise * (power / of_noise / 10 ** (config.snr / 10)).sqrt()
