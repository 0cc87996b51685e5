"""Exported networks compute the same without surgeon, or are not there."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors import safe_open
from torch import Tensor, nn

import surgeon
from surgeon.checkpoint import open_model
from surgeon.checkpoint.writing import origin_of_timm_model
from surgeon.commands.export import operation
from surgeon.commands.export.folding import fold
from surgeon.commands.export.operation import run_export
from surgeon.commands.export.tracing import trace
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.data.digits import load_digits
from surgeon.inserts import inserts
from surgeon.layers.surgical import surgical_layers
from surgeon.models.origin import LoadedModel, ModelSource, Origin, Preprocessing
from surgeon.models.sources import build
from surgeon.norms import norms
from surgeon.results import Export, Target
from surgeon.surgery.branches import merge_branches, mix_branches
from surgeon.surgery.temperature import set_temperature
from tests.helpers import randn, randomise, small_resnet

OPTIONS = {"example-weighted": ":alpha=0.3", "batch-group": ":channel_groups=2", "selfnorm": ":form=published"}
EVERYTHING = [f"{name}{OPTIONS.get(name, '')}" for name in (*norms, *inserts)]
IMAGES = randn(4, 3, 8, 8, seed=9)
SHAPE = Preprocessing(input_size=(3, 8, 8), mean=(0.5,) * 3, std=(0.25,) * 3)


def small(rewrite: str | None = None, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> LoadedModel:
    """A small network with a rewrite, both of its branches in use if it has two, and a temperature."""
    model = small_resnet(norm)
    if rewrite is not None:
        model = surgeon.convert(model, rewrite, inputs=(IMAGES,))
    if rewrite == "split":
        tell_branches_apart(model)
        mix_branches(model, 0.4)
    set_temperature(model, 1.7)
    source = ModelSource(library="surgeon", architecture="small")
    return LoadedModel("small", model.eval(), Origin(source=source, preprocessing=SHAPE, class_names=tuple("abcd")))


def tell_branches_apart(model: nn.Module) -> None:
    for layer in surgical_layers(model).values():
        assert layer.aux is not None
        layer.aux.running_mean += 0.3  # type: ignore[operator]


def export(loaded: LoadedModel, target: Target, path: Path, **options: Any) -> Export:
    return run_export(loaded, target, path, **{"folding": False, "overwrite": False, **options})


def reloaded(path: Path) -> Callable[[Tensor], Tensor]:
    return torch.export.load(path).module()


@torch.no_grad()
def difference(ours: Any, theirs: Any, images: Tensor = IMAGES) -> float:
    return float((ours(images) - theirs(images)).abs().max())


@pytest.mark.long
@pytest.mark.parametrize("rewrite", EVERYTHING)
def test_torch_export_of_everything(rewrite: str, tmp_path: Path) -> None:
    loaded = small(rewrite)
    told = export(loaded, Target.TORCH_EXPORT, tmp_path / "small.pt2")
    again = reloaded(tmp_path / "small.pt2")
    assert told.difference <= 1e-5
    assert difference(again, loaded.model) < 1e-5
    with torch.no_grad():
        assert torch.allclose(again(IMAGES)[2:3], again(IMAGES[2:3]), atol=1e-5)
    assert list(told.files) == [str(tmp_path / "small.pt2"), str(tmp_path / "small.pt2.json")]
    assert sorted(tmp_path.iterdir()) == sorted(map(Path, told.files))


def check_onnx(rewrite: str, folder: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    loaded = small(rewrite)
    export(loaded, Target.ONNX, folder / "small.onnx")
    session = onnxruntime.InferenceSession(folder / "small.onnx", providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["images"]
    assert session.get_inputs()[0].shape == ["batch", 3, 8, 8]
    assert json.loads(session.get_modelmeta().custom_metadata_map["surgeon"])["temperature"] == 1.7

    def run(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(["logits"], {"images": images.numpy()})[0])

    assert difference(run, loaded.model) < 1e-4
    assert torch.allclose(run(IMAGES)[2:3], run(IMAGES[2:3]), atol=1e-5)
    assert sorted(p.name for p in folder.iterdir()) == ["small.onnx", "small.onnx.json"]
    assert b".py" not in (folder / "small.onnx").read_bytes()  # nothing of the machine that wrote it


def test_onnx_of_example_weighting(tmp_path: Path) -> None:
    check_onnx("example-weighted:alpha=0.3", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("rewrite", EVERYTHING)
def test_onnx_of_everything(rewrite: str, tmp_path: Path) -> None:
    check_onnx(rewrite, tmp_path)


def check_onnx_on_digits(rewrite: str, folder: Path) -> None:
    """The bundled network with a rewrite: what is said of a real image does not depend on how many come with it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    loaded = digits_network(rewrite)
    told = export(loaded, Target.ONNX, folder / "digits.onnx", data="digits")
    assert (told.data, told.images, told.batch_sizes, told.notes) == ("digits", 64, (1, 7, 64), ())
    session = onnxruntime.InferenceSession(folder / "digits.onnx", providers=["CPUExecutionProvider"])
    images = load_digits("test")[0][:64]
    with torch.no_grad():
        expected = loaded.model(images)
    for size in (1, 7, 64):
        parts = [session.run(None, {"images": some.numpy()})[0] for some in images.split(size)]
        found = torch.cat([torch.from_numpy(part) for part in parts])
        assert float((found - expected).abs().max()) <= 1e-4


def digits_network(rewrite: str) -> LoadedModel:
    """Without the rewrite that it was trained with, which others would not go with."""
    trained = open_model("digits-resnet8")
    assert trained.origin.source is not None
    plain = build(trained.origin.source)
    plain.load_state_dict(trained.model.state_dict())
    model = surgeon.convert(plain, rewrite, inputs=(randn(4, 1, 8, 8),)).eval()
    if rewrite == "split":
        tell_branches_apart(model)
        mix_branches(model, 0.4)
    return replace(trained, model=model)


def test_onnx_of_example_weighting_on_digits(tmp_path: Path) -> None:
    check_onnx_on_digits("example-weighted:alpha=0.3", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("rewrite", EVERYTHING)
def test_onnx_of_everything_on_digits(rewrite: str, tmp_path: Path) -> None:
    check_onnx_on_digits(rewrite, tmp_path)


@pytest.mark.parametrize(
    ("rewrite", "folded"),
    [
        ("ghost", 7),
        ("split", 14),
        ("example-weighted:alpha=0.3", 0),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("batch-group:channel_groups=2", 7), ("mode", 0))),
    ],
)
def test_what_is_constant_is_folded(rewrite: str, folded: int, tmp_path: Path) -> None:
    loaded = small(rewrite)
    told = export(loaded, Target.TORCH_EXPORT, tmp_path / "small.pt2", folding=True)
    assert told.folded == folded
    program = torch.export.load(tmp_path / "small.pt2")
    kept = [node for node in program.graph.nodes if node.target is torch.ops.aten.batch_norm.default]
    assert not kept
    assert difference(program.module(), loaded.model) < 1e-5
    if folded == 7:
        assert not any("bn" in name for name in program.state_dict)  # what is not used is not written


def test_a_convolution_that_others_use_is_left_alone() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return y + self.bn(y)

    assert fold(trace(randomise(Twice()), IMAGES), IMAGES)[1] == 0


def test_the_description_says_what_images_are_expected(tmp_path: Path) -> None:
    export(small("example-weighted:alpha=0.3"), Target.TORCH_EXPORT, tmp_path / "small.pt2")
    beside = json.loads((tmp_path / "small.pt2.json").read_text())
    extra = {"surgeon.json": ""}
    torch.export.load(tmp_path / "small.pt2", extra_files=extra)
    assert json.loads(extra["surgeon.json"]) == beside
    assert b"surgical.py" not in (tmp_path / "small.pt2").read_bytes()  # nothing of the machine that wrote it
    assert beside["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert beside["input_shape"] == ["batch", 3, 8, 8]
    assert beside["class_names"] == ["a", "b", "c", "d"]
    assert beside["surgery"] == "example-weighted:alpha=0.3"


def test_half_precision_is_exported_as_float32(tmp_path: Path) -> None:
    loaded = small("ghost")
    loaded.model.bfloat16()
    export(loaded, Target.TORCH_EXPORT, tmp_path / "small.pt2")
    assert reloaded(tmp_path / "small.pt2")(IMAGES).dtype is torch.float32


def test_a_network_that_looks_at_its_batch_is_told(tmp_path: Path) -> None:
    loaded = small(norm=lambda channels: nn.BatchNorm2d(channels, track_running_stats=False))
    told = export(loaded, Target.TORCH_EXPORT, tmp_path / "small.pt2")
    assert "depends on the others in its batch" in told.notes[0]


def test_what_computes_something_else_is_not_left_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(operation.FORMATS[Target.TORCH_EXPORT], open=lambda _: lambda images: torch.zeros(len(images), 4))
    monkeypatch.setitem(operation.FORMATS, Target.TORCH_EXPORT, wrong)
    with pytest.raises(SurgeonError, match="outputs differ from") as told:
        export(small("ghost"), Target.TORCH_EXPORT, tmp_path / "new" / "small.pt2")
    assert told.value.exit_code == ExitCode.VERIFICATION
    assert list(tmp_path.iterdir()) == []


def test_a_failed_export_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(operation.FORMATS, Target.ONNX, replace(operation.FORMATS[Target.ONNX], write=full))
    (tmp_path / "small.onnx").write_text("old")
    with pytest.raises(SurgeonError, match="No space left"):
        export(small("ghost"), Target.ONNX, tmp_path / "small.onnx", overwrite=True)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_what_cannot_be_traced_is_told(tmp_path: Path) -> None:
    class Undecided(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3)) if float(x.sum()) > 0 else x.amax((2, 3))

    loaded = replace(small(), model=Undecided())
    with pytest.raises(SurgeonError, match=r"torch\.export cannot make one graph"):
        export(loaded, Target.TORCH_EXPORT, tmp_path / "small.pt2")
    assert list(tmp_path.iterdir()) == []


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SurgeonError) as told:
        operation.check_request(Target.ONNX, tmp_path / "a.onnx", folding=False, overwrite=False)
    assert told.value.hint == "Run: pip install onnx onnxscript onnxruntime"


def from_timm(*rewrites: str) -> LoadedModel:
    torch.manual_seed(0)
    model = randomise(timm.create_model("test_resnet", num_classes=7)).eval()
    origin = origin_of_timm_model(model)
    model = surgeon.convert(model, *rewrites) if rewrites else model
    return LoadedModel("tiny", model.eval(), origin)


def check_plain(loaded: LoadedModel, folder: Path) -> Export:
    told = export(loaded, Target.TIMM, folder)
    plain = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    assert difference(plain, loaded.model, randn(3, 3, 64, 64)) < 1e-5
    assert sorted(p.name for p in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == set(plain.state_dict())
    assert not any(type(module).__module__.startswith("surgeon") for module in plain.modules())
    return told


@pytest.mark.parametrize(
    "rewrites", [(), ("ghost", "example-weighted"), ("moex", "crossnorm"), ("batch-group:channel_groups=channels",)]
)
def test_plain_networks_need_timm_alone(rewrites: tuple[str, ...], tmp_path: Path) -> None:
    assert check_plain(from_timm(*rewrites), tmp_path / "plain").notes == ()


def test_one_branch_of_a_split_network_is_plain(tmp_path: Path) -> None:
    loaded = from_timm("split")
    tell_branches_apart(loaded.model)
    assert "auxiliary branch was left out" in check_plain(loaded, tmp_path / "main").notes[0]
    merge_branches(loaded.model, 0.5)
    assert check_plain(loaded, tmp_path / "merged").notes == ()


@pytest.mark.parametrize(
    ("rewrite", "reason"),
    [
        ("example-weighted:alpha=0.3", "alpha 0.3"),
        ("mode", "its own rule (mode)"),
        ("mode-group", "its own rule (mode-group)"),
        ("batch-group:channel_groups=4", "within 4 groups of channels"),
        ("selfnorm", "has selfnorm units"),
    ],
)
def test_others_are_refused_with_the_reason(rewrite: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SurgeonError) as told:
        export(from_timm(rewrite), Target.TIMM, tmp_path / "plain")
    assert reason in told.value.message
    assert told.value.hint == "Export it to onnx or torch-export, which take it as it is."
    assert list(tmp_path.iterdir()) == []


def test_what_the_whole_network_adds_is_refused_too(tmp_path: Path) -> None:
    loaded = from_timm("split")
    mix_branches(loaded.model, 0.25)
    with pytest.raises(SurgeonError, match=r"lambda 0\.25.*surgeon merge"):
        export(loaded, Target.TIMM, tmp_path / "plain")
    mix_branches(loaded.model, None)
    set_temperature(loaded.model, 2.0)
    with pytest.raises(SurgeonError, match="divides its logits by 2"):
        export(loaded, Target.TIMM, tmp_path / "plain")
    with pytest.raises(SurgeonError, match="not one of timm's architectures"):
        export(small("ghost"), Target.TIMM, tmp_path / "plain")


# --- from Python ----------------------------------------------------------------------------------------


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    model = surgeon.convert(small_resnet(), "example-weighted:alpha=0.3").bfloat16().train()
    told = surgeon.export(model, tmp_path / "mine.pt2", to="torch-export", inputs=(IMAGES,), fold=True)
    assert (told.model, told.batch_sizes, told.images, told.folded) == (type(model).__name__, (1, 2, 4), 4, 0)
    assert model.training
    assert next(model.parameters()).dtype is torch.bfloat16, "what is exported is a copy"
    assert difference(reloaded(tmp_path / "mine.pt2"), model.float().eval()) < 1e-5
    beside = json.loads((tmp_path / "mine.pt2.json").read_text())
    assert beside["surgery"] == "example-weighted:alpha=0.3"
    assert beside["source"] is None
    with pytest.raises(SurgeonError, match="already exists"):
        surgeon.export(model, tmp_path / "mine.pt2", to="torch-export", inputs=(IMAGES,))


def test_a_network_of_ones_own_in_onnx(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = surgeon.convert(small_resnet(), "ghost").eval()
    surgeon.export(model, tmp_path / "mine.onnx", to="onnx", inputs=(IMAGES,))
    session = onnxruntime.InferenceSession(tmp_path / "mine.onnx", providers=["CPUExecutionProvider"])
    with torch.no_grad():
        expected = model(IMAGES)
    assert torch.allclose(torch.from_numpy(session.run(None, {"images": IMAGES.numpy()})[0]), expected, atol=1e-4)


def test_a_network_of_timms_needs_no_images(tmp_path: Path) -> None:
    model = surgeon.convert(randomise(timm.create_model("test_resnet")), "ghost").eval()
    surgeon.export(model, tmp_path / "plain", to="timm")
    again = timm.create_model(f"local-dir:{tmp_path / 'plain'}", pretrained=True).eval()
    assert difference(again, model, randn(2, 3, 64, 64)) < 1e-4


@pytest.mark.parametrize(
    ("told", "path", "options"),
    [
        ("not one of timm's architectures", "mine", {"to": "timm"}),
        ("The input shape of a .* is not known", "mine.onnx", {"to": "onnx"}),
        ("takes one batch of images", "mine.onnx", {"to": "onnx", "inputs": (IMAGES[:1],)}),
        ("takes one batch of images", "mine.onnx", {"to": "onnx", "inputs": IMAGES}),
        ("to cannot be 'onyx'", "mine.onnx", {"to": "onyx"}),
        ("mine.pt cannot be an export to onnx", "mine.pt", {"to": "onnx"}),
    ],
)
def test_what_cannot_be_exported_leaves_nothing(
    told: str, path: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SurgeonError, match=told):
        surgeon.export(small_resnet(), path, **options)
    assert list(tmp_path.iterdir()) == []
