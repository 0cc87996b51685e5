"""Published weights under the names of another code base."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import surgeon
from surgeon.models.renaming import Naming
from surgeon.models.sources import load_model
from surgeon.models.weights import read_weights
from tests.cli.running import document, refusal


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_a_published_network_loads_in_one_command(suffix: str, shared: Path, tmp_path: Path) -> None:
    original = shared / "data" / "weights" / "resnet20-12fca82f.th"
    names = {r"layer(\d)": r"stage_\1", r"(conv|bn)(\d)": r"\1_\2", "linear": "classifier"}
    state = {}
    for name, tensor in read_weights(original).state.items():
        for ours, theirs in names.items():
            name = re.sub(ours, theirs, name)
        state[name] = tensor.contiguous()
    file = tmp_path / f"theirs.{suffix}"
    (save_file if suffix == "safetensors" else torch.save)(state, file)
    convert = ("convert", "cifar-resnet20", "--weights", file, "--bn", "example-weighted:alpha=0.1")
    told = document(*convert, "--match", "shapes", "-o", tmp_path / "out")
    assert told["renamed"]["layers"]["stage_2.0.conv_1"] == "layer2.0.conv1"
    assert (told["renamed"]["checked"], told["renamed"]["norms"]) == (18, 19)
    expected = surgeon.convert(surgeon.load("cifar-resnet20", weights=original), "example-weighted:alpha=0.1")
    images = torch.randn(4, 3, 32, 32)
    assert torch.equal(surgeon.load(tmp_path / "out")(images), expected.eval()(images))
    assert "39 layers of the weights file matched by order and shape" in (tmp_path / "out" / "README.md").read_text()
    assert "cifar-resnet20 by shapes alone" in refusal("convert", "cifar-resnet56", "--weights", file, "--bn", "ghost")


def test_layers_exchanged_with_their_statistics_are_doubted(shared: Path, tmp_path: Path) -> None:
    """The network has 47.6% instead of 90.8% of 500 images right, though each BatchNorm fits its convolution."""
    state = dict(read_weights(shared / "data" / "weights" / "resnet20-12fca82f.th").state)
    exchanged = dict(state)
    for one, other in (("layer2.1", "layer2.2"), ("layer2.2", "layer2.1")):
        for name in state:
            if name.startswith((f"{one}.conv1", f"{one}.bn1")):
                exchanged[name.replace(one, other)] = state[name]
    for file, doubts in ((state, 0), (exchanged, 1)):
        torch.save(file, tmp_path / "theirs.pth")
        notes = load_model(
            "cifar-resnet20", weights=tmp_path / "theirs.pth", naming=Naming.of((), "shapes")
        ).origin.notes
        assert sum(note.startswith("doubtful: ") for note in notes) == doubts
