"""Ghost BatchNorm: training normalises small groups of the batch, evaluation is plain BatchNorm.

Hoffer et al., "Train longer, generalize better", NeurIPS 2017; used together with example
weighting by Summers and Dinneen, ICLR 2020. The batch is cut into contiguous groups; the last one
may be smaller.

Published implementations disagree on the running statistics. Ours are those of the whole batch,
one update per step, mixed as E[x] and E[x^2] (`running=batch`), so that evaluation does not depend
on how the batch was cut. `running=groups` averages the groups' means and unbiased variances, as if
each group had been a batch of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from surgeon.core.errors import SurgeonError, count
from surgeon.norms.base import NormConfig, Phase, always_identical, option, register

if TYPE_CHECKING:
    from torch import Tensor

    from surgeon.layers.statistics import Statistics
    from surgeon.layers.surgical import SurgicalNorm


class GhostConfig(NormConfig):
    size: int = option(32, "Examples per group in training.", ge=1)
    running: Literal["batch", "groups"] = option(
        "batch", "Running statistics from the whole batch's moments, or averaged over the groups."
    )

    def check_examples(self, examples: int, layer: str) -> None:
        """A group larger than what a process sees at once would silently be the whole batch."""
        if self.size > examples:
            raise SurgeonError(
                f"Ghost groups of {self.size} are larger than the {count(examples, 'image')} that {layer} sees "
                "at once.",
                f"Use --bn ghost:size={examples} or less, or larger batches.",
            )


@dataclass(frozen=True)
class GhostStatistics:
    """Statistics of contiguous groups of `size` examples."""

    size: int
    running: Literal["batch", "groups"]

    def __call__(self, norm: SurgicalNorm, x: Tensor) -> Tensor:
        from surgeon.layers import statistics
        from surgeon.layers.checks import check_channels

        check_channels(x, norm.num_features)
        positions = x.shape[2:].numel()
        bounds = statistics.group_bounds(len(x), self.size, positions)
        y, groups = statistics.normalise_groups(x, norm.weight, norm.bias, bounds, norm.epsilon)
        if self.running == "batch":
            norm.update_running_by_groups(groups, bounds)
        else:
            self._average_groups(norm, groups, [(stop - start) * positions for start, stop in bounds])
        return y

    def _average_groups(self, norm: SurgicalNorm, groups: Statistics, values: Sequence[int]) -> None:
        factor = norm.next_average_factor()
        if norm.running_mean is None or norm.running_var is None:
            return
        counts = groups.mean.new_tensor(values)
        unbiased = groups.var * (counts / (counts - 1).clamp(min=1))[:, None]
        norm.running_mean.lerp_(groups.mean.mean(0).to(norm.running_mean), factor)
        norm.running_var.lerp_(unbiased.mean(0).to(norm.running_var), factor)


def _objection(norm: SurgicalNorm, config: Any) -> str:  # noqa: ARG001
    if norm.frozen:
        return "is frozen and never takes batch statistics: unfreeze it first, or leave it out with --layers"
    if not norm.source_has_statistics:
        return f"is a {norm.source}, which takes no batch statistics: ghost groups apply to BatchNorm only"
    return ""


@register(
    "ghost",
    config=GhostConfig,
    changes=Phase.TRAINING,
    identity=always_identical,
    paper="Hoffer et al., NeurIPS 2017",
    objection=_objection,
)
def ghost(norm: SurgicalNorm, config: Any) -> None:
    """Training normalises each group of `size` examples separately; evaluation is unchanged."""
    norm.training_rule = GhostStatistics(config.size, config.running)
