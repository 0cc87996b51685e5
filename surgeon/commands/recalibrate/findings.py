"""What new statistics change: predictions without labels, figures with them, and what to beware of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from surgeon.core.errors import ExitCode, SurgeonError, count, listing
from surgeon.data.images import ImageSet
from surgeon.measuring.comparison import gain_over
from surgeon.metrics import Scores, metrics, summarise
from surgeon.results.recalibration import Answers, Change, Measured
from surgeon.surgery.entropy import EntropyResult
from surgeon.surgery.recalibration import Reestimation

FEW_IMAGES = 64
FEW_CLASSES = 0.25
"""Of the classes that could be among so many images."""
ONE_CLASS = 1.2
"""In the effective number: a twentieth or less are of others."""


def change_between(before: Scores, after: Scores) -> Change:
    """What can be said of two networks' predictions for the same images without their labels."""
    old, new = before.images(), after.images()
    if old.nan.any() or new.nan.any():
        raise SurgeonError("The network predicts NaN.", "Check its weights.", ExitCode.FAILED)
    (was, sure), (now, surer) = old.answers(), new.answers()
    return Change(
        images=len(old),
        outputs=old.classes,
        before=_answers(was, sure),
        after=_answers(now, surer),
        changed=float((was != now).mean()),
    )


def _answers(predicted: Any, confidence: Any) -> Answers:
    return Answers(
        confidence=float(np.mean(confidence)),
        classes=len(np.unique(predicted)),
        effective_classes=effective_number(predicted),
    )


def effective_number(classes: Any) -> float:
    """The number of equally frequent classes that would be as varied."""
    _, numbers = np.unique(classes, return_counts=True)
    shares = numbers / numbers.sum()
    return float(math.exp(-(shares * np.log(shares)).sum()))


def measurement(
    data: str, images: ImageSet, before: Scores, after: Scores, matched_classes: tuple[int, int] | None
) -> Measured:
    """Figures of two networks on the same labelled images, and paired gains."""
    return Measured(
        data=data,
        split=images.split,
        matched_classes=matched_classes,
        before=summarise(before),
        after=summarise(after),
        gains=tuple(gain_over(before, after, metrics[name]) for name in after.compared),
    )


def warnings_about(
    images: int, classes: float, change: Change, found: Reestimation | None, entropy: EntropyResult | None
) -> Iterator[str]:
    """What to beware of.

    Args:
        images: How many statistics are from.
        classes: The effective number of classes among them.
        change: What became of the predictions.
        found: What became of the statistics; None where they were collected.
        entropy: What entropy minimisation did, if it was asked for.
    """
    if images < FEW_IMAGES and (found is None or found.weight > 0):
        yield f"Statistics of {count(images, 'image')} are noisy: use {FEW_IMAGES} or more, or a larger --prior."
    possible = min(images, change.outputs)
    if possible > 1 and classes < max(FEW_CLASSES * possible, ONE_CLASS):
        yield (
            f"These images seem to show about {max(round(classes), 1)} of the {change.outputs:,} classes. "
            "Statistics of few classes do not fit the task: use a representative sample."
        )
    if change.after.effective_classes < change.before.effective_classes / 2:
        yield "The recalibrated network predicts far fewer classes than the original: it may have collapsed."
    if found is not None and found.kept:
        yield f"{listing(found.kept, limit=3)} kept statistics of their own, which are not estimated."
    if entropy is not None:
        if entropy.collapsed:
            after = f"after {count(entropy.epochs, 'epoch')}" if entropy.epochs else "before the first epoch was over"
            yield (
                f"Entropy minimisation was stopped {after}: predictions began to collapse onto few classes. The "
                "network from before that is kept."
            )
        yield from entropy.notes
