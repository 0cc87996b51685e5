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


def test_frequencies_are_drawn_once_as_a_map() -> None:
    record = measured("fourier")
    html = robustness_page(record)
    assert "Fourier sensitivity of" in html
    assert "Error by condition" not in html, "bars of as many frequencies show the same once more"
    (sentence,) = in_sentences(record)
    worst = max(record.networks[0].conditions, key=lambda one: one.error)
    assert worst.condition in sentence
    assert f"{worst.error:.2%}" in sentence


def test_checks_that_passed_are_folded_away_and_failed_ones_are_not() -> None:
    record = measured("fgsm", "pgd:steps=2", "pgd:eps=0.0,steps=2")
    network = record.networks[0]
    assert len(network.attack_checks) > 1
    checks = [one.model_copy(update={"passed": place > 0}) for place, one in enumerate(network.attack_checks)]
    html = robustness_page(
        record.model_copy(update={"networks": (network.model_copy(update={"attack_checks": tuple(checks)}),)})
    )
    shown, folded = html.partition('id="checks"')[2].partition("</section>")[0].split("<details>")
    assert checks[0].stronger in shown
    assert f"{len(checks) - 1} passed" in folded


def test_columns_without_a_number_are_left_out(record: Robustness) -> None:
    def headings(html: str) -> str:
        return html.partition('id="conditions-table"')[2].partition("</thead>")[0]

    assert "gain over clean" in headings(robustness_page(record))
    network = record.networks[0]
    conditions = tuple(one.model_copy(update={"against_clean": None}) for one in network.conditions)
    alone = record.model_copy(update={"networks": (network.model_copy(update={"conditions": conditions}),)})
    assert "gain over clean" not in headings(robustness_page(alone))
    assert "mean IoU" not in headings(robustness_page(record)), "images have none"
