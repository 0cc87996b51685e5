"""All metrics of one evaluation in one record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_validator

from surgeon.core.errors import SurgeonError, count
from surgeon.core.readable import Readable
from surgeon.metrics.base import Metric, metrics
from surgeon.metrics.interval import Interval, figure_interval
from surgeon.metrics.own import OWN_METRIC, OwnScores

if TYPE_CHECKING:
    from surgeon.metrics.accumulator import ImageScores
    from surgeon.metrics.pooling import AnyScores


class Metrics(Readable, BaseModel):
    """The figures of a number of images: every registered metric under its name, with underscores.

    `accuracy_low` and `accuracy_high` are the 95% interval of the accuracy. By a score of one's own, there are `score`,
    `score_low` and `score_high` alone.

    `nan_images` of them had logits that are not numbers; they count as wrong, and make both
    cross-entropies infinite.
    """

    # JSON has no infinity; as a string it survives being written and read.
    model_config = ConfigDict(frozen=True, extra="allow", ser_json_inf_nan="strings")
    __pydantic_extra__: dict[str, float | None]

    images: int
    nan_images: int
    temperature: float | None

    if TYPE_CHECKING:

        def __init__(self, **figures: Any) -> None: ...
        def __getattr__(self, name: str) -> float: ...

    @model_validator(mode="before")
    @classmethod
    def _as_once_written(cls, record: Any) -> Any:
        """Records of before held added metrics apart from those of surgeon itself."""
        if isinstance(record, dict) and isinstance(record.get("others"), dict):
            others = {name.replace("-", "_"): value for name, value in record["others"].items()}
            return {key: value for key, value in record.items() if key != "others"} | others
        return record

    @property
    def primary(self) -> str:
        """The metric that networks are compared by unless somebody says otherwise."""
        return "iou" if self.__pydantic_extra__.get("iou") is not None else "accuracy"

    def value(self, name: str) -> float | None:
        """The figure of a metric; None where it has no meaning, or had not been added when this was recorded."""
        key = name.replace("-", "_")
        if key in self.__pydantic_extra__:
            return self.__pydantic_extra__[key]
        metrics[name]  # a name that nobody knows is a mistake
        return None


def summarise(scores: AnyScores, fitted_on: AnyScores | None = None) -> Metrics:
    """All figures of some images; the temperature is fitted on other ones if they are given."""
    images = scores.images(fitted_on)
    if isinstance(scores, OwnScores):
        score_low, score_high = figure_interval(OWN_METRIC, images)
        return Metrics(
            images=len(scores),
            nan_images=int(images.nan.sum()),
            temperature=None,
            score=OWN_METRIC.compute(images),
            score_low=score_low,
            score_high=score_high,
        )
    if images.of_masks and metrics["accuracy"].of(images).compute(images) is None:
        raise SurgeonError(f"All pixels of {count(len(scores), 'image')} are void.")
    low, high = figure_interval(metrics["accuracy"], images)
    return Metrics(
        images=len(scores),
        nan_images=int(images.nan.sum()),
        accuracy_low=low,
        accuracy_high=high,
        temperature=images.scaled.temperature,
        **{metric.key: metric.of(images).compute(images) for metric in _all(images)},
    )


def intervals(scores: AnyScores) -> dict[str, Interval]:
    """The 95% interval of every figure that these images have."""
    images = scores.images()
    meaningful = [metric for metric in _all(images) if metric.of(images).compute(images) is not None]
    return {metric.name: figure_interval(metric, images) for metric in meaningful}


def _all(images: ImageScores) -> list[Metric]:
    """The metrics that such images can have."""
    return [metrics[name] for name in metrics if metrics[name].applies_to(images)]
