"""All metrics of one evaluation in one record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from surgeon.metrics.base import metrics
from surgeon.metrics.interval import Interval, figure_interval, proportion_interval

if TYPE_CHECKING:
    from surgeon.metrics.accumulator import Scores


class Metrics(BaseModel):
    """The figures of a number of images.

    `nan_images` of them had logits that are not numbers; they count as wrong, and make both
    cross-entropies infinite. `others` holds registered metrics that have no field of their own.
    """

    # JSON has no infinity; as a string it survives being written and read.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    images: int
    nan_images: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    top5: float | None
    cross_entropy: float
    temperature: float | None
    scaled_cross_entropy: float
    ece: float
    rms: float
    mad: float
    aurra: float
    soft_f1: float
    others: dict[str, float | None] = {}

    def value(self, name: str) -> float | None:
        """The figure of a registered metric."""
        if name in self.others:
            return self.others[name]
        value: float | None = getattr(self, _field(metrics[name].name))
        return value


def summarise(scores: Scores, fitted_on: Scores | None = None) -> Metrics:
    """All figures of some images; the temperature is fitted on other ones if they are given."""
    images = scores.images(fitted_on)
    figures = {name: metrics[name].compute(images) for name in metrics}
    own = {_field(name): value for name, value in figures.items() if _field(name) in Metrics.model_fields}
    low, high = proportion_interval(int(images.correct.sum()), len(images))
    return Metrics.model_validate(
        {
            **own,
            "images": len(images),
            "nan_images": int(images.nan.sum()),
            "accuracy_low": low,
            "accuracy_high": high,
            "temperature": images.scaled.temperature,
            "others": {name: value for name, value in figures.items() if _field(name) not in own},
        }
    )


def intervals(scores: Scores) -> dict[str, Interval]:
    """The 95% interval of every figure that these images have."""
    images = scores.images()
    meaningful = [name for name in metrics if metrics[name].compute(images) is not None]
    return {name: figure_interval(metrics[name], images) for name in meaningful}


def _field(metric_name: str) -> str:
    return metric_name.replace("-", "_")
