"""How much the runs of a study vary, from their logits to the page."""

from __future__ import annotations

import csv
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy import stats

from surgeon.core.errors import SurgeonError
from surgeon.metrics.variability import MEASURES
from surgeon.report import variability as report
from surgeon.report.study import study_files
from surgeon.results import Study, StudyVariability
from surgeon.studies.definition import Definition
from surgeon.studies.file import check_study
from surgeon.studies.folder import StudyFolder, begin, only_study_in
from surgeon.studies.table import table_of

IMAGES, CLASSES, SEEDS = 80, 4, 4
LABELS = torch.randint(CLASSES, (IMAGES,), generator=torch.Generator().manual_seed(9))
CONTENT: dict[str, Any] = {
    "model": "digits-resnet8",
    "data": "digits",
    "variants": {"all": None, "order": {"varies": "order_seed"}, "cycles": {"epochs": 4, "snapshots": 2}},
    "seeds": SEEDS,
    "evaluations": {"test": {"features": True}, "members": {"ensemble": "snapshots"}},
    "comparisons": {},
}
SPREAD = {"all": 1.0, "order": 0.3, "cycles": 1.2}


def logits(number: int, spread: float) -> torch.Tensor:
    """What all runs have in common, and what is particular to each."""
    common = torch.randn(IMAGES, CLASSES, generator=torch.Generator().manual_seed(8))
    own = torch.randn(IMAGES, CLASSES, generator=torch.Generator().manual_seed(number))
    return common + spread * own + torch.nn.functional.one_hot(LABELS, CLASSES)


def definition(**changes: Any) -> Definition:
    return check_study({**CONTENT, **changes}, Path("mine.yaml"))


def save(file: Path, values: torch.Tensor, with_features: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    tensors = {"logits": values, "labels": LABELS, "indices": torch.arange(IMAGES)}
    save_file(tensors | ({"features": values[:, :3].clone()} if with_features else {}), file)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    """A study whose runs and evaluations have left what the table reads."""
    place, study = StudyFolder(tmp_path), definition()
    with only_study_in(place):
        begin(place, study, overwrite=False)
    for number, variant in enumerate(SPREAD):
        for seed in range(SEEDS):
            run = f"{variant}-{seed}"
            drawn = logits(10 * number + seed, SPREAD[variant])
            save(place.evaluations(run) / "test--checkpoint.safetensors", drawn, with_features=True)
            if variant == "cycles":
                for part in (1, 2):
                    member = logits(100 * part + seed, SPREAD[variant])
                    save(place.evaluations(run) / f"members--snapshot-{part}.safetensors", member)
    return place


def row(result: Study, cell: str, measure: str) -> StudyVariability:
    return next(one for one in result.variability if (report.key(one), one.measure) == (cell, measure))


def disagreement(values: list[torch.Tensor]) -> float:
    return float(100 * np.mean([(a.argmax(1) != b.argmax(1)).double().mean() for a, b in combinations(values, 2)]))


def test_every_figure_is_of_the_logits_that_the_runs_have_left(folder: StudyFolder) -> None:
    result = table_of(folder.definition(), folder)
    assert result.variability_reference == "all/test"
    assert {report.key(one) for one in result.variability} == {
        "all/test",
        "order/test",
        "cycles/test",
        "cycles/members",
    }
    # Features are there in one evaluation only.
    assert result.variability_comparisons == 6 + 6 + 5
    mine, theirs = ([logits(10 * n + seed, spread) for seed in range(SEEDS)] for n, spread in ((1, 0.3), (0, 1.0)))
    found = row(result, "order/test", "disagreement")
    assert (found.runs, found.images, found.is_source, found.averages) == (SEEDS, IMAGES, True, False)
    assert found.value == pytest.approx(disagreement(mine))
    assert found.ratio == pytest.approx(disagreement(mine) / disagreement(theirs))
    logs = [
        np.log(disagreement(mine[:left] + mine[left + 1 :]) / disagreement(theirs[:left] + theirs[left + 1 :]))
        for left in range(SEEDS)
    ]
    assert found.ratio is not None
    pseudo = SEEDS * np.log(found.ratio) - (SEEDS - 1) * np.array(logs)
    for bounds, share in ((found.ratio_over_runs, 0.95), (found.family_ratio, 1 - 0.05 / 17)):
        assert bounds is not None
        expected = np.exp(stats.t.interval(share, SEEDS - 1, pseudo.mean(), stats.sem(pseudo)))
        assert (bounds.low, bounds.high) == pytest.approx(expected)
    members = [(logits(100 + seed, 1.2) + logits(200 + seed, 1.2)) / 2 for seed in range(SEEDS)]
    averaged = row(result, "cycles/members", "disagreement")
    assert averaged.value == pytest.approx(disagreement(members))
    assert (averaged.is_source, averaged.averages) == (False, True)
    right = [100 * float((one.argmax(1) == LABELS).double().mean()) for one in theirs]
    deviation = row(result, "all/test", "accuracy-sd")
    assert deviation.value == pytest.approx(np.std(right))
    assert (deviation.ratio, deviation.verdict) == (None, "")


def test_ratios_are_of_the_seeds_that_both_have(folder: StudyFolder) -> None:
    (folder.evaluations("order-1") / "test--checkpoint.safetensors").unlink()
    result = table_of(folder.definition(), folder)
    kept = [0, 2, 3]
    mine, theirs = ([logits(10 * n + seed, spread) for seed in kept] for n, spread in ((1, 0.3), (0, 1.0)))
    found = row(result, "order/test", "disagreement")
    assert found.runs == 3
    assert found.ratio == pytest.approx(disagreement(mine) / disagreement(theirs))
    assert row(result, "all/test", "disagreement").runs == SEEDS


def test_one_run_is_not_compared_and_two_have_no_interval(folder: StudyFolder) -> None:
    for seed in (1, 2, 3):
        (folder.evaluations(f"cycles-{seed}") / "test--checkpoint.safetensors").unlink()
    for seed in (2, 3):
        (folder.evaluations(f"order-{seed}") / "test--checkpoint.safetensors").unlink()
    result = table_of(folder.definition(), folder)
    assert "cycles/test" not in {report.key(one) for one in result.variability}
    assert {one.verdict for one in result.variability if one.variant == "order"} == {"fewer than 3 runs"}
    assert row(result, "order/test", "disagreement").over_runs is None


def test_runs_that_are_equal_are_told_as_such(folder: StudyFolder) -> None:
    for seed in range(SEEDS):
        save(folder.evaluations(f"order-{seed}") / "test--checkpoint.safetensors", logits(10, 0.3), with_features=True)
    result = table_of(folder.definition(), folder)
    found = row(result, "order/test", "disagreement")
    assert (found.value, found.ratio, found.verdict) == (0, 0, "runs are equal")
    study_files(result)["report.html"](folder.path / "page.html")


def test_a_broken_run_is_told_and_nothing_fails(folder: StudyFolder) -> None:
    values = torch.full((IMAGES, CLASSES), torch.nan)
    save(folder.evaluations("order-1") / "test--checkpoint.safetensors", values, with_features=True)
    result = table_of(folder.definition(), folder)
    assert row(result, "order/test", "disagreement").verdict == "no ratio"
    assert Study.model_validate(json.loads(result.model_dump_json())).variability_comparisons == 17
    for name, write in study_files(result).items():
        write(folder.path / name)
    assert "not finite" in (folder.path / "report.html").read_text()


def test_page_picture_and_table(folder: StudyFolder) -> None:
    result = table_of(folder.definition(), folder)
    files = study_files(result)
    for name in ("variability.png", "variability.csv", "report.html"):
        files[name](folder.path / name)
    lines = list(csv.DictReader((folder.path / "variability.csv").read_text().splitlines()))
    assert [float(line["value"]) for line in lines] == [one.value for one in result.variability]
    page = (folder.path / "report.html").read_text()
    shown = [one for one in result.variability if one.ratio is not None or report.key(one) == "all/test"]
    assert page.count('<g class="tile"') == len(shown) > 18
    assert "only the pattern can be compared" in page
    chart = report.heat_map(result)
    assert chart is not None
    assert [cell.written for cell in chart.cells if cell.original] == ["1.00"] * 6
    statements = {what: here for what, _, here in report.beside_published(result)}
    of_order, of_members = (row(result, cell, "disagreement").ratio for cell in ("order/test", "cycles/members"))
    assert of_order is not None
    assert of_members is not None
    assert statements["One source alone, times all: disagreement"] == f"{of_order:.2f}"
    assert statements["cycles, members: disagreement"].startswith(f"{100 * (1 - of_members):.0f}% less (95%: ")


@pytest.mark.parametrize("columns", ["100", "160"])
def test_a_terminal_breaks_no_measure_and_no_number(
    columns: str, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    result = table_of(folder.definition(), folder)
    text = str(result)
    for one in result.variability:
        measure = MEASURES[one.measure]
        assert measure.shown.heading.split()[-1] in text
        assert report.value_text(measure, one) in text


def test_it_is_shown_where_a_source_varies_or_where_it_is_asked_for() -> None:
    plain = {"variants": {"one": None, "two": None}, "evaluations": {"all": {"ensemble": "seeds"}, "test": None}}
    assert definition(**plain).variability is None
    assert str(definition(**plain, variability=True).variability) == "one/test"
    assert str(definition(**plain, variability="two").variability) == "two/test"
    assert str(definition(**plain, variability="two/test").variability) == "two/test"
    assert str(definition().variability) == "all/test"
    assert definition(variability=False).variability is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"variability": "al"}, "variability: there is no 'al' that leaves the logits"),
        ({"variability": 3}, "variability=3"),
        ({"variability": True, "evaluations": {"test": {"ensemble": "seeds"}}}, "there is nothing that leaves"),
        ({"evaluations": {"test": {"features": True, "tta": "flip"}}}, "one network, in one view of plain images"),
        ({"evaluations": {"test": {"features": True, "under": "fog"}}}, "one network, in one view of plain images"),
        ({"evaluations": {"test": {"features": 1}}}, "evaluations.test.features=1"),
    ],
)
def test_a_mistake_is_told(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SurgeonError) as error:
        definition(**changes)
    assert says in error.value.message


def test_an_evaluation_of_a_version_that_knew_fewer_keys_is_not_done_again(folder: StudyFolder) -> None:
    record = json.loads((folder.path / "study.json").read_text())
    for one in record["evaluations"].values():
        del one["tta"]
    del record["evaluations"]["members"]["features"]
    (folder.path / "study.json").write_text(json.dumps(record))
    with only_study_in(folder):
        assert begin(folder, definition(), overwrite=False) == []
    assert (folder.evaluations("cycles-0") / "members--snapshot-1.safetensors").is_file()
