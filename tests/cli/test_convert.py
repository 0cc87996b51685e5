"""`surgeon convert`: what it writes, what it prints, and where."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file

import surgeon
from surgeon.checkpoint.folder import load_checkpoint
from surgeon.models.sources import example_inputs, load_model
from surgeon.surgery import parity
from tests.cli.running import FILES, contents, document, done, invoke, operations, refusal
from tests.helpers import randn

RESNET20 = ("convert", "cifar-resnet20", "--no-pretrained")
RESNET20_LAYERS = ["bn1"] + [f"layer{s}.{b}.bn{i}" for s in (1, 2, 3) for b in (0, 1, 2) for i in (1, 2)]


# --- what it writes and prints


@pytest.mark.parametrize(
    ("model", "layers", "kind", "parameters"),
    [
        ("cifar-resnet20", 19, "BatchNorm2d", "269,722"),
        ("resnet18", 20, "BatchNorm2d", "11,689,512"),
        ("mobilenetv3_small_050", 34, "BatchNormAct2d", "1,593,224"),
    ],
)
def test_writes_a_checkpoint_that_verifies(model: str, layers: int, kind: str, parameters: str, here: Path) -> None:
    outcome = done("convert", model, "--no-pretrained", "--bn", "example-weighted:alpha=0.1", "-o", "out")
    assert outcome.stdout == "out\n"
    assert f"- {layers} × {kind}" in outcome.stderr
    assert f"+ {layers} × example-weighted:alpha=0.1" in outcome.stderr
    assert "largest difference at the identity setting" in outcome.stderr
    assert f"{parameters} (unchanged) · {layers} layers rewritten" in outcome.stderr
    assert sorted(contents(here / "out")) == FILES
    assert set(map(str, operations(here / "out").values())) == {"{'example-weighted': {'alpha': 0.1}}"}
    done("verify", "out")


def test_json_says_all_that_was_done(weights_of: Callable[[str], Path]) -> None:
    weights = weights_of("test_efficientnet")
    told = document("convert", "test_efficientnet", "-w", weights, "--bn", "example-weighted:alpha=0.1", "-o", "out")
    assert told["model"] == "test_efficientnet"
    assert told["weights"] == {"origin": weights.name, "sha256": hashlib.sha256(weights.read_bytes()).hexdigest()}
    assert told["rewrites"] == "example-weighted:alpha=0.1"
    assert told["parameters_before"] == told["parameters_after"] == 356_196
    assert told["identity_difference"] <= 1e-5
    assert told["output_shift"] > 1e-3
    assert told["output"] == "out"
    assert {operation["source"] for operation in told["operations"]} == {"BatchNormAct2d"}


def test_json_is_all_there_is_on_stdout() -> None:
    outcome = done(*RESNET20, "--bn", "ghost", "--json")
    assert json.loads(outcome.stdout)["output"] == "cifar-resnet20-ghost"
    assert outcome.stderr == ""


def test_tells_how_it_found_the_weights(weights_of: Callable[[str], Path], here: Path) -> None:
    state = load_file(weights_of("test_resnet"))
    wrapped = {"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}, "epoch": 3}
    torch.save(wrapped, here / "wrapped.pth")
    outcome = done("convert", "test_resnet", "--weights", "wrapped.pth", "--bn", "ghost", "-o", "out")
    assert "took 'state_dict'" in outcome.stderr
    assert "removed the prefix 'module.'" in outcome.stderr
    assert torch.equal(surgeon.load("out").state_dict()["fc.bias"], state["fc.bias"])


def test_another_number_of_classes() -> None:
    done("convert", "test_resnet", "--no-pretrained", "--num-classes", "7", "--bn", "ghost", "-o", "out")
    assert surgeon.load("out")(randn(1, 3, 64, 64)).shape == (1, 7)
    done("verify", "out")


# --- dry runs


def test_a_dry_run_shows_the_plan_and_writes_nothing(here: Path) -> None:
    outcome = done(*RESNET20, "--bn", "ghost:size=4", "--dry-run", "-o", "out/deep")
    for layer in RESNET20_LAYERS:
        assert layer in outcome.stdout
    assert outcome.stdout.count("ghost:size=4") == 19
    assert "nothing was written" in outcome.stderr
    assert not list(here.iterdir())


def test_a_dry_run_as_json(here: Path) -> None:
    told = document(*RESNET20, "--bn", "ghost", "--dry-run")
    assert [operation["layer"] for operation in told["operations"]] == RESNET20_LAYERS
    assert (told["output"], told["identity_difference"]) == (None, None)
    assert not list(here.iterdir())


# --- which layers


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("layer[23].*", [layer for layer in RESNET20_LAYERS if layer.startswith(("layer2", "layer3"))]),
        ("*.bn2", [layer for layer in RESNET20_LAYERS if layer.endswith(".bn2")]),
        ("stem,last", ["bn1", "layer3.2.bn2"]),
        ("stage2", [layer for layer in RESNET20_LAYERS if layer.startswith("layer2")]),
        ("depth=0.5-1", RESNET20_LAYERS[9:]),
        ("layer1.0.bn[12],bn1", ["bn1", "layer1.0.bn1", "layer1.0.bn2"]),
    ],
)
def test_only_the_selected_layers(selector: str, expected: list[str], here: Path) -> None:
    done(*RESNET20, "--bn", "ghost", "--layers", selector, "-o", "out")
    assert list(operations(here / "out")) == expected
    done("verify", "out")


def test_rewrites_of_training_and_inference_compose(here: Path) -> None:
    outcome = done(*RESNET20, "--bn", "ghost:size=16", "--bn", "example-weighted:alpha=0.05")
    assert outcome.stdout == "cifar-resnet20-ghost-example-weighted\n"
    assert "19 × ghost:size=16 + example-weighted:alpha=0.05" in outcome.stderr
    expected = {"ghost": {"size": 16, "running": "batch"}, "example-weighted": {"alpha": 0.05}}
    assert list(operations(here / outcome.stdout.strip()).values()) == [expected] * 19


def test_a_rewrite_can_have_its_own_layers_and_values(here: Path) -> None:
    rewrites = ("--bn", "example-weighted:alpha=0.02", "--bn", "example-weighted@layer3.*:alpha=0.3")
    done(*RESNET20, *rewrites, "--bn", "ghost@stem:size=2", "-o", "out")
    found = operations(here / "out")
    assert {layer for layer, rewrites in found.items() if "ghost" in rewrites} == {"bn1"}
    for layer, rewrites in found.items():
        assert rewrites["example-weighted"] == {"alpha": 0.3 if layer.startswith("layer3") else 0.02}


def test_selectors_of_a_rewrite_and_of_the_command_meet(here: Path) -> None:
    done(*RESNET20, "--bn", "ghost@*.bn2", "--layers", "layer1.*", "-o", "out")
    assert list(operations(here / "out")) == ["layer1.0.bn2", "layer1.1.bn2", "layer1.2.bn2"]


# --- where to


@pytest.mark.parametrize(
    ("model", "rewrites", "expected"),
    [
        ("cifar-resnet20", ["ghost:size=4"], "cifar-resnet20-ghost"),
        (
            "test_resnet.r160_in1k",
            ["ghost@layer1.*", "example-weighted"],
            "test_resnet.r160_in1k-ghost-example-weighted",
        ),
        ("torchvision:mobilenet_v3_small", ["ghost"], "torchvision-mobilenet_v3_small-ghost"),
    ],
)
def test_the_default_destination_says_what_is_in_it(model: str, rewrites: list[str], expected: str, here: Path) -> None:
    specs = (part for rewrite in rewrites for part in ("--bn", rewrite))
    assert done("convert", model, "--no-pretrained", *specs).stdout == f"{expected}\n"
    assert [folder.name for folder in here.iterdir()] == [expected]


def test_the_default_destination_of_a_folder_elsewhere_is_here(here: Path, tmp_path: Path) -> None:
    done(*RESNET20, "--bn", "ghost", "-o", tmp_path / "elsewhere")
    assert done("convert", tmp_path / "elsewhere", "--bn", "example-weighted").stdout == "elsewhere-example-weighted\n"
    assert (here / "elsewhere-example-weighted").is_dir()


def test_the_default_destination_of_the_working_folder_is_no_option(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder named `-ghost` would be taken for an option by every later command."""
    done("convert", "digits-resnet8", "--bn", "ghost", "-o", "mine")
    monkeypatch.chdir(here / "mine")
    assert not done("convert", ".", "--bn", "example-weighted").stdout.startswith("-")


def test_folders_on_the_way_are_made(here: Path) -> None:
    done(*RESNET20, "--bn", "ghost", "-o", "a/b/c")
    assert sorted(contents(here / "a" / "b" / "c")) == FILES


def test_an_existing_checkpoint_is_kept_unless_told(here: Path) -> None:
    done(*RESNET20, "--bn", "ghost:size=4", "-o", "out")
    before = contents(here)
    said = refusal(*RESNET20, "--bn", "ghost:size=8", "-o", "out")
    assert "out already exists" in said
    assert "--overwrite" in said
    assert contents(here) == before
    done(*RESNET20, "--bn", "ghost:size=8", "-o", "out", "--overwrite")
    assert operations(here / "out")["bn1"]["ghost"]["size"] == 8
    assert sorted(contents(here / "out")) == FILES
    done("verify", "out")


def test_an_existing_destination_is_refused_before_any_work(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "out").mkdir()
    (here / "out" / "notes.txt").write_text("mine")
    monkeypatch.setattr("surgeon.checkpoint.folder.open_model", lambda *_, **__: pytest.fail("the model was opened"))
    assert "already exists" in refusal(*RESNET20, "--bn", "ghost", "-o", "out")


def test_an_empty_folder_is_a_fine_destination(here: Path) -> None:
    (here / "out").mkdir()
    assert done(*RESNET20, "--bn", "ghost", "-o", "out").stdout == "out\n"


@pytest.mark.parametrize("destination", ["file", "file/below"])
@pytest.mark.parametrize("options", [[], ["--overwrite"]], ids=["plain", "overwrite"])
def test_a_file_in_the_way_is_kept(destination: str, options: list[str], here: Path) -> None:
    (here / "file").write_text("mine")
    assert "file" in refusal(*RESNET20, "--bn", "ghost", "-o", destination, *options)
    assert contents(here) == {"file": b"mine"}


# --- from a checkpoint


@pytest.fixture
def weighted(weights_of: Callable[[str], Path], here: Path) -> Path:
    """A checkpoint at alpha = 0.3 of a network with telling statistics."""
    weights = weights_of("test_resnet")
    done("convert", "test_resnet", "--weights", weights, "--bn", "example-weighted:alpha=0.3", "-o", "weighted")
    return here / "weighted"


def directly(weights: Path, *rewrites: str) -> torch.nn.Module:
    """The same network converted at once."""
    return surgeon.convert(load_model("test_resnet", weights=weights).model, *rewrites)


IMAGES = randn(2, 3, 96, 96)


def test_a_rewrite_is_added_to_those_a_checkpoint_has(weights_of: Callable[[str], Path]) -> None:
    weights = weights_of("test_resnet")
    done("convert", "test_resnet", "--weights", weights, "--bn", "ghost:size=4", "-o", "ghost")
    done("convert", "ghost", "--bn", "example-weighted:alpha=0.1", "-o", "both")
    expected = directly(weights, "ghost:size=4", "example-weighted:alpha=0.1")
    assert torch.equal(surgeon.load("both")(IMAGES), expected(IMAGES))
    done("verify", "both")


@pytest.mark.parametrize("rewrite", ["example-weighted:alpha=0.1", "example-weighted:alpha=0"])
def test_the_alpha_of_a_checkpoint_can_be_changed(
    rewrite: str, weighted: Path, weights_of: Callable[[str], Path]
) -> None:
    done("convert", weighted, "--bn", rewrite, "-o", "changed")
    expected = directly(weights_of("test_resnet"), rewrite)
    assert torch.equal(surgeon.load("changed")(IMAGES), expected(IMAGES))
    done("verify", "changed")


def test_a_rewrite_of_training_keeps_the_alpha_of_a_checkpoint(weighted: Path) -> None:
    before = surgeon.load(weighted)(IMAGES)
    done("convert", weighted, "--bn", "ghost:size=4", "-o", "both")
    assert torch.equal(surgeon.load("both")(IMAGES), before)


def test_some_layers_of_a_checkpoint_can_be_changed(
    weighted: Path, weights_of: Callable[[str], Path], here: Path
) -> None:
    rewrite = "example-weighted:alpha=0.1"
    told = document("convert", weighted, "--bn", rewrite, "--layers", "layer4.*", "-o", "changed")
    for layer, rewrites in operations(here / "changed").items():
        assert rewrites["example-weighted"]["alpha"] == (0.1 if layer.startswith("layer4") else 0.3)
    changed = load_checkpoint(here / "changed")
    inputs = example_inputs(changed.origin)
    original = load_model("test_resnet", weights=weights_of("test_resnet")).model
    shift = parity.relative_difference(changed.model(*inputs), original(*inputs))
    assert told["output_shift"] == pytest.approx(shift, rel=1e-3)
    done("verify", "changed")


def test_batch_group_takes_example_weighting_later(weights_of: Callable[[str], Path]) -> None:
    weights = weights_of("test_resnet")
    done("convert", "test_resnet", "--weights", weights, "--bn", "batch-group:channel_groups=4", "-o", "grouped")
    done("convert", "grouped", "--bn", "example-weighted:alpha=0.1", "-o", "both")
    expected = directly(weights, "batch-group:channel_groups=4", "example-weighted:alpha=0.1")
    assert torch.equal(surgeon.load("both")(IMAGES), expected(IMAGES))


def test_a_checkpoint_can_be_converted_in_place(here: Path) -> None:
    done(*RESNET20, "--bn", "ghost", "-o", "out")
    done("convert", "out", "--bn", "example-weighted:alpha=0.1", "-o", "out", "--overwrite")
    assert list(operations(here / "out")["bn1"]) == ["ghost", "example-weighted"]
    done("verify", "out")


def test_a_checkpoint_keeps_the_record_of_its_first_weights(weighted: Path) -> None:
    first = json.loads((weighted / "surgery.json").read_text())["base_weights"]
    told = document("convert", weighted, "--bn", "example-weighted:alpha=0.3", "--dry-run")
    assert told["weights"] == first


def test_the_bundled_model_is_converted_like_any_other(here: Path) -> None:
    assert done("convert", "digits-resnet8", "--bn", "example-weighted:alpha=0.5").stdout == (
        "digits-resnet8-example-weighted\n"
    )
    assert list(operations(here / "digits-resnet8-example-weighted")["bn1"]) == ["ghost", "example-weighted"]


# --- timm's own folders


def timm_folder(folder: Path, **arguments: int) -> torch.nn.Module:
    """A network saved by timm itself, as its users share them."""
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", **arguments).eval()
    classes = {"num_classes": model.num_classes}
    timm.models.save_for_hf(model, str(folder), model_args=arguments, safe_serialization=True, model_config=classes)
    return model


@pytest.mark.parametrize("prefix", ["", "local-dir:"])
def test_a_folder_of_timm(prefix: str, here: Path) -> None:
    original = timm_folder(here / "mine", num_classes=5)
    done("convert", f"{prefix}mine", "--bn", "ghost", "-o", "out")
    for file in contents(here / "mine"):
        (here / "mine" / file).unlink()  # the checkpoint does not need it any more
    assert torch.equal(surgeon.load("out")(IMAGES), original(IMAGES))
    done("verify", "out")


def test_a_folder_of_timm_for_grey_images(here: Path) -> None:
    original = timm_folder(here / "grey", in_chans=1)
    done("convert", "grey", "--bn", "example-weighted:alpha=0", "-o", "out")
    assert torch.equal(surgeon.load("out")(IMAGES[:, :1]), original(IMAGES[:, :1]))
    done("verify", "out")


# --- when the proof fails


def test_a_network_that_differs_is_not_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "relative_difference", lambda *_: 0.25)
    outcome = invoke(*RESNET20, "--bn", "ghost", "-o", "out")
    assert outcome.code == 3
    assert "differs from the original by 0.25" in outcome.stderr
    assert not list(here.iterdir())
