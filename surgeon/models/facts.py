"""What the steps of a history are made of: data sets, images, figures and gains.

Figures are kept by the names of their metrics.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from surgeon.core.presentation import Improvement

Name = Annotated[str, Field(max_length=1000)]
Text = Annotated[str, Field(max_length=10_000)]
Texts = Annotated[tuple[Text, ...], Field(max_length=1000)]
Count = Annotated[int, Field(ge=0, le=1 << 53)]
HubName = Annotated[str, Field(max_length=200, pattern="^([A-Za-z0-9_.-]+/)?[A-Za-z0-9_.-]+$")]


class Fact(BaseModel):
    # JSON has no infinity; as a string it survives being written and read.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class DataKind(StrEnum):
    """Where images come from, which tells whether others know them by their name."""

    BUNDLED = "bundled"
    HUB = "hub"
    FILES = "files"
    LOADER = "loader"


class DataSet(Fact):
    """Images by name; a folder goes without its place on the machine where it lies."""

    name: Name
    kind: DataKind
    hub: HubName | None = None
    """`OWNER/NAME` on the Hugging Face hub."""


class Images(Fact):
    """Images of a split that something was chosen, fitted or measured on."""

    data: DataSet
    split: Name
    number: Count


class Figures(Fact):
    """What a network scored on a number of images, by metric; None where a metric has no value."""

    images: Count
    values: Annotated[dict[Name, float | None], Field(max_length=1000)]


class Gain(Fact):
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

    @property
    def improvement(self) -> Improvement:
        """What people are shown: positive is better, whatever the metric."""
        return Improvement.of(self.difference, self.low, self.high, higher_is_better=self.higher_is_better)


Gains = Annotated[tuple[Gain, ...], Field(max_length=1000)]
