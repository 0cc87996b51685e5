"""Instance-aware BatchNorm: its formula, its identity, what infinity is in specs and files, what it composes with."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import surgeon
from surgeon.checkpoint.reading import open_model
from surgeon.core.errors import SurgeonError
from surgeon.norms import norms
from surgeon.surgery.apply import current_plan
from tests.helpers import randn, randomise
from tests.reference.norms import instance_aware

LAYERS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "one position": (nn.BatchNorm1d, ()),
    "one position of an image": (nn.BatchNorm2d, (1, 1)),
    "sequence": (nn.BatchNorm1d, (9,)),
    "image": (nn.BatchNorm2d, (5, 4)),
    "volume": (nn.BatchNorm3d, (3, 2, 4)),
}


def shifted(kind: str) -> tuple[nn.Module, torch.Tensor]:
    """A layer, and examples each of which has another mean and contrast."""
    build, positions = LAYERS[kind]
    scale = torch.linspace(0.05, 4, 8, dtype=torch.float64).reshape(-1, 1, *[1] * len(positions))
    return randomise(build(6)).double().eval(), scale * randn(8, 6, *positions, dtype=torch.float64) + scale - 1


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("spec", ["k=0", "k=0.5", "k=3,weight=0.3", "k=8", "k=1000"])
def test_the_layer_computes_the_formula(kind: str, spec: str) -> None:
    layer, x = shifted(kind)
    converted = surgeon.convert(layer, f"instance-aware:{spec}")
    torch.testing.assert_close(converted(x), instance_aware(converted, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", LAYERS)
def test_alpha_mixes_the_examples_statistics_into_the_corrected_ones(kind: str) -> None:
    layer, x = shifted(kind)
    converted = surgeon.convert(layer, "instance-aware:k=0.5,weight=0.6", "example-weighted:alpha=0.3")
    torch.testing.assert_close(converted(x), instance_aware(converted, x), rtol=1e-7, atol=1e-7)
    alone = surgeon.convert(layer, "example-weighted:alpha=0.3")
    without = surgeon.convert(converted, "instance-aware:k=inf")
    assert torch.equal(without(x), alone(x))


@pytest.mark.parametrize("spec", ["k=inf", "k=inf,weight=1", "k=0,weight=0"])
def test_at_infinity_and_at_weight_zero_it_is_the_original_to_the_bit(spec: str) -> None:
    layer, x = shifted("image")
    assert torch.equal(surgeon.convert(layer, f"instance-aware:{spec}")(x), layer(x))


def test_zero_standard_errors_normalise_each_example_by_itself() -> None:
    layer, x = shifted("image")
    converted = surgeon.convert(layer, "instance-aware:k=0")
    expected = nn.functional.instance_norm(x, weight=layer.weight, bias=layer.bias, eps=layer.eps)
    torch.testing.assert_close(converted(x), expected)


@pytest.mark.parametrize("options", ["k=-1", "k=nan", "weight=1.5", "weight=inf", "k=-inf"])
def test_options_that_make_no_sense_are_refused(options: str) -> None:
    with pytest.raises(SurgeonError, match="cannot take"):
        surgeon.convert(nn.BatchNorm2d(3), f"instance-aware:{options}")


def test_a_layer_without_running_statistics_is_refused() -> None:
    with pytest.raises(SurgeonError, match="nothing to correct"):
        surgeon.convert(nn.BatchNorm2d(3, track_running_stats=False), "instance-aware")


def test_modes_have_no_running_statistics_to_correct() -> None:
    with pytest.raises(SurgeonError, match="a layer can take only one of them"):
        surgeon.convert(nn.BatchNorm2d(3), "mode", "instance-aware")


def test_a_corrected_layer_is_not_folded_by_other_tools() -> None:
    converted = surgeon.convert(nn.BatchNorm2d(3), "instance-aware:k=8")
    with pytest.raises(SurgeonError, match="evaluates by a rule of its own"):
        _ = converted.eps
    assert math.isclose(surgeon.convert(converted, "instance-aware:k=inf").eps, 1e-5)


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_infinity_survives_a_checkpoint_as_strictly_valid_json(tmp_path: Path) -> None:
    model = surgeon.convert(open_model("digits-resnet8").model, "instance-aware:k=inf")
    assert "instance-aware:k=inf" in current_plan(model).summary()
    surgeon.save(model, tmp_path / "out")
    stored = strict_json((tmp_path / "out" / "surgery.json").read_text("utf-8"))
    rewrites = stored["plan"]["operations"][0]["rewrites"]
    assert {r["name"]: r["options"] for r in rewrites}["instance-aware"] == {"k": "inf", "weight": 1.0}
    again = surgeon.load(tmp_path / "out")
    assert current_plan(again) == current_plan(model)
    config = norms["instance-aware"].configure({"k": math.inf})
    assert norms["instance-aware"].configure(strict_json(config.model_dump_json())) == config


@pytest.mark.parametrize("target", ["onnx", "torch-export"])
def test_what_is_exported_corrects_as_the_network_does(target: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = surgeon.convert(open_model("digits-resnet8").model, "instance-aware:k=1,weight=0.7").eval()
    images = torch.linspace(0.1, 3, 5).reshape(-1, 1, 1, 1) * randn(5, 1, 8, 8)
    path = tmp_path / f"network.{'onnx' if target == 'onnx' else 'pt2'}"
    exported = surgeon.export(model, path, to=target, inputs=(images,))
    assert exported.difference <= 1e-4
    with torch.no_grad():
        assert (model(images) - open_model("digits-resnet8").model.eval()(images)).abs().max() > 0.05
