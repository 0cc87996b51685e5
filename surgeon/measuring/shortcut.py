"""A race over a smooth axis: a few values tell, by interpolation, which one is worth computing on all images.

The nodes are computed on the first images, which gives estimates of all values there. Among those that cannot be told
from the best, a parabola through their figures picks one challenger. It is computed on all images, as is the original;
only what was computed can be chosen. Where interpolated and computed predictions disagree,
the ordinary race is run instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from surgeon.measuring.axes import AlphaAxis
from surgeon.measuring.contest import Contest, Measurement, merit
from surgeon.measuring.interpolation import FEWEST_VALUES, Agreement, InterpolatedAxis, nodes_and_checks
from surgeon.measuring.runner import Runner
from surgeon.measuring.spreading import Samples
from surgeon.metrics import summarise
from surgeon.metrics.pooling import AnyScores
from surgeon.problems import CLASSIFICATION
from surgeon.results import Interpolation

CURVE, CHECKING, CHALLENGER = "estimating the curve", "checking the curve", "computing the challenger"
SHARE, FEWEST_IMAGES = 0.4, 600
"""Of the images that values are estimated on. `benchmarks/race_regret.py` measures what that loses."""
CHECKED_IMAGES = 64
FEWEST_FITTED = 4


def can_interpolate(runner: Runner, values: Sequence[object], samples: Samples) -> bool:
    """Whether logits are smooth in what is swept, can be interpolated, and images can be gone through again."""
    plain = type(runner) is Runner and isinstance(runner.axis, AlphaAxis)
    classifies = runner.inference.problem is CLASSIFICATION and not runner.inference.as_answered
    return plain and classifies and len(values) >= FEWEST_VALUES and len(samples) > 1 and samples.repeatable


def estimated_batches(batches: int, batch_size: int) -> int:
    """How many of them values are estimated on."""
    return min(max(math.ceil(SHARE * batches), math.ceil(FEWEST_IMAGES / batch_size)), batches)


def take_shortcut(
    contest: Contest, runner: Runner, values: Mapping[str, float], samples: Samples
) -> Interpolation | None:
    """Estimate all values, and leave the contest to the original and one challenger; None if they cannot be trusted."""
    original = contest.original
    nodes, checks = nodes_and_checks(list(values.values()), values[original])
    end = estimated_batches(len(samples), samples.batch_size)
    smooth = InterpolatedAxis(runner.axis, nodes)
    estimates = _measured(replace(runner, axis=smooth), CURVE, list(values), values, samples, end, contest)
    to_check = [name for name, value in values.items() if value in checks]
    first = min(math.ceil(CHECKED_IMAGES / samples.batch_size), end)
    checked = _measured(runner, CHECKING, to_check, values, samples, first, contest)
    if not all(map(len, (estimates[original], *checked.values()))):  # none of these images could be read
        return None
    far = max((name for name, value in values.items() if value in nodes), key=lambda name: contest.away[name])
    ends = (estimates[original], estimates[far])
    found = [Agreement.of(estimates[name], checked[name], ends) for name in to_check]
    if not all(one.good for one in found):
        return None
    challenger = pick(contest, estimates)
    computed = {name: estimates[name] for name, value in values.items() if value in nodes}
    if challenger not in computed:
        computed |= _measured(runner, CHALLENGER, [challenger], values, samples, end, contest)
        found.append(Agreement.of(estimates[challenger], computed[challenger], ends))
        if not found[-1].good:
            return None
    contest.begin_with(computed, estimates, [original, challenger], end)
    return Interpolation(
        computed=nodes,
        images=len(estimates[original]),
        checked=tuple(sorted({*checks, *({values[challenger]} - set(nodes))})),
        checked_images=len(checked[to_check[0]]),
        disagreement=max(one.disagreement for one in found),
    )


def _measured(
    runner: Runner,
    phase: str,
    names: Sequence[str],
    values: Mapping[str, float],
    samples: Samples,
    end: int,
    contest: Contest,
) -> dict[str, AnyScores]:
    """The scores of some values on the batches before `end`; the work counts as the contest's."""
    measurement = Measurement(names, end)
    measurement.passes = runner.axis.passes
    runner.hold(phase, measurement, values, samples)
    contest.forwards += measurement.forwards
    return measurement.scores


def pick(contest: Contest, scores: Mapping[str, AnyScores]) -> str:
    """The value other than the original that promises most by figures of the same images.

    The figures of single values are noisy, and their order among those that cannot be told from the best is chance. A
    parabola through them is steadier.
    """
    merits = {name: merit(contest.metric, summarise(of)) for name, of in scores.items()}
    leader = max(merits, key=lambda name: (merits[name], -contest.away[name]))
    close = [name for name in contest.names if math.isfinite(merits[name]) and not contest.beats(leader, name, scores)]
    fitted = dict(merits)
    if contest.metric.per_image is not None and len(close) >= FEWEST_FITTED:
        places = np.array([contest.names.index(name) for name in close], np.float64)
        curve = np.polynomial.Polynomial.fit(places, [merits[name] for name in close], 2)
        fitted = dict.fromkeys(merits, -math.inf) | dict(zip(close, curve(places).tolist(), strict=True))
    others = [name for name in contest.names if name != contest.original]
    return max(others, key=lambda name: (fitted[name], merits[name], -contest.away[name]))
