"""What a report on robustness says of the figures, and of those that were not measured."""

from __future__ import annotations

import pytest

import surgeon
from surgeon.report.robustness import robustness_page
from surgeon.report.robustness_text import in_sentences
from surgeon.results import Robustness

PART = "Not all fifteen corruptions at all severities: the mean is not the published uCE."
FROST = "Frost has surgeon's own texture, so the mean is not comparable with published figures."


def measured(*under: str) -> Robustness:
    return surgeon.robustness("digits-resnet8", "digits", under=under, limit=20)


@pytest.fixture(scope="module")
def record() -> Robustness:
    return measured("gaussian-noise:severity=3", "contrast", "speckle-noise:severity=5")


@pytest.mark.parametrize(
    ("complete", "made_here", "said"),
    [(False, True, {PART}), (False, False, {PART}), (True, True, {FROST}), (True, False, set())],
)
def test_means_that_are_not_the_published_ones_say_so(
    record: Robustness, complete: bool, made_here: bool, said: set[str]
) -> None:
    sentences = in_sentences(record.model_copy(update={"complete": complete, "made_here": made_here}))
    assert {PART, FROST} & set(sentences) == said


def test_the_worst_corruption_is_one_of_those_in_the_mean(record: Robustness) -> None:
    network = record.networks[0]
    raised = tuple(
        one.model_copy(update={"error": one.error.model_copy(update={"value": 1.0})}) if one.family == "extra" else one
        for one in network.corruptions
    )
    worst = record.model_copy(update={"networks": (network.model_copy(update={"corruptions": raised}),)})
    (sentence,) = [one for one in in_sentences(worst) if "worst of them" in one]
    assert not sentence.startswith("speckle-noise")


def test_one_corruption_is_not_called_the_worst() -> None:
    assert not [one for one in in_sentences(measured("contrast")) if "worst" in one]


def test_severities_without_a_figure_were_not_measured(record: Robustness) -> None:
    page = robustness_page(record)
    assert "Empty: 8, because not measured." in page
    assert "dropped early" not in page
