"""The pages of a sweep and of an evaluation in a real browser: they run, show their numbers and fit a phone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from surgeon.report.evaluation import evaluation_page
from surgeon.report.page import sweep_page
from tests.unit.evaluation_record import evaluation
from tests.unit.sweep_record import sweep

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium or Chrome")

PHONE = """<!DOCTYPE html>
<script>onmessage = event => { document.getElementById("width").textContent = event.data; };</script>
<p id="width"></p><iframe src="page.html" style="width: 375px; height: 800px; border: 0"></iframe>"""


def open_in_browser(page: Path, profile: Path) -> tuple[str, list[str]]:
    """The page's DOM after its scripts ran, and what the console said."""
    assert BROWSER is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    command = [
        BROWSER,
        *options,
        "--virtual-time-budget=1000",
        f"--user-data-dir={profile}",
        "--dump-dom",
        page.as_uri(),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return run.stdout, re.findall(r".*CONSOLE.*", run.stderr)


def test_it_runs_without_errors_and_shows_the_numbers(tmp_path: Path) -> None:
    record = sweep()
    page = tmp_path / "page.html"
    page.write_text(sweep_page(record), encoding="utf-8")
    dom, console = open_in_browser(page, tmp_path / "profile")
    assert console == []
    for swept in record.points:
        assert f'data-value="{swept.metrics.accuracy!r}">{swept.metrics.accuracy:.2%}</td>' in dom
        assert f'data-value="{swept.metrics.cross_entropy!r}">{swept.metrics.cross_entropy:.4f}</td>' in dom
    assert '<g class="dot chosen" data-x="0.3"' in dom
    assert not re.search(r'<g class="dot[^>]*><title>', dom), "the script made tooltips of the titles"
    embedded = re.search(r'id="result">(.*?)</script>', dom, re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1]) == json.loads(record.model_dump_json())


def test_an_evaluation_runs_without_errors_and_shows_the_numbers(tmp_path: Path) -> None:
    record = evaluation()
    page = tmp_path / "page.html"
    page.write_text(evaluation_page(record), encoding="utf-8")
    dom, console = open_in_browser(page, tmp_path / "profile")
    assert console == []
    assert record.breakdown is not None
    for one in (*record.breakdown.classes, *record.breakdown.bins):
        assert f'data-value="{one.accuracy!r}">{one.accuracy:.2%}</td>' in dom
    for name in ("accuracy", "ece"):
        assert f'data-metric="{name}" data-value="{record.metrics.value(name)!r}"' in dom
    assert not re.search(r'<g class="(dot|column)[^>]*><title>', dom), "the script made tooltips of the titles"
    embedded = re.search(r'id="result">(.*?)</script>', dom, re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1]) == json.loads(record.model_dump_json())


LONG_NAME = "a_model_with_a_very_long_name_that_nobody_would_want_to_type.some_tag_in1k"
PAGES = {
    "sweep": lambda: sweep_page(sweep(model=LONG_NAME)),
    "eval": lambda: evaluation_page(evaluation(model=LONG_NAME)),
}


@pytest.mark.parametrize("kind", PAGES)
def test_it_fits_a_phone(kind: str, tmp_path: Path) -> None:
    tells_its_width = "<script>parent.postMessage(document.documentElement.scrollWidth, '*')</script></body>"
    html = PAGES[kind]()
    (tmp_path / "page.html").write_text(html.replace("</body>", tells_its_width), encoding="utf-8")
    phone = tmp_path / "phone.html"
    phone.write_text(PHONE, encoding="utf-8")
    dom, console = open_in_browser(phone, tmp_path / "profile")
    assert console == []
    assert re.findall(r'<p id="width">(.*?)</p>', dom) == ["375"]
