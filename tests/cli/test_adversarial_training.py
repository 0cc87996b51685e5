"""`surgeon finetune` with terms of the loss and attacks: it can be stopped anywhere, and bad input is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from surgeon.checkpoint import open_model
from tests.cli.running import command, document, done, invoke, refusal
from tests.cli.test_finetune import QUICK, same, weights

ATTACK = ("--attack", "pgd:eps=0.1,steps=2")
ONE_EPOCH = ("--epochs", 1)


@pytest.mark.parametrize(
    "options",
    [
        (*ATTACK, "--loss", "lrm", "--augment", "vh-mixup", "--insert", "moex:seed=5", "--set", "accumulate=2"),
        ("--bn", "split", "--strong", "pgd:eps=0.1,steps=1", "--ema", 0.9, "--set", "optimizer=adamw"),
    ],
    ids=["lrm", "advprop"],
)
def test_a_resumed_run_ends_as_one_that_was_not_interrupted(
    options: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surgeon.training import loop

    done(*QUICK, *options, "-o", tmp_path / "whole")
    take = loop.Trainer._take_step

    def fail(trainer: Any, *arguments: Any) -> Any:
        if trainer.step == 3:
            raise OSError("the power is gone")
        return take(trainer, *arguments)

    monkeypatch.setattr(loop, "SECONDS_BETWEEN_SAVES", 0.0)
    monkeypatch.setattr(loop.Trainer, "_take_step", fail)
    assert invoke(*QUICK, *options, "-o", tmp_path / "broken").code == 1
    monkeypatch.undo()
    done(*QUICK, *options, "-o", tmp_path / "broken", "--resume")
    assert same(weights(tmp_path / "broken"), weights(tmp_path / "whole"))


def test_an_attack_trains_what_is_to_learn_and_nothing_else(tmp_path: Path) -> None:
    before = open_model("digits-resnet8").model.state_dict()
    moved = {}
    for name, options in {"head": ("--freeze-backbone",), "norm": ("--only", "norm")}.items():
        done(*QUICK, *ONE_EPOCH, *options, *ATTACK, "-o", tmp_path / name)
        after = weights(tmp_path / name)
        moved[name] = {key for key in after if (after[key] != before[key]).any()}
    assert moved["head"] in ({"linear.weight", "linear.bias"}, {"fc.weight", "fc.bias"}), "and no statistics"
    assert moved["head"] < moved["norm"]
    assert not any("conv" in name for name in moved["norm"])


@pytest.mark.long
def test_training_on_attacked_images_makes_a_network_harder_to_attack(tmp_path: Path) -> None:
    """Which also shows that the attacks on both sides mean the same pixels."""
    accuracies = {}
    for name, options in {"plain": (), "robust": ATTACK}.items():
        done(*QUICK[:5], 400, *QUICK[6:], "--epochs", 3, "--lr", 0.02, *options, "-o", tmp_path / name)
        told = document(
            *("robustness", tmp_path / name / "checkpoint", "--data", "digits", "--limit", 150),
            *("--under", "pgd:eps=0.1,steps=5", "-o", tmp_path / f"{name}-attacked"),
        )
        (accuracies[name],) = _accuracies(told)
    assert accuracies["robust"] > accuracies["plain"] + 0.05


def _accuracies(told: dict[str, Any]) -> list[float]:
    return [
        cell["metrics"]["accuracy"] for network in told["networks"] for cell in network["conditions"]
        if cell["condition"].startswith("pgd")
    ]  # fmt: skip


REFUSED = [
    (("--loss", "cross-entrpy"), "There is no loss 'cross-entrpy'. Did you mean cross-entropy?"),
    (("--loss", "alp:wieght=1"), "The loss 'alp' has no option 'wieght'. Did you mean weight?"),
    (("--loss", "alp", "--loss", "alp:weight=2"), "The loss has the term alp more than once."),
    (("--loss", "logit-squeezing:beta=-1"), "cannot take beta='-1': Input should be greater than or equal to 0"),
    (("--loss", "logit-squeezing:beta=nan"), "cannot take beta='nan': Input should be a finite number"),
    (("--loss", "cross-entropy:on=wrong"), "there is no copy 'wrong'"),
    (("--label-smoothing", 1.5), "label_smoothing=1.5: The loss 'cross-entropy' cannot take smoothing=1.5"),
    (("--label-smoothing", "nan"), "Input should be a finite number"),
    (("--set", "label_smoothing=true"), "label_smoothing=True: true and false are not values of this key"),
    (("--set", "label_smoothing=[0.1]"), "label_smoothing=[0.1]: "),
    (("--set", "label_smothing=0.1"), "there is no key 'label_smothing' (did you mean label_smoothing?)"),
    (("--set", "consistency=-2"), "consistency=-2: The loss 'jensen-shannon' cannot take weight=-2"),
    (("--label-smoothing", 0.2, "--loss", "lrm:smoothing=0.1", *ATTACK), "it contradicts the loss 'lrm:smoothing=0.1'"),
    (("--attack", "pdg"), "There is no condition 'pdg'. Did you mean pgd?"),
    (("--attack", "attacks"), "'attacks' is not one attack"),
    (("--attack", "fog"), "'fog' is not one attack"),
    (("--attack", "pgd:source=digits-resnet8"), "attacks another network"),
    (("--attack", "pgd:eps=2"), "cannot take eps='2'"),
    (("--bn", "split", "--strong", "pgd", "--strong", "cutout"), "nothing else can make the strong ones"),
    (("--bn", "split", "--strong", "pgd:source=digits-resnet8"), "attacks another network"),
    (("--bn", "split", "--strong", "pgd", *ATTACK), "both make adversarial copies"),
    (("--bn", "split", "--loss", "lrm", *ATTACK), "takes as many copies through its main branch"),
    (("--loss", "trades"), "The loss trades needs adversarial copies, and no attack makes them."),
    (("--loss", "cross-entropy:on=weak", *ATTACK), "no term of the loss looks at them"),
    (("--loss", "cross-entropy:on=strong"), "the network has none"),
]


@pytest.mark.parametrize(("options", "told"), REFUSED)
def test_what_cannot_work_is_refused_before_anything_is_written(
    options: tuple[Any, ...], told: str, tmp_path: Path
) -> None:
    """With exit code 2 and in one line."""
    refused = refusal(*QUICK, *options, "-o", tmp_path / "run")
    assert told in refused
    assert len(refused.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_recipe_says_what_is_minimised(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("attack: pgd:eps=8/255,steps=7\nloss: [lrm, confidence-penalty]\nlabel_smoothing: 0.2\n")
    done("recipe", "check", recipe)
    keys = done("recipe", "keys").stdout
    assert all(key in keys for key in ("loss", "attack", "strong", "label_smoothing"))
    told = yaml.safe_load(done(*QUICK, "--recipe", recipe, "--dry-run", "-o", tmp_path / "run").stdout)
    assert told["loss"] == [
        "cross-entropy:smoothing=0.2", "decoupled-pairing", "logit-squeezing", "confidence-penalty",
    ]  # fmt: skip
    given = ("--recipe", recipe, "--label-smoothing", 0, "--dry-run", "-o", tmp_path / "run")
    assert yaml.safe_load(done(*QUICK, *given).stdout)["loss"][0] == "cross-entropy"
    given = ("--recipe", recipe, "--loss", "alp", "--dry-run", "-o", tmp_path / "run")
    assert yaml.safe_load(done(*QUICK, *given).stdout)["loss"] == ["cross-entropy", "alp"], "another loss altogether"
    recipe.write_text("loss: alp:weight=-1\nlabel_smoothing: null\n")
    assert "2 problems in" in refusal("recipe", "check", recipe)


def test_a_run_of_an_older_version_goes_on(tmp_path: Path) -> None:
    """Its recipe has keys that are short forms now, and lacks those of losses and attacks."""
    done(*QUICK, "--label-smoothing", 0.1, "-o", tmp_path / "run")
    path, result = tmp_path / "run" / "recipe.yaml", (tmp_path / "run" / "result.json").read_bytes()
    recipe = yaml.safe_load(path.read_text("utf-8"))
    assert recipe.pop("loss") == ["cross-entropy:smoothing=0.1"]
    assert recipe.pop("attack") is None
    path.write_text(yaml.safe_dump({**recipe, "label_smoothing": 0.1, "consistency": 0.0}), encoding="utf-8")
    done(*QUICK, "--label-smoothing", 0.1, "-o", tmp_path / "run", "--resume")
    done(*QUICK, "--loss", "cross-entropy:smoothing=0.1", "-o", tmp_path / "run", "--resume")
    assert (tmp_path / "run" / "result.json").read_bytes() == result
    assert "other settings: loss" in refusal(*QUICK, "-o", tmp_path / "run", "--resume")
    assert "other settings: attack" in refusal(
        *QUICK, "--label-smoothing", 0.1, *ATTACK, "-o", tmp_path / "run", "--resume"
    )


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes")
@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        # Each process attacks by the running statistics of its own images.
        (("--bn", "ghost:size=5", "--attack", "pgd:eps=0.05,steps=2", "--loss", "lrm"), 0.05),
        # The auxiliary branch takes no part, which may not keep processes waiting for its gradients.
        (("--bn", "split", "--loss", "cross-entropy:on=weak"), 0.2),
    ],
    ids=["lrm", "one branch"],
)
def test_two_processes(options: tuple[Any, ...], tolerance: float, tmp_path: Path) -> None:
    options = (*QUICK, "--no-pretrained", "--augment", "standard", *options)
    whole = document(*options, "-o", tmp_path / "one")
    launch = [command()[0], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    finished = subprocess.run(
        [*launch, "-m", "surgeon", *map(str, options), "-o", str(tmp_path / "two")],
        capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    shared = json.loads((tmp_path / "two" / "result.json").read_text("utf-8"))
    for one, other in zip(whole["epochs"], shared["epochs"], strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=tolerance)
