"""Settings of any network that compete by a score of the user's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from surgeon.measuring.books import Books
from surgeon.measuring.contest import Contest, Measurement
from surgeon.measuring.runner import Runner
from surgeon.metrics.own import OwnScores, ScoreFunction


class OwnMeasurement(Measurement):
    """Takes in one number per sample for every setting."""

    nothing = staticmethod(OwnScores)


class OwnContest(OwnMeasurement, Contest):
    """The setting with the highest mean wins."""


@dataclass
class OwnRunner(Runner):
    """Lets settings compete by a function of answers and targets."""

    score: ScoreFunction | None = None

    @property
    def books(self) -> Books:
        return replace(super().books, keep=lambda _: OwnScores(self.score))
