"""The pages of every command in a real browser: they run, show their numbers, fit a phone, and have a dark side."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from surgeon.report.ensemble import ensemble_page
from surgeon.report.evaluation import evaluation_page
from surgeon.report.sweep import sweep_page
from surgeon.report.training import training_page
from surgeon.results import Ensemble, Evaluation, FineTuning, Sweep
from tests.unit.ensemble_record import NAMES, ensemble
from tests.unit.evaluation_record import evaluation
from tests.unit.sweep_record import sweep
from tests.unit.training_record import in_cycles

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium or Chrome")

LONG_NAME = "a_model_with_a_very_long_name_that_nobody_would_want_to_type.some_tag_in1k"
Record = Sweep | Evaluation | FineTuning | Ensemble
# With a long name where there is one, and how the page is made.
PAGES: dict[str, tuple[Record, Callable[..., str]]] = {
    "sweep": (sweep(model=LONG_NAME), sweep_page),
    "eval": (evaluation(model=LONG_NAME), evaluation_page),
    "finetune": (in_cycles().model_copy(update={"model": LONG_NAME}), training_page),
    "ensemble": (ensemble(best=NAMES[2]), ensemble_page),
}

WINDOW = """<!DOCTYPE html>
<script>onmessage = event => { document.getElementById("told").textContent = event.data; };</script>
<p id="told"></p><iframe src="page.html" style="width: WIDTHpx; height: 800px; border: 0"></iframe>"""
PHONE_WIDTH, LAPTOP_WIDTH = 375, 1280
LIGHT, DARK = 1, 0  # Chromium's own numbers


def open_in_browser(page: Path, profile: Path, scheme: int = LIGHT) -> str:
    """The page's DOM after its scripts ran; the console must have said nothing."""
    assert BROWSER is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
    own = [
        "--virtual-time-budget=1000",
        f"--user-data-dir={profile}",
        f"--blink-settings=preferredColorScheme={scheme}",
    ]
    command = [BROWSER, *options, *quiet, *own, "--dump-dom", page.as_uri()]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert re.findall(r".*CONSOLE.*", run.stderr) == []
    return run.stdout


def asked(page: Path, question: str, profile: Path, scheme: int = LIGHT, width: int = PHONE_WIDTH) -> str:
    """What a script at the end of the page answers, in a window so wide."""
    html = page.read_text("utf-8")
    page.write_text(html.replace("</body>", f"<script>parent.postMessage({question}, '*')</script></body>"), "utf-8")
    window = page.with_name("window.html")
    window.write_text(WINDOW.replace("WIDTH", str(width)), "utf-8")
    (told,) = re.findall(r'<p id="told">(.*?)</p>', open_in_browser(window, profile, scheme))
    return str(told)


@pytest.fixture(params=PAGES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def page(kind: str, tmp_path: Path) -> Path:
    record, made = PAGES[kind]
    file = tmp_path / "page.html"
    file.write_text(made(record), "utf-8")
    return file


def figures_of(record: Record) -> list[float]:
    """Numbers that people look for in a page."""
    if isinstance(record, Sweep):
        return [value for point in record.points for value in (point.metrics.accuracy, point.metrics.cross_entropy)]
    if isinstance(record, FineTuning):
        return [value for epoch in record.epochs for value in (epoch.loss, epoch.accuracy)]
    if isinstance(record, Ensemble):
        return [one.metrics.accuracy for one in (*record.members, *record.combinations)]
    assert record.breakdown is not None
    return [one.accuracy for one in (*record.breakdown.classes, *record.breakdown.bins)]


def test_it_runs_without_errors_and_shows_the_numbers(kind: str, page: Path, tmp_path: Path) -> None:
    record, _ = PAGES[kind]
    dom = open_in_browser(page, tmp_path / "profile")
    shown = set(re.findall(r'data-value="([^"]*)"', dom))
    assert figures_of(record)
    assert {repr(value) for value in figures_of(record)} <= shown
    assert not re.search(r'<g class="(dot|column)[^>]*><title>', dom), "the script made tooltips of the titles"
    embedded = re.search(r'id="result">(.*?)</script>', dom, re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1]) == json.loads(record.model_dump_json())


def test_no_table_scrolls_where_there_is_room(page: Path, tmp_path: Path) -> None:
    scrolling = "[...document.querySelectorAll('.table')].filter(box => box.scrollWidth > box.clientWidth + 1)"
    labels = f"{scrolling}.map(box => box.getAttribute('aria-label')).join()"
    assert asked(page, labels, tmp_path / "profile", width=LAPTOP_WIDTH) == ""


def test_it_fits_a_phone(page: Path, tmp_path: Path) -> None:
    assert asked(page, "document.documentElement.scrollWidth", tmp_path / "profile") == "375"


@pytest.mark.parametrize(("scheme", "dark"), [(LIGHT, False), (DARK, True)])
def test_it_is_as_light_or_dark_as_the_system(scheme: int, dark: bool, page: Path, tmp_path: Path) -> None:
    colour = asked(page, "getComputedStyle(document.body).backgroundColor", tmp_path / "profile", scheme)
    brightness = sum(map(int, re.findall(r"\d+", colour)[:3])) / 3
    assert (brightness < 64) is dark
    assert (brightness > 192) is not dark


def test_it_asks_for_nothing_from_elsewhere(page: Path) -> None:
    html = page.read_text("utf-8")
    # Another page of the same run may be linked, by a path below it.
    assert re.findall(r'src="(?!data:)[^"]*"|href="(?!#|data:|[a-z-]+/report\.html")[^"]*"', html) == []
    assert not re.search(r"@import|url\((?!['\"]?(?:data:|#))", html)
