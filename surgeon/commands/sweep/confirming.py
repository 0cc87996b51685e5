"""Several settings on the held-out images: which of them is best, and whether its gain is real.

The best single value, alphas per layer and alphas per channel are all measured there, and the best of them is
taken. Each would look better than the original 25 times in 1,000 if it is not, so the best of three would up to 75
times. Choosing among them on the images they were fitted on would be no way out, because the one with the most
numbers overfits them the most. So their intervals are widened for their number (Bonferroni): all of them together
contain the truth 95 times of 100, and whichever is best needs no further correction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

from surgeon.measuring.contest import merit
from surgeon.metrics import Metric
from surgeon.results import Gain, Setting

ERROR = 0.025  # how often an interval of 95% lies beyond the truth on a given side


def widened(gain: Gain, settings: int) -> Gain:
    """A gain with an interval for one of so many settings, each of which may be taken."""
    one, several = (NormalDist().inv_cdf(1 - ERROR / number) for number in (1, max(settings, 1)))
    if not math.isfinite(gain.difference):
        return gain
    low, high = (gain.difference + (bound - gain.difference) * several / one for bound in (gain.low, gain.high))
    return gain.model_copy(update={"low": low, "high": high})


def best_of(candidates: Sequence[str], original: str, metric: Metric, settings: Mapping[str, Setting]) -> str:
    """The best on the held-out images, of equal ones the simplest; the original where all were refuted."""
    gains = {name: settings[name].gain(metric.name) for name in candidates}
    holding_up = [name for name, gain in gains.items() if gain is None or gain.within_noise or gain.better]
    return max(holding_up or [original], key=lambda name: merit(metric, settings[name].reported))
