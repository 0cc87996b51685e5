"""Every page says what its words and numbers mean, and only those."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from surgeon.metrics import in_order
from surgeon.metrics.variability import MEASURES
from surgeon.report.ensemble import ensemble_page
from surgeon.report.evaluation import evaluation_page
from surgeon.report.meanings import OF_PAGES, meanings_in
from surgeon.report.sweep import sweep_page
from surgeon.report.training import training_page
from tests.unit.ensemble_record import ensemble
from tests.unit.evaluation_record import evaluation
from tests.unit.sweep_record import sweep
from tests.unit.training_record import run

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "eval": evaluation_page(evaluation()),
    "sweep": sweep_page(sweep()),
    "finetune": training_page(run()),
    "ensemble": ensemble_page(ensemble()),
}


def told(html: str) -> dict[str, str]:
    fold = html.partition("What these numbers mean</summary>")[2].partition("</details>")[0]
    return {unescape(term): unescape(said) for term, said in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", fold)}


@pytest.mark.parametrize("page", PAGES)
def test_the_metrics_of_a_page_are_explained_by_their_own_summary(page: str) -> None:
    sentences = told(PAGES[page]).values()
    assert [metric.name for metric in in_order() if metric.summary not in sentences] == ["iou"]


def test_a_page_explains_what_it_shows_and_nothing_else() -> None:
    assert "flattering" in told(PAGES["sweep"])
    assert "flattering" not in told(PAGES["eval"])
    assert told(PAGES["ensemble"])["disagreement"] == MEASURES["disagreement"].summary
    assert "disagreement" not in told(PAGES["sweep"])
    assert "mCE" not in told(PAGES["eval"])


def test_terms_are_found_as_whole_words_in_what_people_read() -> None:
    found = {
        one.term
        for one in meanings_in('<p title="mCE">a <b>gain</b>, uCEs; <img alt="prior">ECE\N{NO-BREAK SPACE}↓</p>')
    }
    assert found == {"gain", "calibration error (ECE)"}
    assert {one.term for one in meanings_in("relative mCE")} == {"mCE"}


def test_a_metric_with_two_names_is_explained_once_under_both() -> None:
    (meaning,) = meanings_in("at best temperature, cross-entropy after temperature scaling")[1:2]
    assert meaning.term == "cross-entropy after temperature scaling (at best temperature)"


def test_every_term_is_in_the_page_that_explains_the_numbers() -> None:
    page = (DOCS / "explain.md").read_text("utf-8")
    assert [one.term for one in OF_PAGES if one.term not in page] == []
