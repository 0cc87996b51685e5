"""Networks that onnxruntime computes: the same predictions as torch's, or a refusal."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import surgeon
from surgeon.checkpoint import open_model
from surgeon.commands.evaluate import run_evaluation
from surgeon.commands.export.in_onnxruntime import InOnnxruntime
from surgeon.core.devices import Engine
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.measuring.preparation import InferenceRequest
from surgeon.models.origin import LoadedModel, Origin, Preprocessing
from surgeon.surgery.temperature import set_temperature
from tests.cli.running import document, done, invoke, refusal
from tests.helpers import randn, small_resnet

WITH = ("--engine", "onnxruntime")
DIGITS = Preprocessing(input_size=(1, 8, 8), mean=(0.5,), std=(0.25,))


@pytest.fixture
def _onnxruntime() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)


@pytest.mark.usefixtures("_onnxruntime")
def test_predictions_are_those_of_torch(tmp_path: Path) -> None:
    model = surgeon.convert(open_model("digits-resnet8").model, "example-weighted:alpha=0.4")
    set_temperature(model, 1.7)
    surgeon.save(model, tmp_path / "weighted")
    told, kept = [], []
    for name, options in (("torch", ()), ("onnxruntime", WITH)):
        file = tmp_path / f"{name}.safetensors"
        told.append(document("eval", tmp_path / "weighted", "--data", "digits", "--save-logits", file, *options))
        kept.append(load_file(file))
    (plain, other), (expected, found) = told, kept
    assert (plain["engine"], plain["engine_difference"]) == ("torch", None)
    assert other["engine"] == "onnxruntime"
    assert other["engine_difference"] <= 1e-4
    assert (found["logits"] - expected["logits"]).abs().max() <= 1e-4
    assert not torch.equal(found["logits"], expected["logits"])  # another program added up
    assert other["metrics"]["accuracy"] == plain["metrics"]["accuracy"]
    assert other["metrics"]["cross_entropy"] == pytest.approx(plain["metrics"]["cross_entropy"], abs=1e-5)


@pytest.mark.usefixtures("_onnxruntime")
def test_it_is_said_which_engine_it_was(tmp_path: Path) -> None:
    told = done(
        "eval", "digits-resnet8", "--data", "digits", "--limit", "60", "--tta", "flip", *WITH, "-o", tmp_path / "out"
    )
    sentence = "onnxruntime, logits of the first batch within"
    assert sentence in " ".join(told.stderr.split())
    assert sentence in (tmp_path / "out" / "report.html").read_text()
    assert json.loads((tmp_path / "out" / "result.json").read_text())["engine"] == "onnxruntime"


@pytest.mark.usefixtures("_onnxruntime")
def test_other_predictions_are_an_error() -> None:
    model, images = small_resnet().eval(), randn(4, 3, 8, 8)
    network = InOnnxruntime(model, images)
    with torch.no_grad():
        model.fc.bias[1] += 0.5  # type: ignore[index, operator, union-attr]
    with (
        torch.inference_mode(),
        pytest.raises(SurgeonError, match=r"differ from torch's by 0\.5, more than 0\.0001") as error,
    ):
        network(images)
    assert error.value.exit_code is ExitCode.VERIFICATION


class Asked(nn.Module):
    """A linear network that answers otherwise than a function of each image."""

    def __init__(self, answer: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.answer = nn.Linear(64, 10), answer

    def forward(self, images: Tensor) -> Tensor:
        return self.answer(self.linear(images.flatten(1)))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda logits: nn.functional.dropout(logits, 0.5), "its outputs for the same images differ from call to call"),
        (lambda logits: logits - logits.mean(0), "depends on the others in the batch"),
        (lambda logits: logits + float(logits.sum() > 1e9), "torch.export cannot make one graph"),
    ],
)
def test_what_is_no_function_of_each_image_is_refused(answer: Callable[[Tensor], Tensor], reason: str) -> None:
    loaded = LoadedModel("asked", Asked(answer), Origin(preprocessing=DIGITS))
    with pytest.raises(SurgeonError, match=reason) as error:
        run_evaluation(loaded, InferenceRequest(data="digits", limit=20), lambda *_: None, engine=Engine.ONNXRUNTIME)
    assert error.value.exit_code is ExitCode.USAGE
    assert "Leave --engine onnxruntime out" in str(error.value)


@pytest.mark.usefixtures("_onnxruntime")
def test_branches_and_other_engines_are_refused(tmp_path: Path) -> None:
    done("convert", "digits-resnet8", "--bn", "split", "-o", tmp_path / "split")
    assert "it has two branches" in refusal("eval", tmp_path / "split", "--data", "digits", *WITH)
    assert "no/engine" in refusal("eval", "digits-resnet8", "--data", "digits", "--engine", "no/engine")
    half = invoke("eval", "digits-resnet8", "--data", "digits", "--precision", "bfloat16", *WITH)
    assert (half.code, "float32" in half.stderr) == (2, True)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxruntime" else there(name, *rest)
    )
    told = refusal("eval", "digits-resnet8", "--data", "digits", *WITH)
    assert "--engine onnxruntime needs" in told
    assert "pip install" in told
    assert "onnxruntime" in told.split("pip install")[1]
