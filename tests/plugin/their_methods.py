"""A norm, an insert and a mix of somebody else's that answer what generic code asks of them.

Nothing in surgeon knows their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from surgeon.augment.base import option
from surgeon.augment.mixing import Pairs, ShareConfig, mix
from surgeon.core.errors import SurgeonError
from surgeon.inserts import Effect, InsertConfig
from surgeon.inserts import register as register_insert
from surgeon.norms import NormConfig, Phase
from surgeon.norms import register as register_norm

if TYPE_CHECKING:
    from torch import Tensor, nn

    from surgeon.layers.rewriting import Part
    from surgeon.layers.surgical import SurgicalNorm


class FadeConfig(NormConfig):
    slow_channels_last = True

    fade: float = option(0.2, "How much of a dark example is faded.", sweep=(0.0, 0.5), ge=0, le=1)
    least: int = option(2, "Examples that a batch needs.", ge=1)

    @classmethod
    def notes(cls, layers: Sequence[Self]) -> Sequence[str]:
        return (f"their-fade was put into {len(layers)} layers",)

    def check_examples(self, examples: int, layer: str) -> None:
        if examples < self.least:
            raise SurgeonError(f"Fading {layer} needs {self.least} examples, not {examples}.")

    def parts(self, norm: SurgicalNorm) -> Iterator[Part]:
        yield "threshold: ", norm.their_threshold  # type: ignore[misc]

    def gates(self, norm: SurgicalNorm) -> Callable[[Tensor], Tensor]:
        return lambda x: _shares(norm, x)


def _shares(norm: SurgicalNorm, x: Tensor) -> Tensor:
    """The share (N, 2) of bright and of dark in each example."""
    import torch

    bright = (x.flatten(1).mean(1) > norm.their_threshold.bias).to(x)  # type: ignore[union-attr, operator]
    return torch.stack([bright, 1 - bright], 1)


@dataclass(frozen=True)
class Fade:
    """In evaluation dark examples keep only a part; training is as it was."""

    fade: float

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        if norm.training:
            return norm.training_rule(norm, x)
        return norm.infer(x) * (1 - self.fade * _shares(norm, x)[:, 1]).view(-1, *[1] * (x.dim() - 1))


@register_norm(
    "their-fade",
    config=FadeConfig,
    changes=Phase.INFERENCE,
    identity=lambda _: {"fade": 0.0},
    adds_state=True,
    paper="They, 2025",
)
def their_fade(norm: SurgicalNorm, config: Any) -> None:
    """Evaluation fades dark examples."""
    from torch import nn

    if not hasattr(norm, "their_threshold"):
        norm.their_threshold = nn.Linear(1, 1).requires_grad_(False)
        nn.init.zeros_(norm.their_threshold.bias)
    norm.whole_rule = Fade(config.fade)


class SwapConfig(InsertConfig):
    p: float = option(0.5, "Probability that a batch is swapped.", ge=0, le=1)
    seed: int | None = option(None, "Seed of a generator of its own.")


@register_insert("their-swap", config=SwapConfig, paper="They, 2025", effect=Effect.NONE)
def their_swap(channels: int | None, config: Any) -> nn.Module:  # noqa: ARG001
    """Training gives every example the features of its partner, and the label with them."""
    from their_units import Swap

    return Swap(config.p, config.seed)


@mix("their-stripes", paper="They, 2025", config=ShareConfig)
def their_stripes(pairs: Pairs, config: ShareConfig) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    """Every second row is the partner's."""
    images = pairs.images.clone()
    images[:, :, 1::2] = pairs.images[pairs.partner, :, 1::2]
    rows = images.shape[2]
    return images, images.new_full((len(images),), 1 - (rows // 2) / rows)
