"""Scores by a function of the user's own: one number per sample, the higher the better, whatever the task is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surgeon.core.errors import SurgeonError, count
from surgeon.core.presentation import plain
from surgeon.core.specs import Options
from surgeon.metrics.accumulator import COLUMNS, ImageScores, Scores
from surgeon.metrics.base import Metric
from surgeon.metrics.temperature_fit import TemperatureSums

if TYPE_CHECKING:
    from surgeon.metrics.pooling import AnyScores

OWN = "score"
ScoreFunction = Callable[[Any, Any], Any]
"""From what a network answers and the targets of a batch to one number for each of its samples."""


PER_SAMPLE = np.dtype([("value", np.float64), ("seen", np.bool_)])


@dataclass(frozen=True, kw_only=True)
class OwnImages(ImageScores):
    """One number per sample; of classes nothing is known."""

    values: NDArray[np.float64]


class OwnScores(Scores):
    """Accumulates the numbers that a function gives; it takes the place of scores of classes in every comparison.

    Args:
        score: The function; what only merges needs none.
    """

    def __init__(self, score: ScoreFunction | None = None) -> None:
        super().__init__()
        self.score = score
        self._images = np.zeros(0, PER_SAMPLE)

    def update(self, logits: Any, labels: Any, indices: Any) -> None:
        """Score a batch: what the network answers, the targets, and which samples they are."""
        assert self.score is not None
        places = np.asarray(indices, dtype=np.int64)
        values = _checked(self.score, logits, labels, len(places))
        self._grow(places)
        self._images["value"][places - self._first] = values
        self._images["seen"][places - self._first] = True

    def merge(self, other: Scores) -> OwnScores:
        return OwnScores().absorb(self).absorb(other)

    def absorb(self, other: Scores) -> OwnScores:
        assert isinstance(other, OwnScores)
        self.score = self.score or other.score
        super().absorb(other)
        return self

    def _check_mergeable(self, other: Scores) -> None:
        """Of a sample that was scored twice, the later number counts."""

    def images(self, fitted_on: AnyScores | None = None) -> OwnImages:  # noqa: ARG002
        """The number of every sample."""
        indices = self._indices()
        if not len(indices):
            raise SurgeonError("There are no samples to score.")
        values = self._rows(indices)["value"]
        unknown: dict[str, Any] = {name: np.zeros(0) for name in COLUMNS} | {"nan": np.isnan(values)}
        return OwnImages(0, indices, **unknown, sums=TemperatureSums(), elsewhere=None, values=values)


def _checked(score: ScoreFunction, answer: Any, target: Any, samples: int) -> NDArray[np.float64]:
    import torch

    try:
        found = score(answer, target)
    except SurgeonError:
        raise
    except Exception as error:  # somebody else's code raises anything
        reason = next(iter(str(error).strip().splitlines()), "no message").rstrip(".")
        raise SurgeonError(
            f"score= failed: {type(error).__name__}: {reason}.",
            "It gets the network's output and the targets of a batch, both on the CPU.",
        ) from error
    try:
        given = torch.as_tensor(found)
        if given.is_complex():
            raise TypeError("complex numbers have no order")
        numbers = given.detach().cpu().double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise SurgeonError(
            f"score= gives a {type(found).__name__}, not numbers.", "Return one number per sample."
        ) from error
    if numbers.shape != (samples,):
        shape = "x".join(map(str, numbers.shape)) or "a single number"
        raise SurgeonError(
            f"score= gives {shape if numbers.dim() == 0 else f'numbers of the shape {shape}'} for "
            f"{count(samples, 'sample')}.",
            "Return one number per sample, not their mean: intervals need each.",
        )
    values: NDArray[np.float64] = numbers.numpy()
    return values


def _values(images: ImageScores) -> NDArray[Any]:
    """The numbers; where all are 0 or 1, as wrong and right, with the intervals that these have."""
    assert isinstance(images, OwnImages)
    yes_or_no = np.isin(images.values, (0, 1)).all()
    return images.values.astype(np.bool_) if yes_or_no else images.values


def _mean(images: ImageScores) -> float:
    assert isinstance(images, OwnImages)
    return float(images.values.mean())


OWN_METRIC = Metric(
    name=OWN,
    summary="The mean of a custom score.",
    paper="",
    config=Options,
    higher_is_better=True,
    compute=_mean,
    per_image=_values,
    shown=plain(OWN),
    of_classes=False,
)
