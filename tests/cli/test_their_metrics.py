"""Metrics, views and swept options of a package of others: as visible and as useful as ours, without an edit here."""

from __future__ import annotations

import json
import math
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from surgeon.checkpoint import open_model
from surgeon.commands.listing import REGISTRIES
from surgeon.data.digits import load_digits
from surgeon.metrics import in_order
from surgeon.report.evaluation import evaluation_picture
from surgeon.results import Evaluation
from tests.cli.running import document, done, operations, refusal
from tests.cli.test_completion import SURGEON
from tests.cli.test_ensemble import members  # noqa: F401
from tests.cli.test_plugins import Surgeon, install

PLUGIN = Path(__file__).parents[1] / "plugin"
GROUPS = {"their_figures": "surgeon.metrics", "their_views": "surgeon.views", "their_sweep": "surgeon.norms"}
FIGURES = {"their-sure-share": "share that is sure and right", "their-surprise": "mean surprise"}
BETTER = {"their-surprise": "↓", "their-sure-share": "↑"}
DIGITS = ("digits-resnet8", "--data", "digits", "--limit", "120")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Surgeon:
    """surgeon where their packages are installed."""
    folder = tmp_path_factory.mktemp("packages")
    for module, group in GROUPS.items():
        surgeon = install(folder, module.replace("_", "-"), (PLUGIN / f"{module}.py").read_text("utf-8"), (group,))
    return surgeon


@pytest.fixture
def here_too() -> Iterator[None]:
    """Their things in this process, for a while."""
    registries = [REGISTRIES[name].registry for name in ("metrics", "views", "norms")]
    before = [set(registry) for registry in registries]
    for module in GROUPS:
        runpy.run_path(str(PLUGIN / f"{module}.py"))
    yield
    for registry, names in zip(registries, before, strict=True):
        for name in set(registry) - names:
            registry.forget(name)


def completed(surgeon: Surgeon, line: str) -> list[str]:
    asked = {"_SURGEON_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    told = subprocess.run(
        [sys.executable, "-c", SURGEON], env=os.environ | surgeon.keywords | asked, capture_output=True, text=True
    )
    return told.stdout.split()


def test_they_are_listed_completed_and_named_by_help(theirs: Surgeon) -> None:
    """In processes of their own, which do not wait for torch."""
    metrics = {one["name"]: one for one in json.loads(theirs("ls", "metrics", "--json").stdout)}
    assert metrics["their-surprise"]["better"] == "lower"
    assert metrics["their-surprise"]["label"] == "mean surprise"
    views = {one["name"]: one for one in json.loads(theirs("ls", "views", "--json").stdout)}
    assert views["their-dimmed"]["views"] == 3
    assert [option["name"] for option in views["their-dimmed"]["options"]] == ["steps"]
    assert completed(theirs, "surgeon sweep x --metric their-su") == ["their-sure-share", "their-surprise"]
    assert completed(theirs, "surgeon eval x --tta their") == ["their-dimmed"]
    assert completed(theirs, "surgeon sweep x --sweep their") == ["their-percent.percent="]
    help_of_sweep = theirs("sweep", "--help", COLUMNS="200").stdout
    assert "their-surprise" in help_of_sweep
    assert "their-dimmed" in help_of_sweep


@pytest.mark.usefixtures("here_too")
def test_eval_shows_them_in_table_json_page_and_picture(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = done("eval", *DIGITS, "--tta", "their-dimmed:steps=1", "-o", "run")
    result = json.loads((here / "run" / "result.json").read_text("utf-8"))
    figures, intervals = result["metrics"], result["intervals"]
    assert result["views"] == 2
    assert figures["their_surprise"] == pytest.approx(figures["cross_entropy"] / math.log(2))
    shown = {
        "their-surprise": f"{figures['their_surprise']:.3f} bit",
        "their-sure-share": f"{figures['their_sure_share']:.1%}",
    }
    page = (here / "run" / "report.html").read_text("utf-8")
    for name, label in FIGURES.items():
        low, high = intervals[name]
        assert low <= figures[name.replace("-", "_")] <= high
        (line,) = (line for line in outcome.stdout.splitlines() if label in line)
        assert shown[name] in line
        assert f'<th scope="row">{label}\N{NO-BREAK SPACE}{BETTER[name]}</th><td data-metric="{name}"' in page
        assert f">{shown[name]}</td>" in page
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    evaluation_picture(Evaluation.model_validate(result), here / "picture.png")
    texts = [text.get_text() for axes in drawn[0].axes for text in axes.texts]
    assert {*(f"{label} {BETTER[name]}" for name, label in FIGURES.items()), *shown.values()} <= set(texts)


def test_a_sweep_by_their_metric_with_their_views(theirs: Surgeon, here: Path) -> None:
    arguments = (*DIGITS, "--alpha", "0,0.1,0.3", "--metric", "their-surprise", "--tta", "their-dimmed:steps=1")
    outcome = theirs("sweep", *arguments, "--method", "grid", "-o", "run")
    assert outcome.code == 0, outcome.stderr
    result = json.loads((here / "run" / "result.json").read_text("utf-8"))
    assert (result["metric"], result["higher_is_better"], result["views"]) == ("their-surprise", False, 2)
    best = min(result["points"], key=lambda point: point["metrics"]["cross_entropy"])
    assert result["chosen"] == best["value"], "the same order as that of the cross-entropy"
    assert "gain in surprise" in outcome.stdout
    assert "sure and right" in outcome.stdout
    assert "mean surprise (bit) by alpha" in outcome.stderr
    gain = next(point["gain"]["difference"] for point in result["points"] if point["gain"])
    assert f"{-gain:+.3f} bit (95%: " in outcome.stdout, "positive is better"
    page = (here / "run" / "report.html").read_text("utf-8")
    assert '<h3 id="their-surprise-heading">Mean surprise\N{NO-BREAK SPACE}↓</h3>' in page
    assert "gain in mean surprise" in page
    assert page.count('data-metric="their-sure-share"') == 3 + 2, "of every value and of every setting"


@pytest.mark.usefixtures("here_too")
def test_their_option_is_swept_as_ours() -> None:
    """Alpha in percent is alpha: the same figures, point by point."""
    grid = ("--method", "grid", "--force", "-o")
    ours = document("sweep", *DIGITS, "--alpha", "0,0.1,0.3", *grid, "ours")
    theirs = document("sweep", *DIGITS, "--sweep", "their-percent.percent=0,10,30", *grid, "theirs")
    assert theirs["axis"] == "their-percent.percent"
    assert [point["value"] for point in theirs["points"]] == [100 * point["value"] for point in ours["points"]]
    assert [point["metrics"] for point in theirs["points"]] == [point["metrics"] for point in ours["points"]]
    assert theirs["chosen"] == 100 * ours["chosen"] > 0
    stored = [rewrites["their-percent"] for rewrites in operations(Path("theirs/checkpoint")).values()]
    assert stored == [{"percent": theirs["chosen"]}] * len(stored)
    again = document("eval", "theirs/checkpoint", "--data", "digits", "--split", ours["split"], "--limit", "120")
    chosen = next(point for point in theirs["points"] if point["value"] == theirs["chosen"])
    assert again["metrics"]["cross_entropy"] == pytest.approx(chosen["metrics"]["cross_entropy"], rel=1e-6)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--sweep", "ghost.size=1,2"), "cannot try 'ghost.size'"),
        (("--sweep", "example-weighted.alpa=0,1"), "Did you mean example-weighted.alpha?"),
        (("--sweep", "ghost"), "cannot try 'ghost'"),
        (("--sweep", "example-weighted.alpha=0,2"), "less than or equal to 1"),
        (("--sweep", "example-weighted.alpha=0,0.1", "--alpha", "0,0.1"), "alpha is swept twice"),
        (("--tta", "crop:shift=3"), "The view 'crop' cannot take shift='3'"),
        (("--tta", "crop:shft=0.1"), "Did you mean shift?"),
        (("--tta", "flip:shift=0.1"), "The view 'flip' has no option"),
    ],
)
def test_what_cannot_be_swept_or_seen_is_refused(given: tuple[str, ...], says: str) -> None:
    assert says in refusal("sweep", *DIGITS, *given)


@pytest.mark.usefixtures("here_too")
def test_ensemble_and_finetune_show_them(members: list[Path]) -> None:  # noqa: F811
    told = done("ensemble", *members[:2], "--data", "digits", "--limit", "100", "-o", "ensemble").stdout
    assert "surprise" in told
    page = Path("ensemble/report.html").read_text("utf-8")
    assert page.count('data-metric="their-surprise"') == 3, "two members and their average"
    small = ("--epochs", "1", "--limit", "60", "--set", "sweep=null")
    told = done("finetune", "digits-resnet8", "--data", "digits", *small, "-o", "run").stdout
    assert "surprise" in told
    page = Path("run/report.html").read_text("utf-8")
    measured = {one["split"] for one in json.loads(Path("run/result.json").read_text("utf-8"))["figures"]}
    assert page.count('data-metric="their-surprise"') == len(measured) + 1, "each split, and the epoch"


@pytest.mark.usefixtures("here_too")
def test_their_views_are_those_of_their_formula() -> None:
    told = document("eval", "digits-resnet8", "--data", "digits", "--tta", "their-dimmed:steps=3")
    images, labels = load_digits("test")
    network = open_model("digits-resnet8").model
    with torch.inference_mode():
        mean = torch.stack([network(images * (1 - 0.1 * step)) for step in range(4)]).double().mean(0)
    assert told["metrics"]["cross_entropy"] == pytest.approx(
        torch.nn.functional.cross_entropy(mean, labels).item(), rel=1e-5
    )


@pytest.mark.usefixtures("here_too")
def test_a_record_of_before_is_read() -> None:
    """Where added metrics were held apart, and where one was not there yet."""
    told: dict[str, Any] = document("eval", *DIGITS)
    figures = told["metrics"]
    old = {key: value for key, value in figures.items() if not key.startswith("their_")}
    read = Evaluation.model_validate({**told, "metrics": old | {"others": {"their-surprise": 1.5}}}).metrics
    assert read.value("their-surprise") == 1.5
    assert read.value("their-sure-share") is None
    assert read.accuracy == figures["accuracy"]


@pytest.mark.usefixtures("here_too")
@pytest.mark.parametrize("width", [80, 160])
def test_an_ensemble_shows_every_metric_at_any_width(
    width: int,
    members: list[Path],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("surgeon.cli.output.PIPED_WIDTH", width)
    told = done("ensemble", *members[:2], "--data", "digits", "--limit", "100").stdout
    assert max(map(len, told.splitlines())) <= width
    assert "…" not in told
    words = set(told.replace("-", " ").split())
    of_classes = [metric for metric in in_order() if metric.applies_to_masks(False)]
    for metric in of_classes:
        assert set(metric.shown.heading.replace("-", " ").split()) <= words, metric.name
