"""What the words and numbers of a page mean, in a sentence or two; docs/explain.md has the pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import NamedTuple

from surgeon.metrics import in_order
from surgeon.metrics.variability import MEASURES


class Meaning(NamedTuple):
    """What a page calls something, and what that is."""

    term: str
    sentence: str


OF_PAGES = (
    Meaning(
        "95% interval",
        "Contains the figure for all images of this kind in 95 of 100 samples. It covers chance in which images were "
        "measured, not images of another kind, wrong labels or another training run.",
    ),
    Meaning(
        "gain",
        "A difference on the same images, such that positive is better. Its interval is narrower than the intervals of "
        "the two figures suggest.",
    ),
    Meaning(
        "not significant",
        "The interval of a difference contains zero: the data do not tell which is better. More images may tell.",
    ),
    Meaning(
        "corrected",
        "Wider, for the number of comparisons (Bonferroni): of many, the best looks good by chance alone.",
    ),
    Meaning("flattering", "The setting was chosen on these images, so its figures on them are too good."),
    Meaning(
        "dropped early",
        "A race stops values that are behind. Their figures are the original's plus the gain on the images that they "
        "have seen.",
    ),
    Meaning(
        "temperature",
        "All logits are divided by it. Above 1 the network was overconfident, below 1 underconfident. The order of the "
        "classes stays.",
    ),
    Meaning("mean confidence", "The mean probability of the predicted class, right or wrong."),
    Meaning("prior", "The weight of the old statistics, as a number of images."),
    Meaning("distance", "How far the statistics of the images are from the stored ones, without sampling noise."),
    Meaning("uCE", "The error, averaged over the severities of each corruption, then over the corruptions."),
    Meaning("increase over clean error", "The mean error over corruptions minus the error on clean images."),
    Meaning(
        "mCE",
        "The mean after each corruption's error was divided by AlexNet's (Hendrycks and Dietterich, ICLR 2019, table "
        "of their evaluation code). Relative mCE divides the increase of the error over that on clean images.",
    ),
    Meaning("over seeds", "What other training runs would give on the same images."),
    Meaning("over images", "What the same runs would give on other images."),
)


def meanings_in(page: str) -> list[Meaning]:
    """Of the terms that a page shows, given as HTML."""
    text = " ".join(unescape(re.sub("<[^>]*>", " ", page)).replace("\N{WORD JOINER}", "").split())
    return list(dict.fromkeys(meaning for term, meaning in _known() if _occurs(term, text)))


def _occurs(term: str, text: str) -> bool:
    """As whole words, perhaps at the beginning of a sentence."""
    return bool(re.search(rf"(?<![\w-])(?i:{re.escape(term[0])}){re.escape(term[1:])}(?![\w-])", text))


def _known() -> Iterator[tuple[str, Meaning]]:
    """Every term that there is a meaning of. Metrics and measures of variability say themselves what they are."""
    told = [(one.shown, one.summary) for one in in_order()]
    told += [(one.shown, one.summary) for one in MEASURES.values()]
    for shown, summary in told:
        named = shown.label if shown.heading in shown.label else f"{shown.label} ({shown.heading})"
        yield from ((term, Meaning(named, summary)) for term in (shown.label, shown.heading))
    yield from ((one.term, one) for one in OF_PAGES)
