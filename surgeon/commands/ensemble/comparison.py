"""How members and what was made of them compare, on the same images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surgeon.core.errors import SurgeonError
from surgeon.measuring.comparison import as_gain, gain_over
from surgeon.metrics import Metric, Scores, compare, metrics, summarise
from surgeon.metrics.imagined import with_imagined
from surgeon.models.origin import LoadedModel, Preprocessing
from surgeon.results import Combination, Gain, Member
from surgeon.surgery.apply import current_plan

Combined = tuple[str, Sequence[str], int, Scores]
"""A name, the members in it, how many networks an image goes through, and its scores."""


def compare_all(
    members: Sequence[LoadedModel],
    preprocessing: Sequence[Preprocessing],
    scores: Sequence[Scores],
    combined: Sequence[Combined],
    metric_name: str,
) -> tuple[tuple[Member, ...], str, tuple[Combination, ...]]:
    """Every member, which of them is best, and every combination with its gains."""
    metric = metrics[metric_name]
    found = tuple(
        Member(
            name=member.name,
            rewrites=current_plan(member.model).summary(),
            preprocessing=images,
            metrics=summarise(of_member),
        )
        for member, images, of_member in zip(members, preprocessing, scores, strict=True)
    )
    if all(member.metrics.value(metric_name) is None for member in found):
        raise SurgeonError(f"{metric_name!r} has no value on these images.", "Choose another --metric.")
    best = max(range(len(found)), key=lambda number: metric.merit(found[number].metrics))
    shown = [metrics[name] for name in dict.fromkeys((*scores[0].compared, metric_name))]
    combinations = tuple(
        Combination(
            name=name,
            members=tuple(names),
            passes=passes,
            metrics=summarise(own),
            over_best=tuple(gain_over(scores[best], own, one) for one in shown),
            over_mean=tuple(gain_over_mean(scores, own, one) for one in shown if _is_mean(one, own)),
        )
        for name, names, passes, own in combined
    )
    return found, found[best].name, combinations


def _is_mean(metric: Metric, scores: Scores) -> bool:
    """Whether it is a mean over images, of such images."""
    return metric.of(scores.images()).per_image is not None


def gain_over_mean(members: Sequence[Scores], candidate: Scores, metric: Metric) -> Gain:
    """The gain over what the members are on average, image by image."""
    assert metric.per_image is not None
    # The imagined images at the end: how the candidate and the members do on them.
    own, *each = map(metric.per_image, with_imagined(candidate.images(), [scores.images() for scores in members]))
    average = np.mean(each, axis=0)
    images = len(candidate)
    compared = compare(
        own[:images],
        average[:images],
        higher_is_better=metric.higher_is_better,
        imagined=(own[images:], average[images:]),
    )
    return as_gain(metric.name, metric.higher_is_better, compared)


def disagreement_of(members: Sequence[Scores]) -> tuple[tuple[float, ...], ...]:
    """The share of images on which each two members predict different classes."""
    predicted = [scores.images().answers()[0] for scores in members]
    return tuple(tuple(float((ours != theirs).mean()) for theirs in predicted) for ours in predicted)


def mean_of_pairs(matrix: Sequence[Sequence[float]]) -> float:
    """The mean over all pairs of different members."""
    return float(np.mean([row[other] for number, row in enumerate(matrix) for other in range(number)]))
