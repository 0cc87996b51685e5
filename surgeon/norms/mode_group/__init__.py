"""Mode group normalisation: a gate divides the channels of each example among K modes.

Deecke et al., "Mode Normalization", ICLR 2019, section 3.2. It has no running statistics and is the same
in training and evaluation. So it has no setting at which it equals BatchNorm: it needs training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from surgeon.norms.base import NormConfig, Phase, option, register
from surgeon.norms.mode import objection

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.layers.rewriting import Part
    from surgeon.layers.surgical import SurgicalNorm
    from surgeon.norms.mode_group.layer import ChannelModes


class ModeGroupConfig(NormConfig):
    modes: int = option(2, "Number of modes; 1 is GroupNorm with one group.", ge=1)

    @classmethod
    def notes(cls, layers: Sequence[Self]) -> Sequence[str]:  # noqa: ARG003
        return ("mode-group has no setting at which it is the original network: train it before you use it",)

    def parts(self, norm: SurgicalNorm) -> Iterator[Part]:
        """The gate; there are no statistics."""
        yield "gate: ", modes_of(norm).gate

    def gates(self, norm: SurgicalNorm) -> Callable[[Tensor], Tensor]:
        """The share (N, K, C) of each mode in each channel of each example."""
        return modes_of(norm).gates


def modes_of(norm: SurgicalNorm) -> ChannelModes:
    """The gate that the rewrite has given to a layer."""
    from surgeon.norms.mode_group.layer import ChannelModes

    assert isinstance(norm.modes, ChannelModes)
    return norm.modes


def normalise_by_channel_modes(norm: SurgicalNorm, x: Tensor) -> Tensor:
    """By the modes of each example's own channels."""
    return modes_of(norm).normalise(x, norm.weight, norm.bias, norm.epsilon, norm.num_features)


@register(
    "mode-group",
    config=ModeGroupConfig,
    changes=frozenset(Phase),
    identity=None,
    trains_away=True,
    adds_state=True,
    paper="Deecke et al., ICLR 2019",
    objection=objection,
)
def mode_group(norm: SurgicalNorm, config: Any) -> None:
    """A gate assigns each example's channels to modes; no running statistics, so it needs training."""
    from surgeon.norms.mode_group.layer import ChannelModes

    assert norm.running_mean is not None
    assert norm.running_var is not None
    if not isinstance(getattr(norm, "modes", None), ChannelModes):
        norm.modes = ChannelModes.from_running(norm.running_mean, norm.running_var, config.modes)
        norm.modes.train(norm.training)
    norm.whole_rule = normalise_by_channel_modes
