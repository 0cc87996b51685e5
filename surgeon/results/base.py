"""What every record is, and what a gain is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Result(BaseModel):
    # JSON has no infinity; as a string it survives being written and read.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Gain(Result):
    """A setting against the original network on the same images: the mean difference and its 95% interval.

    `difference` is setting - original, in the metric's own unit; whether that is better depends on
    the metric. `gained` and `lost` count the images on which the setting is better and worse (None
    for a metric that is no mean over images).
    """

    metric: str
    higher_is_better: bool
    images: int
    difference: float
    low: float
    high: float
    gained: int | None
    lost: int | None

    @property
    def within_noise(self) -> bool:
        """Whether the interval leaves open which of the two is better."""
        return not (self.low > 0 or self.high < 0)  # an interval that is not a number leaves it open

    @property
    def better(self) -> bool:
        """Whether the setting is better beyond noise."""
        return not self.within_noise and (self.difference > 0) == self.higher_is_better
