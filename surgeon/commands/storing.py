"""Whether a setting is stored. One rule for every command that stores one.

A setting (alpha, lambda, a temperature) is stored only if its gain over the network without it is beyond noise:
if the 95% interval, on the same images, leaves zero out. A value that is the best of several on the very images
that its gain was measured on had several chances to look good, so the interval is widened for their number
(Bonferroni); held-out images need no such correction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from surgeon.report.wording import gain_text, label
from surgeon.results import Gain

ERROR = 0.025
"""How often an interval of 95% lies beyond zero on a given side by chance."""


@dataclass(frozen=True)
class Decision:
    """Whether a setting is stored, and why, in a sentence."""

    stored: bool
    reason: str
    forced: bool = False


def decide(setting: str, gain: Gain | None, *, tried: int = 1, force: bool = False) -> Decision:
    """Whether to store a setting.

    Args:
        setting: What it is called.
        gain: Over the network without it; None if it is the network without it.
        tried: Of how many settings it is the best on the images that the gain was measured on.
        force: Store it all the same.
    """
    if gain is None:
        return Decision(False, "Nothing is stored: the original network is best.")
    measured, name = gain_text(gain).removesuffix(", not significant"), label(gain.metric)
    if is_beyond_noise(gain, tried):
        return Decision(True, f"{setting} is stored: its gain in {name} is significant, {measured}.")
    if gain.better:
        why = f"corrected for the choice among {tried} values, its gain in {name} is not significant"
        of_the_best = gain_text(widened(gain, tried)).removesuffix(", not significant")
        measured = of_the_best.replace("95%", f"95% for the best of {tried}")
    else:
        why = f"its gain in {name} is {'not significant' if gain.within_noise else 'negative'}"
    if force:
        return Decision(True, f"{setting} is stored because of --force, although {why}, {measured}.", forced=True)
    return Decision(False, f"{setting} is not stored: {why}, {measured}.")


def is_beyond_noise(gain: Gain, tried: int = 1) -> bool:
    """Whether a gain is real, for the best of so many settings that were compared on the same images."""
    return widened(gain, tried).better


def widened(gain: Gain, tried: int) -> Gain:
    """The gain with the interval that it has as the best of so many settings on the same images."""
    one, several = (NormalDist().inv_cdf(1 - ERROR / number) for number in (1, max(tried, 1)))
    if not math.isfinite(gain.difference) or several == one:
        return gain
    low, high = (gain.difference + (end - gain.difference) * several / one for end in (gain.low, gain.high))
    return gain.model_copy(update={"low": low, "high": high})
