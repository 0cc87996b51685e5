"""A norm, an insert and a mix of others, in every command in which one can appear: nothing in surgeon names them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from surgeon.augment.base import augments
from surgeon.augment.pipeline import Augmentation, build_augmentation
from surgeon.checkpoint import open_model
from surgeon.inserts import inserts
from surgeon.losses.base import Copy, ask
from surgeon.models.origin import Preprocessing
from surgeon.norms import norms
from surgeon.surgery.apply import convert
from surgeon.surgery.inspect import inspect_model
from surgeon.training.copies import Copies
from surgeon.training.loop import Trainer
from surgeon.training.objective import Draws, Given, Objective
from surgeon.training.recipe import Recipe
from tests.cli.running import document, done, invoke, operations, refusal
from tests.helpers import SmallResNet, randn
from tests.unit.training.test_objective import NOTHING

PLUGIN = Path(__file__).parents[1] / "plugin"
ADDED = ((norms, "their-fade"), (inserts, "their-swap"), (augments, "their-stripes"))
DIGITS = ("--data", "digits", "--limit", "300")


@pytest.fixture(scope="module", autouse=True)
def theirs() -> Iterator[None]:
    """Their modules are imported, as an entry point does it, and forgotten afterwards."""
    for registry, _ in ADDED:
        list(registry)
    sys.path.insert(0, str(PLUGIN))
    try:
        import_module("their_methods")
        yield
    finally:
        sys.path.remove(str(PLUGIN))
        for registry, name in ADDED:
            registry.forget(name)
        for module in ("their_methods", "their_units"):
            sys.modules.pop(module, None)


@pytest.fixture(scope="module")
def net(theirs: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: ARG001
    """A checkpoint with their rewrite and their insert."""
    folder = tmp_path_factory.mktemp("converted") / "net"
    given = ("--bn", "their-fade:fade=0.1", "--insert", "their-swap:p=1,seed=3")
    told = document("convert", "digits-resnet8", *given, "-o", folder)
    assert told["identity_difference"] == 0
    assert told["output_shift"] > 0
    assert f"their-fade was put into {len(told['operations'])} layers" in told["notes"]
    return folder


@pytest.mark.parametrize(
    ("kind", "name", "option"),
    [("norms", "their-fade", "fade"), ("inserts", "their-swap", "p"), ("augments", "their-stripes", "alpha")],
)
def test_they_are_listed_with_their_options(kind: str, name: str, option: str) -> None:
    (listed,) = document("ls", kind, name)
    assert listed["paper"] == "They, 2025"
    assert option in [one["name"] for one in listed["options"]]
    assert name in done("ls", kind, name).stdout


@pytest.mark.parametrize("arguments", [["--bn", "their-fde"], ["--insert", "their-swp"]])
def test_they_are_proposed(arguments: list[str]) -> None:
    assert "Did you mean their-" in refusal("convert", "digits-resnet8", *arguments, "-o", "out")


def test_convert_stores_every_option(net: Path) -> None:
    assert operations(net)["bn1"]["their-fade"] == {"fade": 0.1, "least": 2}
    card = (net / "README.md").read_text("utf-8")
    assert "their-fade" in card
    assert "their-swap" in card


def test_inspect_shows_their_options_units_gates_and_health(net: Path) -> None:
    told = document("inspect", net, *DIGITS)
    assert "their-fade:fade=0.1,least=2" in told["layers"][0]["rewrites"]
    assert told["unhealthy"] == 0
    assert [unit["insert"] for unit in told["units"]] == ["their-swap:p=1.0,seed=3"]
    assert sum(told["gates"]["bn1"]["shares"]) == pytest.approx(1)
    assert "Gates" in done("inspect", net, *DIGITS).stdout
    model = open_model(str(net)).model
    model.bn1.their_threshold.bias.data.fill_(float("nan"))  # type: ignore[union-attr, operator]
    assert inspect_model(model).layers[0].health == ["threshold: bias has 1 NaN or infinite"]


def test_verify_proves_that_the_network_is_the_original_at_their_identity(net: Path) -> None:
    checks = {check["name"]: check["passed"] for check in document("verify", net)["checks"]}
    assert checks == {"files": True, "network": True, "outputs": True, "parity": True}


def test_their_option_is_swept_and_applied(net: Path, here: Path) -> None:
    sweep = ("sweep", net, *DIGITS, "--sweep", "their-fade.fade=0:1:3", "--method", "grid", "--force", "-o", "swept")
    told = document(*sweep)
    assert (told["axis"], told["original"]) == ("their-fade.fade", 0)
    assert [point["value"] for point in told["points"]] == [0, 0.5, 1]
    figures = {point["value"]: point["metrics"]["cross_entropy"] for point in told["points"]}
    for value in (0.5, 1.0):  # measured in the usual way
        done("convert", net, "--bn", f"their-fade:fade={value}", "-o", f"at-{value}")
        measured = document("eval", f"at-{value}", *DIGITS, "--split", told["split"])
        assert measured["metrics"]["cross_entropy"] == pytest.approx(figures[value], rel=1e-5)
    assert operations(here / "swept" / "checkpoint")["bn1"]["their-fade"]["fade"] == told["chosen"]
    assert "their-fade.fade" in (here / "swept" / "report.html").read_text("utf-8")


def test_what_can_be_swept_of_theirs_is_said() -> None:
    assert "their-fade.fade" in refusal("sweep", "digits-resnet8", *DIGITS, "--sweep", "their-fade.least=1")
    assert "fade=2" in refusal("sweep", "digits-resnet8", *DIGITS, "--sweep", "their-fade.fade=0,2")


def test_a_network_without_their_rewrite_is_converted_for_its_sweep() -> None:
    told = document("sweep", "digits-resnet8", *DIGITS, "--sweep", "their-fade.fade")
    assert [point["value"] for point in told["points"]] == pytest.approx([0.05 * step for step in range(11)])
    plain = document("eval", "digits-resnet8", *DIGITS, "--split", told["split"])
    original = next(one for one in told["settings"] if one["name"] == "original")
    assert original["choosing"]["accuracy"] == plain["metrics"]["accuracy"]


def test_finetune_trains_with_all_three(net: Path, here: Path) -> None:
    given = ("--data", "digits", "--augment", "their-stripes:p=0.5", "--epochs", "1", "--set", "train_images=128")
    told = document("finetune", net, *given, "-o", "run")
    assert told["recipe"]["augment"] == ["their-stripes:p=0.5"]
    assert "their-fade" in told["rewrites"]
    assert "their-swap" in told["rewrites"]
    assert operations(here / "run" / "checkpoint")["bn1"]["their-fade"]["fade"] == 0.1
    assert invoke("verify", here / "run" / "checkpoint").code == 0


def test_finetune_asks_how_many_examples_they_need() -> None:
    given = ("--bn", "their-fade:least=9", "--data", "digits", "--batch-size", "8", "-o", "run")
    assert "needs 9 examples, not 8" in refusal("finetune", "digits-resnet8", *given)


def test_preview_shows_their_mix(here: Path) -> None:
    done("preview", "their-stripes", "--data", "digits", "-o", "theirs.png")
    assert (here / "theirs.png").stat().st_size > 1000


def test_their_mix_is_measured_by_affinity() -> None:
    told = document("affinity", "digits-resnet8", "--augment", "their-stripes", *DIGITS)
    assert "their-stripes" in json.dumps(told)


IMAGES, LABELS = randn(6, 3, 8, 8), torch.tensor([0, 1, 2, 3, 0, 1])


def with_swap() -> tuple[nn.Module, Any]:
    """A network in evaluation, but for their unit."""
    model = convert(SmallResNet(), "their-swap:site=bn1,p=1,seed=1", inputs=(IMAGES,)).eval()
    (unit,) = (module for module in model.modules() if type(module).__name__ == "Swap")
    return model, unit.train()


def loss_of(model: nn.Module, augmentation: Augmentation, generator: torch.Generator) -> torch.Tensor:
    objective = Objective(model, ask(()), Copies({Copy.WEAK: augmentation}), 4)
    return objective(model, Given((IMAGES,), LABELS, torch.arange(6)), Draws(generator)).loss


def test_their_unit_mixes_the_targets() -> None:
    model, unit = with_swap()
    loss = loss_of(model, NOTHING, torch.Generator())
    assert sorted(unit.last.tolist()) == list(range(6))
    plain = F.cross_entropy(model.eval()(IMAGES), LABELS)
    torch.testing.assert_close(loss, plain)  # features and labels are swapped alike


def test_their_unit_takes_the_partners_of_their_mix() -> None:
    augmentation = build_augmentation(
        ["their-stripes"], Preprocessing(input_size=(3, 8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)
    )
    model, unit = with_swap()
    loss_of(model, augmentation, torch.Generator().manual_seed(3))
    (stripes,) = augmentation.mixing
    mixed = stripes.mixed(IMAGES, torch.Generator().manual_seed(3))  # type: ignore[attr-defined]
    assert torch.equal(unit.last, mixed.permutation)


def test_their_unit_draws_by_the_number_of_the_step() -> None:
    model, unit = with_swap()
    trainer: Any = SimpleNamespace(
        model=model, step=4, recipe=Recipe(seed=7), processes=SimpleNamespace(rank=0), _mixing=True
    )
    drawn = []
    for _ in range(2):
        Trainer._seed_step(trainer)
        drawn.append(torch.rand(3, generator=unit.generator))
    assert unit.seeds == [(7, 4, 0)] * 2
    assert torch.equal(*drawn)


def test_their_weights_are_in_the_checkpoint(net: Path) -> None:
    assert "bn1.their_threshold.bias" in load_file(net / "model.safetensors")
