"""What a command says when it cannot go on: the step that helps."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from surgeon.training.recipe import load_recipe
from surgeon.training.shortening import for_fewer_epochs
from tests.cli.running import done, invoke, refusal

NOWHERE = "There is no data 'nowhere': no such file or folder, and no known data set of that name."


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "resnet50"),
        ("sweep", "resnet50", "--alpha", "0:0.1:2"),
        ("recalibrate", "resnet50"),
        ("affinity", "resnet50"),
        ("robustness", "resnet50"),
        ("inspect", "resnet50"),
        ("finetune", "resnet50", "-o", "run"),
    ],
)
def test_wrong_data_is_noticed_before_weights_are_looked_for(
    command: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_for(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("surgeon.checkpoint.open_model", looked_for)
    assert refusal(*command, "--data", "nowhere").startswith(NOWHERE)
    assert not list(here.iterdir())


def test_a_known_name_is_suggested_for_data() -> None:
    assert "Did you mean cifar10" in refusal("eval", "digits-resnet8", "--data", "cifr10")


def test_part_of_a_metric_suggests_it() -> None:
    sweep = ("sweep", "digits-resnet8", "--data", "digits", "--alpha", "0:0.1:2")
    assert refusal(*sweep, "--metric", "acc") == "There is no metric 'acc'. Did you mean accuracy?"


def test_names_are_listed_by_a_part_of_them() -> None:
    names = done("ls", "models", "cifar").stdout.split()
    assert len(names) > 5
    assert all("cifar" in name for name in names)
    assert done("ls", "models", "resnet50").stdout == "resnet50\n"
    assert "example-weighted" in done("ls", "norms", "EXAMPLE").stdout
    assert refusal("ls", "models", "resnet5O").startswith("Nothing matches 'resnet5O'. Did you mean")


def test_an_unfinished_run_offers_to_be_resumed(here: Path) -> None:
    (here / "run").mkdir()
    (here / "run" / "run.json").write_text("{}", encoding="utf-8")
    told = refusal("finetune", "digits-resnet8", "--data", "digits", "-o", "run")
    assert told.startswith("run holds an unfinished run. --resume (in Python resume=True) continues it")


def test_merge_prints_where_it_has_written(here: Path) -> None:
    done("convert", "digits-resnet8", "--bn", "split", "-o", "two")
    assert done("merge", "two", "-o", "one").stdout == "one\n"
    assert (here / "one" / "surgery.json").is_file()


@pytest.mark.usefixtures("here")
def test_a_weights_file_as_model() -> None:
    done("convert", "digits-resnet8", "--bn", "example-weighted", "-o", "out")
    told = refusal("inspect", "out/model.safetensors")
    assert told.startswith("'out/model.safetensors' is a weights file. It fits digits-resnet8")
    assert told.endswith("surgeon inspect digits-resnet8 --weights out/model.safetensors")


def test_fewer_epochs_than_a_phase_takes() -> None:
    with pytest.warns(UserWarning, match="unmixed_epochs 0 instead of 4: the recipe has 20 epochs, and this run 2"):
        recipe = load_recipe("flowers102", {"epochs": 2})
    assert recipe.unmixed_epochs == 0
    told: list[str] = []
    assert load_recipe("flowers102", {"epochs": 5, "unmixed_epochs": 1}, told.append).unmixed_epochs == 1
    assert told == []
    outcome = invoke("finetune", "digits-resnet8", "--data", "digits", "--recipe", "flowers102", "--epochs", "2",
                     "--dry-run", "-o", "run")  # fmt: skip
    assert outcome.code == 0, outcome.stderr
    assert "note: unmixed_epochs 0 instead of 4" in outcome.stderr


def test_what_is_shortened() -> None:
    recipe = {"epochs": 20, "unmixed_epochs": 10, "warmup_epochs": 4}
    assert for_fewer_epochs(recipe, {"epochs": 8})[0] == {"unmixed_epochs": 4}
    assert for_fewer_epochs(recipe, {"epochs": 2})[0] == {"unmixed_epochs": 1, "warmup_epochs": 0.4}
    assert for_fewer_epochs(recipe, {"epochs": 8, "snapshots": 4})[0] == {"unmixed_epochs": 4, "warmup_epochs": 1.6}
    for unchanged in ({}, {"epochs": 20}, {"epochs": "2"}, {"epochs": 2, "unmixed_epochs": 1, "warmup_epochs": 0}):
        assert for_fewer_epochs(recipe, unchanged) == ({}, [])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_recipe("flowers102", {})
