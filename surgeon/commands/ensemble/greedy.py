"""Choose the members that help: by merit, best first, each stays if the ensemble is better with it.

That is the rule of Wortsman et al., "Model soups", ICML 2022, here for averaged predictions; the members
are tried once each, and on images that take no part in the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from surgeon.measuring.variants import average
from surgeon.metrics import Metric, Metrics, Scores, summarise
from surgeon.results import Step
from surgeon.views import Merge


@dataclass(frozen=True)
class MemberLogits:
    """The logits of each member (images x classes, float32), which a choice goes through repeatedly."""

    logits: list[Tensor]
    labels: Tensor
    indices: Tensor


def choose_members(
    names: Sequence[str], kept: MemberLogits, metric: Metric, merge: Merge
) -> tuple[list[int], list[Step]]:
    """The numbers of the chosen members in their original order, and every step that led there."""

    def figures(logits: Tensor) -> Metrics:
        scores = Scores()
        scores.update(logits, kept.labels, kept.indices)
        return summarise(scores)

    alone = [figures(logits) for logits in kept.logits]
    by_merit = sorted(range(len(alone)), key=lambda number: -metric.merit(alone[number]))
    chosen, best = by_merit[:1], alone[by_merit[0]]
    steps = [Step(member=names[chosen[0]], value=best.value(metric.name), kept=True)]
    for number in by_merit[1:]:
        together = figures(average([kept.logits[n] for n in (*chosen, number)], merge))
        better = metric.merit(together) > metric.merit(best)
        steps.append(Step(member=names[number], value=together.value(metric.name), kept=better))
        if better:
            chosen, best = [*chosen, number], together
    return sorted(chosen), steps
