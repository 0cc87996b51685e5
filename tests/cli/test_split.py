"""Split networks from the command line: converting, taking branches, sweeping lambda, merging."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file

import surgeon
from surgeon.checkpoint import load_checkpoint, open_model
from surgeon.surgery.branches import Mixing, mix_branches, mix_of, mixed, split_layers
from tests.cli.running import document, done, invoke, operations, refusal
from tests.helpers import randn

DIGITS = ("--data", "digits", "--limit", 100)


@pytest.fixture(scope="session")
def perturbed_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled network, split, with an auxiliary branch that is somewhat worse and wrong elsewhere."""
    folder = tmp_path_factory.mktemp("split") / "split"
    loaded = open_model("digits-resnet8")
    loaded.model = surgeon.convert(loaded.model, "split")
    for number, layer in enumerate(split_layers(loaded.model).values()):
        layer.aux.weight.data.mul_(1 + 0.1 * randn(layer.num_features, seed=number))
        layer.aux.running_mean.add_(0.2 * layer.running_var.sqrt() * randn(layer.num_features, seed=number + 50))
    surgeon.save(loaded.model, folder, origin=loaded.origin)
    return folder


@pytest.fixture
def split(perturbed_checkpoint: Path, here: Path) -> Path:
    shutil.copytree(perturbed_checkpoint, here / "split")
    return Path("split")


def logits_of(*arguments: object) -> torch.Tensor:
    done("eval", *arguments, *DIGITS, "--save-logits", "logits.safetensors")
    logits = load_file("logits.safetensors")["logits"]
    Path("logits.safetensors").unlink()
    return logits


# ---- convert ----


def test_convert_splits_every_layer() -> None:
    told = document("convert", "resnet18", "--no-pretrained", "--num-classes", 10, "--bn", "split", "-o", "out")
    assert told["identity_difference"] < 1e-6
    assert set(map(tuple, operations(Path("out")).values())) == {("split",)}
    state = load_file("out/model.safetensors")
    assert torch.equal(state["bn1.aux.weight"], state["bn1.weight"])
    plain = timm.create_model("resnet18", num_classes=10)
    left = plain.load_state_dict(state, strict=False)
    assert not left.missing_keys
    assert all(".aux." in name for name in left.unexpected_keys)
    assert "strict=False" in Path("out/README.md").read_text("utf-8")
    assert document("verify", "out")["passed"]


# ---- eval ----


def test_each_branch_and_the_mix(split: Path) -> None:
    main, aux, half = (
        logits_of(split, *options) for options in (("--branch", "main"), ("--branch", "aux"), ("--lambda", 0.5))
    )
    assert torch.equal(logits_of(split), main)
    assert not torch.allclose(main, aux)
    torch.testing.assert_close(half, mixed(main, aux, 0.5, Mixing.PROBABILITIES))
    torch.testing.assert_close(logits_of(split, "--lambda", 0.5, "--mix-logits"), (main + aux) / 2)
    assert "it goes with --lambda" in refusal("eval", split, *DIGITS, "--mix-logits")
    assert "it goes with --lambda" in refusal("sweep", split, *DIGITS, "--mix-logits")
    assert torch.equal(logits_of(split, "--lambda", 0), main)
    assert torch.equal(logits_of(split, "--lambda", 1), aux)


@pytest.mark.parametrize(
    ("options", "by"),
    [
        ((), "main branch"),
        (("--branch", "aux"), "aux branch"),
        (("--lambda", 0.3), "both branches, lambda 0.3 (two passes)"),
        (("--lambda", 0.3, "--mix-logits"), "both branches, lambda 0.3 of logits (two passes)"),
    ],
)
def test_it_is_said_which_branch_predicts(options: tuple[str | float, ...], by: str, split: Path) -> None:
    assert document("eval", split, *DIGITS, *options)["prediction_by"] == by
    assert f"predicts by    {by}" in done("eval", split, *DIGITS, *options).stderr
    assert document("eval", "digits-resnet8", *DIGITS)["prediction_by"] is None
    assert "Predicts by: main branch." in done("inspect", split).stderr


def test_a_branch_of_a_checkpoint_that_mixes(split: Path) -> None:
    main, half = logits_of(split), logits_of(split, "--lambda", 0.5)
    loaded = load_checkpoint(split)
    mix_branches(loaded.model, 0.5)
    surgeon.save(loaded.model, "mixing", origin=loaded.origin)
    assert torch.equal(logits_of("mixing"), half)
    assert torch.equal(logits_of("mixing", "--branch", "main"), main)


def test_a_temperature_is_stored_with_the_mix_it_was_fitted_to(split: Path) -> None:
    told = document("eval", split, *DIGITS, "--lambda", 0.5, "--temperature", "--force", "-o", "tempered")
    model = surgeon.load("tempered/checkpoint")
    assert mix_of(model).share == 0.5
    again = document("eval", "tempered/checkpoint", *DIGITS, "--split", "validation")
    assert again["metrics"]["cross_entropy"] == pytest.approx(told["metrics"]["scaled_cross_entropy"], rel=1e-5)


# ---- sweep ----


def test_the_checkpoint_of_a_sweep_is_the_chosen_point(split: Path) -> None:
    arguments = ("--lambda", "0:1:11", "--metric", "cross-entropy", "--method", "grid", "--force", "-o", "swept")
    told = document("sweep", split, *DIGITS, *arguments)
    assert [point["value"] for point in told["points"]] == pytest.approx([i / 10 for i in range(11)])
    assert told["image_forwards"] == 2 * 100  # two passes, whatever the number of values
    chosen = next(point for point in told["points"] if point["value"] == told["chosen"])
    (checkpoint,) = {file.parent for file in Path("swept").rglob("surgery.json")}
    found = document("eval", checkpoint, *DIGITS, "--split", "validation")
    assert found["metrics"]["accuracy"] == chosen["metrics"]["accuracy"]
    assert found["metrics"]["cross_entropy"] == pytest.approx(chosen["metrics"]["cross_entropy"], rel=1e-5)
    recorded = json.loads((checkpoint / "surgery.json").read_text("utf-8"))["mix"]
    assert (recorded or {"share": 0})["share"] == chosen["value"]


# ---- merge ----


def test_merge_writes_a_plain_checkpoint(split: Path) -> None:
    told = document("merge", split, "--lambda", 0.5, "-o", "merged")
    assert (told["share"], told["layers"]) == (0.5, 7)
    assert 0 < told["probability_shift"] < 1
    assert told["merged"] is None
    assert not any(".aux." in name for name in load_file("merged/model.safetensors"))
    assert all("split" not in rewrites for rewrites in operations(Path("merged")).values())
    assert document("verify", "merged")["passed"]
    assert not torch.equal(logits_of("merged"), logits_of(split))


def test_merge_measures_what_it_loses(split: Path) -> None:
    told = document("merge", split, "--lambda", 0.5, *DIGITS)
    assert Path("split-merged").is_dir()
    merged, average = (document("eval", *arguments, *DIGITS)["metrics"] for arguments in (
        ("split-merged",), (split, "--lambda", 0.5)
    ))  # fmt: skip
    assert told["merged"]["accuracy"] == merged["accuracy"]
    assert told["two_passes"]["cross_entropy"] == pytest.approx(average["cross_entropy"], rel=1e-5)
    assert {gain["metric"] for gain in told["gains"]} == {"accuracy", "cross-entropy", "scaled-cross-entropy"}


def test_merge_for_people(split: Path) -> None:
    outcome = done("merge", split, *DIGITS)
    assert "7 layers merged at lambda 0.5" in outcome.stderr
    assert "by two passes" in outcome.stderr
    assert outcome.stdout == "split-merged\n"


def test_merging_says_where_example_weighting_makes_it_approximate(split: Path) -> None:
    loaded = load_checkpoint(split)
    model = surgeon.convert(loaded.model, "example-weighted:alpha=0.3", layers="layer3.*")
    surgeon.save(model, "weighted", origin=loaded.origin)
    (note,) = document("merge", "weighted", "--lambda", 1, "-o", "merged")["notes"]
    assert note.startswith("2 layers with alpha up to 0.3: a merged layer keeps main's running statistics")
    assert "approximates" in done("merge", "weighted", "--lambda", 1, "-o", "again").stderr.replace("\n", " ")
    exact = document("merge", "weighted", "--lambda", 0, "-o", "main")  # nothing of the auxiliary branch
    plain = document("merge", split, "-o", "plain")
    assert exact["notes"] == plain["notes"] == []


def test_merging_takes_the_stored_share(split: Path) -> None:
    loaded = load_checkpoint(split)
    mix_branches(loaded.model, 0.2)
    surgeon.save(loaded.model, "mixing", origin=loaded.origin)
    assert document("merge", "mixing")["share"] == 0.2
    assert mix_of(surgeon.load("mixing-merged")) is None


def test_merging_nothing_away_is_the_main_branch(split: Path) -> None:
    document("merge", split, "--lambda", 0, "-o", "merged")
    torch.testing.assert_close(logits_of("merged"), logits_of(split), rtol=1e-4, atol=1e-4)


# ---- refusals ----


@pytest.mark.parametrize("arguments", [
    ("eval", "digits-resnet8", *DIGITS, "--branch", "aux"),
    ("eval", "digits-resnet8", *DIGITS, "--lambda", 0.5),
    ("sweep", "digits-resnet8", *DIGITS, "--lambda", "0:1:3"),
    ("merge", "digits-resnet8"),
], ids=lambda arguments: " ".join(map(str, arguments)))  # fmt: skip
def test_a_network_without_branches(arguments: tuple[object, ...], here: Path) -> None:
    assert "no split layers" in refusal(*arguments)
    assert not list(here.iterdir())


def test_both_axes_at_once(split: Path) -> None:
    assert "--alpha and --lambda" in refusal("sweep", split, *DIGITS, "--lambda", "0:1:3", "--alpha", "0:1:3")


@pytest.mark.parametrize("branch", ["main", "aux"])
def test_a_branch_and_a_mix(split: Path, branch: str) -> None:
    assert "--branch takes one branch" in refusal("eval", split, *DIGITS, "--branch", branch, "--lambda", 0.5)


@pytest.mark.parametrize("branch", ["halves", "third"])
def test_a_branch_that_is_none(split: Path, branch: str) -> None:
    assert "--branch cannot be" in refusal("eval", split, *DIGITS, "--branch", branch)


def test_a_temperature_fitted_to_the_other_branch(split: Path) -> None:
    said = refusal("eval", split, *DIGITS, "--branch", "aux", "--temperature", "-o", "out")
    assert "--lambda 1" in said


@pytest.mark.parametrize("value", ["-0.5", "1.5"])
def test_a_share_outside_of_0_to_1(split: Path, value: str, here: Path) -> None:
    assert "lambda" in refusal("eval", split, *DIGITS, "--lambda", value)
    assert "lambda" in refusal("merge", split, "--lambda", value)
    assert "lambda" in refusal("sweep", split, *DIGITS, f"--lambda=0:{value}:3")
    assert [path.name for path in here.iterdir()] == ["split"]


def test_merging_a_folder_that_is_not_there() -> None:
    assert "missing" in refusal("merge", "out/missing")


def test_merging_onto_a_folder_that_is_there(split: Path) -> None:
    Path("merged").mkdir()
    Path("merged/precious.txt").write_text("mine")
    assert "merged" in refusal("merge", split, "-o", "merged")
    assert Path("merged/precious.txt").read_text() == "mine"


def test_helping() -> None:
    assert "--lambda" in invoke("merge", "--help").stdout


def test_a_sweep_of_lambda_is_not_resumed_at_another_alpha(tmp_path: Path) -> None:
    """Alpha is no weight, so the networks have the same hash."""
    rewrites = ("--bn", "split", "--bn")
    done("convert", "digits-resnet8", *rewrites, "example-weighted", "-o", "first")
    done("convert", "digits-resnet8", *rewrites, "example-weighted:alpha=0.3", "-o", "second")
    sweep = ("--data", "digits", "--limit", 100, "--lambda", "0,0.5", "-o", tmp_path / "swept")
    done("sweep", "first", *sweep)
    assert "rewriting" in refusal("sweep", "second", *sweep)
