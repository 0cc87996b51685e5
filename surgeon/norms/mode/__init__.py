"""Mode normalisation: a gate divides each example among K modes, each with statistics of its own.

Deecke et al., "Mode Normalization", ICLR 2019. Every mode starts from the running statistics of the
BatchNorm it replaces, so the converted network is the original until it is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from surgeon.norms.base import NormConfig, Phase, always_identical, option, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.layers.rewriting import Part
    from surgeon.layers.surgical import SurgicalNorm
    from surgeon.norms.mode.layer import ModeStatistics


class ModeConfig(NormConfig):
    modes: int = option(2, "Number of modes; 1 is BatchNorm.", ge=1)

    def parts(self, norm: SurgicalNorm) -> Iterator[Part]:
        """The gate, and the statistics of each mode."""
        modes = statistics_of(norm)
        yield "gate: ", modes.gate
        for number, (mean, var) in enumerate(zip(modes.running_mean, modes.running_var, strict=True), 1):
            yield f"mode {number}: ", {"running_mean": mean, "running_var": var}

    def gates(self, norm: SurgicalNorm) -> Callable[[Tensor], Tensor]:
        """The share (N, K) of each mode in each example."""
        return statistics_of(norm).gates

    def reset_statistics(self, norm: SurgicalNorm) -> None:
        """Every mode begins again."""
        statistics_of(norm).reset_running_stats()


def statistics_of(norm: SurgicalNorm) -> ModeStatistics:
    """The gate and the moments that the rewrite has given to a layer."""
    from surgeon.norms.mode.layer import ModeStatistics

    assert isinstance(norm.modes, ModeStatistics)
    return norm.modes


def normalise_by_modes(norm: SurgicalNorm, x: Tensor) -> Tensor:
    """By the modes of the batch in training, by the running ones in evaluation."""
    modes = statistics_of(norm)
    if norm.training:
        return modes.normalise_batch(x, norm.weight, norm.bias, norm.epsilon, norm.next_average_factor())
    return modes.normalise_running(x, norm.weight, norm.bias, norm.epsilon)


def objection(norm: SurgicalNorm, config: Any) -> str:
    """Why a layer cannot be divided into modes, or nothing."""
    if norm.frozen:
        return "is frozen and never takes batch statistics: unfreeze it first, or leave it out with --layers"
    if norm.running_mean is None or not norm.source_has_statistics:
        return f"is a {norm.source} without running statistics that its modes could start from"
    present: Any = norm.rewrites.get("mode") or norm.rewrites.get("mode-group")
    if present is not None and present.modes != config.modes:
        return f"has {present.modes} modes, which cannot become {config.modes}: convert the original network instead"
    return ""


@register(
    "mode",
    config=ModeConfig,
    changes=frozenset(Phase),
    identity=always_identical,
    trains_away=True,
    adds_state=True,
    paper="Deecke et al., ICLR 2019",
    objection=objection,
)
def mode(norm: SurgicalNorm, config: Any) -> None:
    """A gate assigns each example to modes with their own statistics; equals the original until trained."""
    from surgeon.norms.mode.layer import ModeStatistics

    assert norm.running_mean is not None
    assert norm.running_var is not None
    if not isinstance(getattr(norm, "modes", None), ModeStatistics):
        norm.modes = ModeStatistics.from_running(norm.running_mean, norm.running_var, config.modes)
        norm.modes.train(norm.training)
    norm.whole_rule = normalise_by_modes
