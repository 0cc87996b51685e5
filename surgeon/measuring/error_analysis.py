"""What lies behind the figures of an evaluation: confidence, classes, confusions and the surest mistakes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surgeon.data.images import ImageSet
from surgeon.metrics import ImageScores, proportion_interval
from surgeon.metrics.calibration import EQUAL_WIDTH_BINS
from surgeon.results import Breakdown, ClassFigures, ConfidenceBin, Confusion, Mistake

MOST_CONFUSIONS = 20
MOST_MISTAKES = 20


def break_down(scores: ImageScores, image_set: ImageSet, outputs: Sequence[str] | None) -> Breakdown:
    """The scores of images of a set; `outputs` are the names that the network itself has for its classes."""
    labels = image_set.labels[scores.indices]
    names = class_names(scores.classes, image_set, outputs)
    return Breakdown(
        bins=_bins(scores),
        classes=_classes(scores, labels, names),
        confusions=_confusions(scores, labels, names),
        mistakes=_mistakes(scores, labels, names, image_set),
    )


def class_names(classes: int, image_set: ImageSet, outputs: Sequence[str] | None) -> list[str]:
    """What to call each output: as the images do, else as the network does, else by its number."""
    numbers = [str(number) for number in range(classes)]
    ours = outputs if outputs is not None and len(outputs) == classes else numbers
    theirs = image_set.class_names if image_set.names_known else ()
    return [*theirs[:classes], *ours[len(theirs) :]]


def _bins(scores: ImageScores) -> tuple[ConfidenceBin, ...]:
    """Those of the 15 bins of the calibration error, closed on the right, that hold images."""
    edges = np.linspace(0, 1, EQUAL_WIDTH_BINS + 1)
    places = np.searchsorted(edges[1:-1], scores.confidence, side="left")
    found = []
    for number in np.unique(places).tolist():
        inside = places == number
        images, right = int(inside.sum()), int(scores.correct[inside].sum())
        low, high = proportion_interval(right, images)
        found.append(
            ConfidenceBin(
                low=float(edges[number]),
                high=float(edges[number + 1]),
                images=images,
                confidence=float(scores.confidence[inside].mean()),
                accuracy=right / images,
                accuracy_low=low,
                accuracy_high=high,
            )
        )
    return tuple(found)


def _classes(scores: ImageScores, labels: NDArray[np.int64], names: Sequence[str]) -> tuple[ClassFigures, ...]:
    """Every class with images, in the order of the outputs."""
    images = np.bincount(labels, minlength=len(names))
    right = np.bincount(labels, scores.correct, minlength=len(names)).astype(np.int64)
    answers = np.bincount(scores.predicted[~scores.nan], minlength=len(names))
    found = []
    for number in np.flatnonzero(images).tolist():
        low, high = proportion_interval(int(right[number]), int(images[number]))
        found.append(
            ClassFigures(
                name=names[number],
                images=int(images[number]),
                correct=int(right[number]),
                accuracy=float(right[number] / images[number]),
                accuracy_low=low,
                accuracy_high=high,
                predicted=int(answers[number]),
            )
        )
    return tuple(found)


def _confusions(scores: ImageScores, labels: NDArray[np.int64], names: Sequence[str]) -> tuple[Confusion, ...]:
    """The most frequent pairs of a class and another one that it was taken for."""
    wrong = ~scores.correct & ~scores.nan
    pairs, counts = np.unique(np.stack([labels[wrong], scores.predicted[wrong]]), axis=1, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_CONFUSIONS]
    images = np.bincount(labels, minlength=len(names))
    return tuple(
        Confusion(
            actual=names[actual], predicted=names[predicted], images=int(number), share=float(number / images[actual])
        )
        for (actual, predicted), number in zip(pairs.T[order], counts[order], strict=True)
    )


def _mistakes(
    scores: ImageScores, labels: NDArray[np.int64], names: Sequence[str], image_set: ImageSet
) -> tuple[Mistake, ...]:
    """The wrong predictions that the network was surest of."""
    return tuple(
        Mistake(
            image=image_set.identity(int(scores.indices[place])),
            actual=names[labels[place]],
            predicted=names[scores.predicted[place]],
            confidence=float(scores.confidence[place]),
        )
        for place in surest_mistakes(scores)
    )


def surest_mistakes(scores: ImageScores) -> NDArray[np.int64]:
    """Where among the scores the wrong predictions are that the network was surest of, the surest first."""
    wrong = np.flatnonzero(~scores.correct & ~scores.nan)
    return wrong[np.argsort(-scores.confidence[wrong], kind="stable")[:MOST_MISTAKES]]
