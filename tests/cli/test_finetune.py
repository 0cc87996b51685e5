"""`surgeon finetune`: a run ends in a checkpoint that other commands confirm, and can be stopped anywhere."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file

import surgeon
from surgeon.augment.base import Kind, augments
from surgeon.checkpoint.record import read_surgery
from surgeon.core.errors import SurgeonError
from surgeon.core.media import Medium
from surgeon.inserts import inserts
from surgeon.models.cifar import digits_resnet8
from surgeon.norms import norms
from tests.cli.running import Process, command, document, done, invoke, refusal

DIGITS = ("finetune", "digits-resnet8", "--data", "digits", "--limit", 80, "--batch-size", 20, "--workers", 0)
QUICK = (*DIGITS, "--epochs", 2, "--set", "sweep=null")


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoint" / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def rates(run: Path) -> list[list[float]]:
    epochs = json.loads((run / "result.json").read_text("utf-8"))["epochs"]
    return [epoch["backbone_rates"] + epoch["head_rates"] for epoch in epochs]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done(*QUICK, "-o", folder)
    return folder


def test_a_run_leaves_a_checkpoint_that_eval_confirms(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = document(*DIGITS, "--epochs", 2, "--lr", 0.05, "--bn", "example-weighted", "-o", run)
    assert result == json.loads((run / "result.json").read_text("utf-8"))
    assert {"recipe.yaml", "state.pt", "curves.png", "report.html", "checkpoint", "sweep-alpha"} <= {
        entry.name for entry in run.iterdir()
    }
    done("verify", run / "checkpoint")
    again = document("eval", run / "checkpoint", "--data", "digits", "--split", "test", "--limit", 80)
    assert again["metrics"] == result["test"]
    assert again["rewrites"] == result["rewrites"]
    assert len(result["epochs"]) == 2
    known = document("eval", "digits-resnet8", "--data", "digits", "--split", "validation", "--limit", 80)
    before, after = known["metrics"]["accuracy"], result["validation"]["accuracy"]
    change = f"accuracy {before:.2%} → {after:.2%} on the validation images."
    assert after <= before
    assert result["settings"][0].startswith(
        f"Fine-tuning did not help: {change} The network already knew these classes"
    )
    assert "On the validation images alpha" in result["settings"][1]
    assert result["sweeps"] == ["sweep-alpha"]
    assert 'href="sweep-alpha/report.html"' in (run / "report.html").read_text("utf-8")
    begun_with = json.loads((run / "run.json").read_text("utf-8"))["weights"]
    assert read_surgery(run / "checkpoint").base_weights.sha256 == begun_with, "not that of the trained ones"
    modes = {file.stat().st_mode for file in run.iterdir() if file.is_file()}
    assert len(modes) == 1, "who may read one of the files may read all"


def test_the_same_command_gives_the_same_weights_whatever_the_number_of_workers(
    tmp_path: Path, uninterrupted: Path
) -> None:
    done(*QUICK, "--workers", 2, "-o", tmp_path / "run")
    assert same(weights(tmp_path / "run"), weights(uninterrupted))


def test_a_network_in_memory_has_no_name_to_go_by() -> None:
    with pytest.raises(SurgeonError, match="not a Linear"):
        surgeon.finetune(torch.nn.Linear(2, 2), "digits", "nowhere")  # type: ignore[arg-type]


def test_what_was_trained_from_random_weights_is_not_drawn_again(tmp_path: Path) -> None:
    done(*QUICK, "--no-pretrained", "-o", tmp_path / "scratch")
    done("convert", "digits-resnet8", "--no-pretrained", "--bn", "ghost:size=4", "-o", tmp_path / "untrained")
    base = {}
    for name, begun in {"again": "scratch/checkpoint", "begun": "untrained"}.items():
        still = ("--lr", 1e-12, "--seed", 3, "--set", "sweep=null", "--epochs", 1)
        done("finetune", tmp_path / begun, *DIGITS[2:], *still, "-o", tmp_path / name)
        base[name] = read_surgery(tmp_path / name / "checkpoint").base_weights
    assert torch.allclose(weights(tmp_path / "again")["conv1.weight"], weights(tmp_path / "scratch")["conv1.weight"])
    assert base["again"] == read_surgery(tmp_path / "scratch" / "checkpoint").base_weights
    drawn = load_file(tmp_path / "untrained" / "model.safetensors")["conv1.weight"]
    assert not torch.allclose(weights(tmp_path / "begun")["conv1.weight"], drawn), "the seed decides"
    assert base["begun"].sha256 != base["again"].sha256


def test_another_seed_gives_other_weights(tmp_path: Path, uninterrupted: Path) -> None:
    done(*QUICK, "--seed", 1, "-o", tmp_path / "run")
    assert not same(weights(tmp_path / "run"), weights(uninterrupted))


STOP_AT_STEP = """
import os, signal, sys
from surgeon.training import loop
from surgeon.cli.app import main

loop.SECONDS_BETWEEN_SAVES = 0.0
tell = loop.Trainer._report_step

def tell_and_stop(trainer, loss):
    tell(trainer, loss)
    if trainer.step == {step}:
        os.kill(os.getpid(), signal.{signal})

loop.Trainer._report_step = tell_and_stop
main()
"""


@pytest.mark.parametrize(("name", "step", "code"), [("SIGKILL", 3, -9), ("SIGKILL", 4, -9), ("SIGINT", 6, 130)])
def test_a_stopped_run_ends_with_the_same_weights(
    name: str, step: int, code: int, tmp_path: Path, uninterrupted: Path
) -> None:
    run = tmp_path / "run"
    program = STOP_AT_STEP.format(step=step, signal=name)
    stopped = Process(program, *QUICK, "-o", run, streams=tmp_path).outcome()
    assert stopped.code == code, stopped.stderr
    assert not (run / "checkpoint").exists()
    if name == "SIGINT":
        assert stopped.stderr.endswith(
            f"Interrupted; {run} has the state of the run. To continue:\n"
            f"surgeon {shlex.join(map(str, QUICK))} -o {run} --resume\n"
        )
    done(*QUICK, "-o", run, "--resume")
    assert same(weights(run), weights(uninterrupted))
    assert rates(run) == rates(uninterrupted)
    assert [len(of_epoch) for of_epoch in rates(run)] == [8, 8], "of backbone and head in each of four steps"


def test_every_kind_of_state_survives_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Averaged weights, momentum of AdamW, mixing, random units with generators of their own, snapshots."""
    options = (
        *(*QUICK, "--epochs", 4, "--snapshots", 2, "--ema", 0.9, "--augment", "vh-mixup", "--augment", "cutout"),
        *("--insert", "crossnorm:seed=3,p=1", "--insert", "moex:seed=5", "--set", "optimizer=adamw"),
        *("--set", "warmup_epochs=0.5", "--set", "unmixed_epochs=1"),
    )
    done(*options, "-o", tmp_path / "whole")
    from surgeon.training import loop

    take = loop.Trainer._take_step

    def fail(trainer: Any, *arguments: Any) -> Any:
        if trainer.step == 7:
            raise OSError("the power is gone")
        return take(trainer, *arguments)

    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(loop.Trainer, "_take_step", fail)
    assert invoke(*options, "-o", tmp_path / "broken").code == 1
    monkeypatch.undo()
    done(*options, "-o", tmp_path / "broken", "--resume")
    assert same(weights(tmp_path / "broken"), weights(tmp_path / "whole"))
    for number in (1, 2):
        members = [tmp_path / run / "snapshots" / str(number) / "model.safetensors" for run in ("whole", "broken")]
        assert same(*map(load_file, members))
    assert not same(*(load_file(tmp_path / "whole" / "snapshots" / n / "model.safetensors") for n in "12"))


SWEPT = (*DIGITS, "--epochs", 2, "--snapshots", 2, "--set", "sweep=0,0.1,0.2")
SWEPT = (*SWEPT, "--bn", "split", "--bn", "example-weighted")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "swept"
    done(*SWEPT, "-o", folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("place", ["loop.save_state", "finishing.run_sweep", "finishing.run_test", "write_run_report"])
def test_a_run_that_dies_between_its_stages_ends_alike(
    place: str, tmp_path: Path, swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a snapshot and the state, between two sweeps, after the test, before the report."""
    from surgeon.commands.finetune import finishing
    from surgeon.training import loop

    module = loop if place.startswith("loop") else finishing
    name = place.rpartition(".")[2]
    whole, calls = getattr(module, name), []

    def dying(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) == (1 if name in ("save_state", "write_run_report") else 2) or name == "run_test":
            raise OSError("the power is gone")
        return whole(*arguments, **options)

    monkeypatch.setattr(module, name, dying)
    assert invoke(*SWEPT, "-o", tmp_path / "run").code == 1
    assert not (tmp_path / "run" / "result.json").exists()
    monkeypatch.undo()
    result = document(*SWEPT, "-o", tmp_path / "run", "--resume")
    assert same(weights(tmp_path / "run"), weights(swept))
    expected = json.loads((swept / "result.json").read_text("utf-8"))
    assert (result["settings"], result["test"]) == (expected["settings"], expected["test"])


def test_a_full_disk_leaves_the_last_good_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surgeon.training import state

    run = tmp_path / "run"
    save, calls = torch.save, []

    def full(content: Any, path: Path) -> None:
        calls.append(path)
        if len(calls) == 2:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        save(content, path)

    monkeypatch.setattr(state.torch, "save", full)
    message = invoke(*QUICK, "-o", run)
    assert message.code == 1
    assert "No space left" in message.stderr
    monkeypatch.undo()
    assert state.load_state(run).step == 4  # type: ignore[union-attr]
    assert "resumed at epoch 2, step 1" in done(*QUICK, "-o", run, "--resume").stderr


def test_resuming_a_finished_run_tells_its_result(uninterrupted: Path) -> None:
    before = (uninterrupted / "result.json").read_bytes()
    assert "validation" in done(*QUICK, "-o", uninterrupted, "--resume").stdout
    assert (uninterrupted / "result.json").read_bytes() == before


def test_a_run_is_not_resumed_with_other_settings(tmp_path: Path, uninterrupted: Path) -> None:
    """Nor is the result of a finished run told as that of another one."""
    assert "lr and seed" in refusal(*QUICK, "-o", uninterrupted, "--resume", "--lr", 0.5, "--seed", 4)
    assert "no run" in refusal(*QUICK, "-o", tmp_path / "nothing", "--resume")
    assert "already exists" in refusal(*QUICK, "-o", uninterrupted)
    assert "pass one of them" in refusal(*QUICK, "-o", uninterrupted, "--resume", "--overwrite")


def test_nor_with_another_network_or_other_images(uninterrupted: Path) -> None:
    again = (*QUICK[2:], "-o", uninterrupted, "--resume")
    before = (uninterrupted / "result.json").read_bytes()
    other = refusal("finetune", uninterrupted / "checkpoint", *again)
    assert other.startswith(f"The run in {uninterrupted} was started with other settings: model and weights.")
    assert "settings: weights." in refusal(*QUICK[:2], *again, "--no-pretrained")
    assert "settings: data." in refusal(*QUICK[:2], *again, "--limit", 60)
    assert (uninterrupted / "result.json").read_bytes() == before


def test_what_a_run_has_decided_outlives_other_defaults(
    tmp_path: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surgeon.training import defaults, loop

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(loop.Trainer, "_end_epoch", full)
        assert invoke(*QUICK, "-o", run).code == 1
    with monkeypatch.context() as patched:
        patched.setitem(defaults.SGD_RATE, True, 1.0)
        assert document(*QUICK, "-o", tmp_path / "other")["recipe"]["lr"] > 0.1
        result = document(*QUICK, "-o", run, "--resume")
    expected = json.loads((uninterrupted / "result.json").read_text("utf-8"))
    assert (result["recipe"], result["decided"]) == (expected["recipe"], expected["decided"])
    assert result["decided"]["lr"] == "trained weights, sgd, batches of 20"
    assert same(weights(run), weights(uninterrupted))


def test_a_silent_run_says_what_is_decided_and_why(tmp_path: Path) -> None:
    command = ("finetune", "digits-resnet8", "--data", "digits", "--limit", 80, "-o", tmp_path / "run", "--dry-run")
    told = done(*command)
    lines = [line.strip() for line in told.stderr.splitlines()]
    assert "by default     batch_size 16, epochs 20 (80 training images)" in lines
    assert "by default     freeze nothing (no plain BatchNorm to keep)" in lines
    assert yaml.safe_load(told.stdout)["epochs"] == 20
    told = done(*command, "--freeze-norm", "--epochs", 3)
    recipe = yaml.safe_load(told.stdout)
    assert (recipe["epochs"], recipe["freeze"]) == (3, ["norm"])
    assert "epochs 3" not in told.stderr
    told = done(*command, "--no-freeze-norm")
    assert yaml.safe_load(told.stdout)["freeze"] == []
    assert "freeze" not in told.stderr


def test_the_recipe_of_a_run_is_spelled_out(tmp_path: Path, uninterrupted: Path) -> None:
    """With what network and images have decided."""
    path = uninterrupted / "recipe.yaml"
    recipe = yaml.safe_load(path.read_text("utf-8"))
    assert [recipe[key] for key in ("batch_size", "input_size", "norm_weight_decay")] == [20, 8, True]
    assert recipe == json.loads((uninterrupted / "result.json").read_text("utf-8"))["recipe"]
    command = ("finetune", "digits-resnet8", "--data", "digits", "--limit", 80, "--workers", 0, "--recipe")
    done(*command, path, "-o", uninterrupted, "--resume")
    older = shutil.copytree(uninterrupted, tmp_path / "older")
    (older / "recipe.yaml").write_text(path.read_text("utf-8").replace("head_scale: 1.0\n", ""))
    done(*QUICK, "-o", older, "--resume")
    (older / "recipe.yaml").write_text(path.read_text("utf-8").replace("\nlr: ", "\n# lr: "))
    assert "is not the recipe of a run: it leaves lr open" in refusal(*QUICK, "-o", older, "--resume")
    assert "settings: norm_weight_decay." in refusal(*QUICK, "-o", uninterrupted, "--resume", "--no-norm-weight-decay")


def test_a_sweep_that_was_interrupted_before_other_options_were_chosen_begins_afresh(tmp_path: Path) -> None:
    """The hint at an unreadable test image is --skip-bad; following it must not cost the choice of alpha."""
    data = folder_of(tmp_path / "data", train={"a": 4, "b": 4}, validation={"a": 2, "b": 2}, test={"a": 1, "b": 2})
    (data / "test" / "b" / "0.png").write_bytes(b"no image")
    options = ("finetune", "digits-resnet8", "--data", data, "--epochs", 1, "--workers", 0, "-o", tmp_path / "run")
    options = (*options, "--bn", "example-weighted", "--set", "sweep=0,0.1")
    assert "--skip-bad" in invoke(*options).stderr
    result = document(*options, "--resume", "--skip-bad")
    assert result["test"]["images"] == 2
    assert "On the validation images alpha" in result["settings"][0], "a new head knew nothing before"


def test_a_temperature_does_not_outlive_the_weights_it_was_fitted_to(tmp_path: Path) -> None:
    from surgeon.surgery.temperature import set_temperature, temperature_of

    model = surgeon.load(Path(surgeon.__file__).parent / "assets" / "digits-resnet8")
    set_temperature(model, 3.0)
    surgeon.save(model, tmp_path / "warm")
    done("finetune", tmp_path / "warm", *QUICK[2:], "-o", tmp_path / "run")
    assert temperature_of(surgeon.load(tmp_path / "run" / "checkpoint")) is None


def test_nor_does_a_mix_of_branches(tmp_path: Path) -> None:
    from surgeon.surgery.branches import mix_branches, mix_of

    model = surgeon.convert(surgeon.load(Path(surgeon.__file__).parent / "assets" / "digits-resnet8"), "split")
    mix_branches(model, 0.5)
    surgeon.save(model, tmp_path / "mixed")
    done("finetune", tmp_path / "mixed", *QUICK[2:], "--set", "sweep=null", "-o", tmp_path / "run")
    assert mix_of(surgeon.load(tmp_path / "run" / "checkpoint")) is None


def test_a_branch_that_is_not_trained_is_named(tmp_path: Path) -> None:
    options = (*QUICK, "--bn", "split", "-o", tmp_path / "run")
    said = "auxiliary branch is not trained"
    assert said in invoke(*options, "--dry-run", "--loss", "cross-entropy:on=weak").stderr.replace("\n", " ")
    assert said not in invoke(*options, "--dry-run").stderr.replace("\n", " ")
    result = document(*options, "--loss", "cross-entropy:on=weak")
    assert any(said in sentence for sentence in result["settings"])


REWRITES = [("--bn", name) for name in norms] + [("--insert", name) for name in inserts]


@pytest.mark.parametrize("rewrite", REWRITES, ids="".join)
def test_every_rewrite_and_insert_trains(rewrite: tuple[str, str], tmp_path: Path) -> None:
    options = {"ghost": ":size=5", "batch-group": ":channel_groups=2", "mode-group": ":modes=2"}
    spec = rewrite[1] + options.get(rewrite[1], "")
    result = document(
        *(*QUICK, "--no-pretrained", "--epochs", 4, "--lr", 0.05, rewrite[0], spec, "-o", tmp_path / "run"),
        *("--augment", "standard:flip=false"),
    )
    assert rewrite[1] in result["rewrites"]
    assert result["epochs"][-1]["loss"] < result["epochs"][0]["loss"]
    done("verify", tmp_path / "run" / "checkpoint")


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [name for name in augments if augments[name].kind is not Kind.GEOMETRY and Medium.IMAGE in augments[name].media],
)
def test_every_augmentation_trains(name: str, tmp_path: Path) -> None:
    outcome = invoke(*DIGITS, "--epochs", 1, "--set", "sweep=null", "--augment", name, "-o", tmp_path / "run")
    if outcome.code == 2:
        assert "grey" in outcome.stderr  # what needs colours says so
    else:
        assert outcome.code == 0, outcome.stderr


def test_a_new_head_and_what_is_frozen(tmp_path: Path) -> None:
    folder = tmp_path / "shapes"
    for split, images in (("train", 12), ("validation", 4), ("test", 4)):
        for label, name in enumerate(("dark", "light", "striped")):
            (folder / split / name).mkdir(parents=True)
            for number in range(images):
                pixels = np.full((8, 8), 40 + 150 * (label == 1), dtype=np.uint8)
                pixels[:: 2 if label == 2 else 9] += np.uint8(60 + number)
                Image.fromarray(pixels).save(folder / split / name / f"{number}.png")
    base = ("finetune", "digits-resnet8", "--data", folder, "--epochs", 2, "--batch-size", 12, "--workers", 0)
    before = surgeon.load(Path(surgeon.__file__).parent / "assets" / "digits-resnet8").state_dict()
    moved = {}
    for name, options in {"all": (), "head": ("--freeze-backbone",), "norm": ("--only", "norm")}.items():
        result = document(*base, *options, "--set", "sweep=null", "-o", tmp_path / name)
        assert result["classes"] == 3
        after = weights(tmp_path / name)
        moved[name] = {
            key for key in after if after[key].shape != before[key].shape or (after[key] != before[key]).any()
        }
        classes = json.loads((tmp_path / name / "checkpoint" / "config.json").read_text("utf-8"))
        assert classes["label_names"] == ["dark", "light", "striped"]
    assert moved["head"] == {"linear.weight", "linear.bias"} or moved["head"] == {"fc.weight", "fc.bias"}
    assert moved["head"] < moved["norm"] < moved["all"]
    assert not any("conv" in name and "weight" in name for name in moved["norm"])
    document("eval", tmp_path / "all" / "checkpoint", "--data", folder)


def test_weights_may_have_other_classes_than_the_architecture_and_the_images(tmp_path: Path) -> None:
    torch.save(digits_resnet8(num_classes=4).state_dict(), tmp_path / "mine.pth")
    result = document(*QUICK, "--epochs", 1, "--weights", tmp_path / "mine.pth", "-o", tmp_path / "run")
    assert result["classes"] == 10


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (8, 8), dtype=np.uint8)).save(path)


def folder_of(root: Path, **splits: dict[str, int]) -> Path:
    for split, classes in splits.items():
        for name, images in classes.items():
            (root / split / name).mkdir(parents=True)
            for number in range(images):
                picture(root / split / name / f"{number}.png")
    return root


@pytest.mark.parametrize(
    ("splits", "told"),
    [
        ({"train": {"a": 3, "b": 0}}, "no training image"),
        ({"train": {"a": 3, "b": 3}, "test": {"a": 1, "c": 1}}, "has a class without a training image: 'c'."),
        ({"train": {"a": 1, "b": 1}}, "one image per class"),
        ({"train": {"a": 4}}, "only one class"),
        ({"test": {"a": 4, "b": 3}}, "no split 'train'"),
    ],
)
def test_images_that_cannot_be_trained_on(splits: Any, told: str, tmp_path: Path) -> None:
    data = folder_of(tmp_path / "data", **splits)
    refused = refusal("finetune", "digits-resnet8", "--data", data, "-o", tmp_path / "run", "--workers", 0)
    assert told in refused
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--batch-size", 400), "larger than the 80 training images"),
        (("--no-pretrained", "--bn", "ghost:size=32"), "larger than the 20 images"),
        (("--set", "accumulate=3"), "multiple of 3"),
        (("--set", "lrr=1"), "no key 'lrr'"),
        (("--epochs", 5, "--snapshots", 2), "not a multiple"),
        (("--augment", "vh-mixp"), "vh-mixup"),
        (("--set", "optimizer=sgdd"), "no optimiser 'sgdd'"),
        (("--set", "optimizer=adahessian"), "'adahessian' needs second derivatives"),
        (("--track", "tensorbord"), "--track cannot be 'tensorbord'"),
        (("--recipe", "flwers102"), "no recipe 'flwers102'"),
        (("--tta", "flipp"), "no view 'flipp'"),
        (("--set", "sweep_metric=acc"), "no metric 'acc'"),
        (("--track", "foo"), "--track cannot be 'foo'"),
        (("--limit", 5, "--batch-size", 2), "--limit 5 may leave classes out"),
        (("--augment", "mixup", "--set", "consistency=12"), "mixed with another image"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_written(
    options: tuple[Any, ...], told: str, tmp_path: Path
) -> None:
    assert told in refusal(*QUICK, *options, "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step(tmp_path: Path) -> None:
    outcome = invoke(*QUICK, "--lr", 1e20, "-o", tmp_path / "run")
    assert outcome.code == 1
    assert "The loss is nan in epoch 1, step " in outcome.stderr
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_a_network_that_has_diverged_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights may be finite, and predictions all the same not."""
    from surgeon.commands.finetune import run

    class Diverged:
        cross_entropy = float("inf")
        primary = "accuracy"

        def value(self, _: str) -> float:
            return 0.9

    monkeypatch.setattr(run, "summarise", lambda _: Diverged())
    outcome = invoke(*QUICK, "-o", tmp_path / "run")
    assert outcome.code == 1
    assert "diverged: its predictions of validation images are infinite after epoch 1" in outcome.stderr
    assert not (tmp_path / "run").exists()


def test_without_a_saved_state_none_is_promised(tmp_path: Path) -> None:
    told = invoke(*QUICK, "--lr", 1e20, "-o", tmp_path / "run").stderr
    assert (tmp_path / "run" / "state.pt").exists() == ("last good state" in told)


def test_weights_that_are_no_numbers_do_not_replace_a_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surgeon.training import loop, state

    take = loop.Trainer._take_step

    def spoil(trainer: Any, *arguments: Any) -> Any:
        taken = take(trainer, *arguments)
        if trainer.step == 7:  # the last one of the second epoch, whose loss is still a number
            next(iter(trainer.model.parameters())).data.fill_(float("inf"))
        return taken

    monkeypatch.setattr(loop.Trainer, "_take_step", spoil)
    outcome = invoke(*QUICK, "-o", tmp_path / "run")
    assert outcome.code == 1
    assert "Weights are infinite or NaN after epoch 2, step 4. The last good" in outcome.stderr
    assert state.load_state(tmp_path / "run").step == 4  # type: ignore[union-attr]
    monkeypatch.undo()
    assert "other settings: seed" in refusal(*QUICK, "--seed", 5, "-o", tmp_path / "run", "--resume")
    told = document(*QUICK, "--lr", 0.001, "-o", tmp_path / "run", "--resume")
    assert told["settings"][0] == "Resumed with a learning rate of 0.001 in place of 0.00125."
    assert "92.50%" in told["settings"][1], "what was measured before the run was begun"
    assert "lr: 0.001" in (tmp_path / "run" / "recipe.yaml").read_text()
    assert max(told["epochs"][1]["backbone_rates"]) < 0.001
    done(*QUICK, "-o", tmp_path / "run", "--resume")
    assert "other settings: lr" in refusal(*QUICK, "--lr", 0.01, "-o", tmp_path / "run", "--resume"), "it is finished"


def test_a_split_network_trains_on_weak_and_strong_copies(tmp_path: Path) -> None:
    options = ("--bn", "split", "--insert", "moex:p=1", "--set", "strong=strong:flip=false")
    told = document(*QUICK, *options, "-o", tmp_path / "run")
    assert told["recipe"]["augment"] == ["weak"]
    assert document(*QUICK, *options, "-o", tmp_path / "run", "--resume") == told


def test_a_dry_run_tells_what_network_and_images_decide(tmp_path: Path) -> None:
    outcome = done(*QUICK, "-o", tmp_path / "run", "--dry-run")
    assert yaml.safe_load(outcome.stdout)["batch_size"] == 20
    assert "2 epochs of 4 steps, 75,002 parameters to train" in outcome.stderr
    assert "80 training, 80 validation and 80 test images" in outcome.stderr
    nowhere = ("finetune", "digits-resnet8", "--data", tmp_path / "nowhere", "-o", tmp_path / "run", "--dry-run")
    assert "nowhere" in refusal(*nowhere)
    for options in (("--bn", "ghost:size=40"), ("--augment", "weak", "--augment", "strong")):
        refusal(*QUICK, *options, "-o", tmp_path / "run", "--dry-run")
    assert not (tmp_path / "run").exists()


def test_unreadable_images_leave_smaller_parts(tmp_path: Path) -> None:
    rest = {"a": 2, "b": 2}
    data = folder_of(tmp_path / "data", train={"a": 4, "b": 4}, validation=rest, test=rest)
    for bad in ("train/a/0.png", "train/b/0.png", "validation/a/1.png", "test/b/0.png"):
        (data / bad).write_bytes(b"no image")
    options = ("finetune", "digits-resnet8", "--data", data, "--epochs", 1, "--workers", 0, "--set", "sweep=null")
    assert "/0.png of data cannot be read" in refusal(*options, "-o", tmp_path / "run")
    assert not (tmp_path / "run").exists(), "so that the hint can be followed"
    run = done(*options, "--no-pretrained", "--skip-bad", "--set", "accumulate=4", "-o", tmp_path / "run")
    assert "2 unreadable images left out" in run.stderr
    card = (tmp_path / "run" / "checkpoint" / "README.md").read_text("utf-8")
    assert "Fine-tuned on data: 8 images." in card  # not where that is on this machine
    assert str(tmp_path) not in card
    assert (
        "note: left out as unreadable: 2 training images in an epoch; "
        "1 validation image (validation/a/1.png of data); 1 test image (test/b/0.png of data)"
    ) in run.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert result["bad_training_images"] == 2
    assert result["bad_validation_images"] == ["validation/a/1.png of data"]
    assert result["bad_test_images"] == ["test/b/0.png of data"]
    assert "test/b/0.png of data" in (tmp_path / "run" / "report.html").read_text("utf-8")
    small = invoke(*options, "--no-pretrained", "--skip-bad", "--batch-size", 2, "-o", tmp_path / "small")
    assert small.code == 2
    assert "use larger batches" in small.stderr.splitlines()[-1]


def test_a_tracker_that_is_not_installed_is_not_left_out_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import accelerate.tracking

    monkeypatch.setattr(accelerate.tracking, "get_available_trackers", list)
    assert "pip install tensorboard" in refusal(*QUICK, "--track", "tensorboard", "-o", tmp_path / "run")


def test_a_size_that_the_network_cannot_take_is_refused(tmp_path: Path) -> None:
    options = ("--data", "digits", "--no-pretrained", "--input-size", 96, "-o", tmp_path / "run")
    assert "cannot take this input size" in refusal("finetune", "vit_tiny_patch16_224", *options)
    # In training alone: its auxiliary head ends in a convolution of 5x5.
    assert "cannot take this input size" in refusal("finetune", "torchvision:inception_v3", *options)
    assert not (tmp_path / "run").exists()


def test_a_folder_whose_name_looks_like_markup(tmp_path: Path) -> None:
    assert "[red]/checkpoint" in done(*QUICK, "--epochs", 1, "-o", tmp_path / "[red]").stderr


def test_parts_of_a_batch_add_up_to_it(tmp_path: Path) -> None:
    """Ghost groups see the same examples however the batch is cut, so the losses are the same."""
    options = (*QUICK, "--no-pretrained", "--bn", "ghost:size=5", "--augment", "standard")
    whole = document(*options, "-o", tmp_path / "whole")
    parts = document(*options, "--set", "accumulate=4", "-o", tmp_path / "parts")
    for one, other in zip(whole["epochs"], parts["epochs"], strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes")
def test_two_processes_have_the_loss_curve_of_one(tmp_path: Path) -> None:
    options = (*QUICK, "--no-pretrained", "--bn", "ghost:size=5")
    whole = document(*options, "-o", tmp_path / "one")
    launch = [command()[0], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = [str(argument) for argument in (*options, "-o", tmp_path / "two")]
    finished = subprocess.run(
        [*launch, "-m", "surgeon", *arguments],
        capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    shared = json.loads((tmp_path / "two" / "result.json").read_text("utf-8"))
    for one, other in zip(whole["epochs"], shared["epochs"], strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes")
def test_two_processes_go_on_as_if_they_had_not_been_killed(tmp_path: Path) -> None:
    """They save at the same step whatever their clocks say, each with its own statistics and sums."""
    launch = [command()[0], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    def train(run: str, step: int, *options: str) -> subprocess.CompletedProcess[str]:
        program = tmp_path / f"{run}.py"
        program.write_text(STOP_AT_STEP.format(step=step, signal="SIGKILL").replace("= 0.0", "= 1e-9"))
        arguments = [str(argument) for argument in (*QUICK, "--bn", "ghost:size=5", "-o", tmp_path / run, *options)]
        return subprocess.run(
            [*launch, str(program), *arguments],
            capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    assert train("whole", -1).returncode == 0
    assert train("killed", 7).returncode != 0
    assert not (tmp_path / "killed" / "checkpoint").exists()
    again = train("killed", -1, "--resume")
    assert again.returncode == 0, again.stderr
    assert same(weights(tmp_path / "killed"), weights(tmp_path / "whole"))
    results = [json.loads((tmp_path / run / "result.json").read_text("utf-8")) for run in ("whole", "killed")]
    assert [e["loss"] for e in results[0]["epochs"]] == [e["loss"] for e in results[1]["epochs"]]


def test_signals_are_as_before_afterwards(uninterrupted: Path) -> None:
    assert uninterrupted.is_dir()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
