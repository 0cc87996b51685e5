"""Which part of a gain is confidence and which is ranking, in a sentence whose figures add up."""

from __future__ import annotations

import pytest

from surgeon.commands.sweep.verdict import in_sentences
from surgeon.results import Setting
from tests.unit.sweep_record import figures, gain


def told(cross_entropy: float, scaled: float) -> str:
    """Of a setting with these figures, where the original has 0.5 and 0.4."""
    original = Setting(name="original", choosing=figures(0, cross_entropy=0.5, scaled_cross_entropy=0.4))
    difference = {"difference": scaled - 0.4, "low": scaled - 0.41, "high": scaled - 0.39}
    gains = (gain("accuracy", 0.3), gain("scaled-cross-entropy", 0.3).model_copy(update=difference))
    after = figures(0.3, cross_entropy=cross_entropy, scaled_cross_entropy=scaled)
    best = Setting(name="alpha 0.3", choosing=after, gains=(*gains, gain("cross-entropy", 0.3)))
    return " ".join(in_sentences("alpha", "cross-entropy", original, best, [], best)[:2])


@pytest.mark.parametrize(
    ("cross_entropy", "scaled", "expected"),
    [
        (
            0.35,
            0.35,
            (
                "0.5000 → 0.3500",
                "gives 0.1000 of the gain in cross-entropy; the rest is better ranking",
                "0.4000 → 0.3500",
            ),
        ),
        (0.35, 0.42, ("gives all of the gain in cross-entropy; ranking is no better",)),
        (0.48, 0.35, ("0.5000 → 0.4800", "Ranking gains 0.0500", "confidence loses 0.0300")),
        (0.55, 0.35, ("No gain.",)),
    ],
)
def test_confidence_and_ranking_make_up_the_gain(
    cross_entropy: float, scaled: float, expected: tuple[str, ...]
) -> None:
    sentence = told(cross_entropy, scaled)
    assert [part for part in expected if part not in sentence] == [], sentence
    assert sentence.count("0.5000 → ") == 1, "a number is told once"


def test_a_better_value_that_the_bound_on_clean_images_bars_is_named() -> None:
    """Not: no value is better."""
    original = Setting(name="original", choosing=figures(0))
    kept, barred, *_ = in_sentences("alpha", "accuracy", original, original, [], original, barred="alpha 0.3")
    assert kept.startswith("No alpha within the bound on clean images beats the original network by accuracy")
    assert barred == "alpha 0.3 is best under the conditions, but loses more accuracy on clean images than allowed."
