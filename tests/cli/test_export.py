"""`surgeon export` as it is typed: what it writes, says and refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

import surgeon
from tests.cli.running import contents, document, done, refusal
from tests.helpers import randn


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints") / "weighted"
    done("convert", "digits-resnet8", "--bn", "example-weighted:alpha=0.5", "-o", folder)
    return folder


@torch.no_grad()
def test_a_graph_with_its_description(checkpoint: Path, here: Path) -> None:
    told = document("export", checkpoint, "--to", "torch-export", "-o", "deep/a.pt2")
    images = randn(3, 1, 8, 8)
    again = torch.export.load(here / "deep/a.pt2").module()
    assert torch.allclose(again(images), surgeon.load(checkpoint)(images), atol=1e-5)
    assert told["files"].keys() == {"deep/a.pt2", "deep/a.pt2.json"}
    assert told["folded"] is None
    assert told["batch_sizes"] == [1, 2, 5]
    before = contents(here)
    assert "deep/a.pt2 already exists" in refusal("export", checkpoint, "--to", "torch-export", "-o", "deep/a.pt2")
    assert contents(here) == before


def test_it_is_compared_on_real_images(checkpoint: Path) -> None:
    told = done("export", checkpoint, "--to", "torch-export", "-o", "a.pt2", "--data", "digits", "--split", "train")
    assert "on 64 images of digits, in batches of 1, 7 and 64" in told.stderr
    assert "pass both" in refusal("export", checkpoint, "--to", "torch-export", "-o", "c.pt2", "--split", "train")
    assert "no/such" in refusal("export", checkpoint, "--to", "torch-export", "-o", "c.pt2", "--data", "no/such")
    assert not Path("c.pt2").exists()


def test_weights_are_chosen_as_everywhere(here: Path, weights_of: Callable[[str], Path]) -> None:
    to = ("--to", "timm", "-o")
    done("export", "test_resnet", "--weights", weights_of("test_resnet"), *to, "own")
    assert same_weights(here / "own", load_file(weights_of("test_resnet")))
    done("export", "test_resnet", "--no-pretrained", "--num-classes", 7, *to, "random")
    assert timm.create_model("local-dir:random", pretrained=True)(randn(2, 3, 64, 64)).shape == (2, 7)


def same_weights(folder: Path, weights: dict[str, torch.Tensor]) -> bool:
    written = load_file(folder / "model.safetensors")
    return all(torch.equal(written[name], weights[name]) for name in weights)


def test_named_after_the_model_and_folded(here: Path) -> None:
    outcome = done("export", "digits-resnet8", "--to", "torch-export", "--fold")
    assert outcome.stdout.splitlines() == ["digits-resnet8.pt2", "digits-resnet8.pt2.json"]
    assert "7 BatchNorm layers into convolutions" in outcome.stderr
    assert sorted(contents(here)) == outcome.stdout.splitlines()


def test_a_plain_timm_folder(here: Path) -> None:
    done("convert", "test_resnet", "--no-pretrained", "--bn", "ghost:size=4", "-o", "ghost")
    outcome = done("export", "ghost", "--to", "timm")
    assert sorted(contents(here / "ghost-timm")) == ["README.md", "config.json", "model.safetensors"]
    assert 'timm.create_model("local-dir:ghost-timm", pretrained=True)' in outcome.stderr
    images = randn(2, 3, 64, 64)
    with torch.no_grad():
        plain = timm.create_model("local-dir:ghost-timm", pretrained=True).eval()(images)
        assert torch.allclose(plain, surgeon.load("ghost")(images), atol=1e-6)
    assert "ghost-timm already exists" in refusal("export", "ghost", "--to", "timm")
    done("export", "ghost", "--to", "timm", "--overwrite")
    before = contents(here / "ghost")
    assert "is a surgeon checkpoint" in refusal("export", "ghost", "--to", "timm", "-o", "ghost", "--overwrite")
    assert contents(here / "ghost") == before


def test_the_card_of_a_plain_folder(here: Path, weights_of: Callable[[str], Path]) -> None:
    finetune = ("--data", "digits", "--limit", 40, "--epochs", 1, "--input-size", 32, "--workers", 0, "-o", "run")
    done("finetune", "test_resnet", "--weights", weights_of("test_resnet"), *finetune, "--set", "sweep=null")
    done("export", "run/checkpoint", "--to", "timm", "-o", "plain")
    card = ModelCard((here / "plain" / "README.md").read_text("utf-8"))
    assert card.data.library_name == "timm"
    assert card.data.model_name == "test_resnet, fine-tuned on digits"
    assert card.data.eval_results[0].dataset_type == "digits"
    for fact in ("test_resnet.safetensors", "3x32x32", "Fine-tuned on digits", "timm.create_model("):
        assert fact in card.text


def test_refusals_leave_nothing(checkpoint: Path, here: Path) -> None:
    (here / "file").write_text("")
    assert "Choose timm, onnx or torch-export" in refusal("export", checkpoint, "--to", "onyx")
    assert "ends in .onnx" in refusal("export", checkpoint, "--to", "onnx", "-o", "model.pt2")
    assert "Folding goes with onnx" in refusal("export", checkpoint, "--to", "timm", "--fold")
    assert "not one of timm's" in refusal("export", checkpoint, "--to", "timm")
    assert "file exists and is not a folder" in refusal("export", checkpoint, "--to", "onnx", "-o", "file/a.onnx")
    assert "no-such" in refusal("export", "no-such-model", "--to", "torch-export")
    assert "file" in refusal("export", "file", "--to", "torch-export")
    assert sorted(contents(here)) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable(checkpoint: Path, here: Path) -> None:
    (here / "locked").mkdir(mode=0o500)
    assert "not writable" in refusal("export", checkpoint, "--to", "torch-export", "-o", "locked/a.pt2", code=1)
