"""What somebody else's package adds: a norm, an insert and a mix, in one module that three entry points name.

It is not imported by the tests: they install it, as pip would, for the processes that they start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surgeon.augment.mixing import MixConfig, Pairs, mix
from surgeon.inserts import Effect, InsertConfig
from surgeon.inserts import register as register_insert
from surgeon.norms import NormConfig, Phase, option
from surgeon.norms import register as register_norm

if TYPE_CHECKING:
    from torch import Tensor, nn

    from surgeon.layers.surgical import SurgicalNorm


class RisingConfig(NormConfig):
    top: float = option(0.1, "Weight of the example's own statistics in the last channel.", ge=0, le=1)


@register_norm(
    "their-rising",
    config=RisingConfig,
    changes=Phase.INFERENCE,
    identity=lambda norm: {"top": norm.identity_alpha},
    paper="They, 2024",
)
def their_rising(norm: SurgicalNorm, config: Any) -> None:
    """Example weighting by a weight that rises from channel to channel."""
    norm.set_alpha([config.top * (channel + 1) / norm.num_features for channel in range(norm.num_features)])


class DropConfig(InsertConfig):
    p: float = option(0.1, "Probability that a channel is dropped.", ge=0, lt=1)


@register_insert("their-drop", config=DropConfig, paper="They, 2024", effect=Effect.NONE)
def their_drop(channels: int | None, config: Any) -> nn.Module:  # noqa: ARG001
    """Training drops whole channels."""
    from torch import nn

    return nn.Dropout2d(config.p)


@mix("their-halves", paper="They, 2024", config=MixConfig)
def their_halves(pairs: Pairs, config: MixConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """The lower half of an image is that of its partner."""
    images = pairs.images.clone()
    half = images.shape[2] // 2
    images[:, :, half:] = pairs.images[pairs.partner, :, half:]
    return images, images.new_full((len(images),), half / images.shape[2])
