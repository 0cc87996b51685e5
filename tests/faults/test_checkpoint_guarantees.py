"""What a checkpoint promises: the same network, to the bit, for surgeon, for timm and for PyTorch."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.inserts import inserts
from surgeon.models.sources import load_model
from surgeon.norms import norms
from surgeon.surgery.plan import ResolvedPlan
from surgeon.surgery.temperature import set_temperature
from tests.cli.running import FILES, contents, done, operations
from tests.helpers import randn, randomise, small_images, small_resnet

REWRITES = {
    "ghost": ["ghost:size=4"],
    "example-weighted": ["example-weighted:alpha=0.2"],
    "both": ["ghost:size=4", "example-weighted:alpha=0.2"],
    "batch-group": ["batch-group:channel_groups=8,examples_per_group=4", "example-weighted:alpha=0.2"],
    "per layer": ["example-weighted:alpha=0.02", "example-weighted@last:alpha=0.3"],
}
TIMM = "test_efficientnet"  # small, with fused activations
IMAGES = randn(2, 3, 96, 96)


def timm_model(name: str = TIMM, **arguments: Any) -> nn.Module:
    torch.manual_seed(0)
    return randomise(timm.create_model(name, **arguments)).eval()


def outputs(model: nn.Module, images: Tensor = IMAGES) -> Tensor:
    with torch.inference_mode():
        return model(images)


def record(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "surgery.json").read_text("utf-8"))


# --- the same network again


@pytest.mark.parametrize("rewrites", REWRITES.values(), ids=REWRITES)
def test_a_timm_network_comes_back_to_the_bit(rewrites: list[str], tmp_path: Path) -> None:
    """Its users built it themselves; it is built again without their help."""
    model = surgeon.convert(timm_model(num_classes=7), *rewrites)
    surgeon.save(model, tmp_path / "out")
    loaded = surgeon.load(tmp_path / "out")
    assert not loaded.training
    assert loaded.surgery == model.surgery
    assert torch.equal(outputs(loaded), outputs(model))
    assert outputs(loaded).shape == (2, 7)
    done("verify", tmp_path / "out")


def test_a_torchvision_network_comes_back_to_the_bit(tmp_path: Path) -> None:
    loaded = load_model("torchvision:resnet18", pretrained=False, num_classes=5)
    model = surgeon.convert(randomise(loaded.model), "example-weighted:alpha=0.2")
    surgeon.save(model, tmp_path / "out")
    assert torch.equal(outputs(surgeon.load(tmp_path / "out")), outputs(model))
    assert record(tmp_path / "out")["source"] == {
        "library": "torchvision",
        "architecture": "resnet18",
        "arguments": {"num_classes": 5},
    }


@pytest.mark.parametrize("rewrites", REWRITES.values(), ids=REWRITES)
def test_your_own_network_comes_back_to_the_bit(rewrites: list[str], tmp_path: Path) -> None:
    rewrites = [rewrite.replace("channel_groups=8", "channel_groups=3") for rewrite in rewrites]
    model = surgeon.convert(small_resnet(), *rewrites)
    surgeon.save(model, tmp_path / "out")
    fresh = type(model)()
    loaded = surgeon.load(tmp_path / "out", model=fresh)
    assert loaded is fresh
    assert loaded.surgery == model.surgery
    assert torch.equal(outputs(loaded, small_images()), outputs(model, small_images()))


def test_your_own_network_has_to_be_passed(tmp_path: Path) -> None:
    surgeon.save(surgeon.convert(small_resnet(), "ghost"), tmp_path / "out")
    with pytest.raises(SurgeonError, match=r"surgeon\.load\(path, model=MyNetwork\(\)\)"):
        surgeon.load(tmp_path / "out")


def test_another_network_is_refused(tmp_path: Path) -> None:
    surgeon.save(surgeon.convert(small_resnet(), "ghost"), tmp_path / "out")
    with pytest.raises(SurgeonError, match=r"rewrites 'bn1', which this network does not have"):
        surgeon.load(tmp_path / "out", model=nn.Sequential(nn.BatchNorm2d(8)))
    wider = type(small_resnet())(channels=8)
    with pytest.raises(SurgeonError, match="do not fit the network"):
        surgeon.load(tmp_path / "out", model=wider)


@pytest.mark.parametrize(
    "arguments", [{"global_pool": "max"}, {"act_layer": nn.SiLU}, {"output_stride": 8}], ids=" ".join
)
def test_a_timm_network_that_names_do_not_tell_is_not_mistaken(arguments: dict[str, Any], tmp_path: Path) -> None:
    """The names and shapes of its weights are those of the default network, but it computes something else."""
    model = surgeon.convert(timm_model("test_resnet", **arguments), "ghost")
    surgeon.save(model, tmp_path / "out")
    try:
        loaded = surgeon.load(tmp_path / "out")
    except SurgeonError:
        loaded = surgeon.load(tmp_path / "out", model=timm.create_model("test_resnet", **arguments))
    assert torch.equal(outputs(loaded), outputs(model))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_precision_is_kept(dtype: torch.dtype, tmp_path: Path) -> None:
    model = surgeon.convert(timm_model(), "example-weighted:alpha=0.2").to(dtype)
    surgeon.save(model, tmp_path / "out")
    loaded = surgeon.load(tmp_path / "out")
    assert {p.dtype for p in loaded.parameters()} == {dtype}
    assert torch.equal(outputs(loaded, IMAGES.to(dtype)), outputs(model, IMAGES.to(dtype)))


class Tied(nn.Module):
    """Two heads that share their weight, and one norm that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.again = self.norm
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(3, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(torch.relu(self.norm(x))).mean((2, 3))
        return self.first(x) + self.second(x)


def test_shared_parameters_stay_shared(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = surgeon.convert(randomise(Tied()).eval(), "example-weighted:alpha=0.2")
    surgeon.save(model, tmp_path / "out")
    loaded = surgeon.load(tmp_path / "out", model=Tied())
    assert loaded.second.weight is loaded.first.weight
    assert loaded.again is loaded.norm
    assert torch.equal(outputs(loaded, small_images()), outputs(model, small_images()))


def test_views_of_one_tensor_are_saved_apart(tmp_path: Path) -> None:
    model = nn.Sequential(nn.BatchNorm2d(4))
    both = torch.arange(8.0)
    model[0].running_mean, model[0].running_var = both[:4], both[4:]
    surgeon.save(surgeon.convert(model, "ghost"), tmp_path / "out")
    loaded = surgeon.load(tmp_path / "out", model=nn.Sequential(nn.BatchNorm2d(4)))
    assert loaded[0].running_mean.tolist() == [0, 1, 2, 3]
    assert loaded[0].running_var.tolist() == [4, 5, 6, 7]


def test_a_channels_last_network_is_saved(tmp_path: Path) -> None:
    model = surgeon.convert(timm_model(), "example-weighted:alpha=0.2").to(memory_format=torch.channels_last)
    surgeon.save(model, tmp_path / "out")
    loaded = surgeon.load(tmp_path / "out").to(memory_format=torch.channels_last)
    images = IMAGES.to(memory_format=torch.channels_last)
    assert torch.equal(outputs(loaded, images), outputs(model, images))


def test_a_network_that_is_a_single_layer(tmp_path: Path) -> None:
    model = surgeon.convert(randomise(nn.BatchNorm2d(3)).eval(), "example-weighted:alpha=0.2")
    surgeon.save(model, tmp_path / "out")
    loaded = surgeon.load(tmp_path / "out", model=nn.BatchNorm2d(3))
    assert torch.equal(outputs(loaded), outputs(model))


def test_an_unconverted_network_can_be_saved_too(tmp_path: Path) -> None:
    model = timm_model()
    surgeon.save(model, tmp_path / "out")
    loaded = surgeon.load(tmp_path / "out")
    assert loaded.surgery == ResolvedPlan(operations=())
    assert torch.equal(outputs(loaded), outputs(model))


def test_statistics_that_were_collected_are_kept(tmp_path: Path) -> None:
    def untracked() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()

    model = surgeon.convert(surgeon.collect_statistics(untracked(), [small_images(8)]), "example-weighted:alpha=0.2")
    surgeon.save(model, tmp_path / "out")
    loaded = surgeon.load(tmp_path / "out", model=untracked())
    assert torch.equal(outputs(loaded, small_images()), outputs(model, small_images()))


def test_a_checkpoint_saved_again_is_the_same(tmp_path: Path) -> None:
    surgeon.save(surgeon.convert(timm_model(), "ghost"), tmp_path / "a" / "same-name")
    surgeon.save(surgeon.load(tmp_path / "a" / "same-name"), tmp_path / "b" / "same-name")
    first, second = (contents(tmp_path / folder / "same-name") for folder in ("a", "b"))
    # safetensors orders its metadata by chance, and with it goes the hash
    for files in (first, second):
        del files["model.safetensors"], files["surgery.json"]
    assert first == second
    before, after = (record(tmp_path / folder / "same-name") for folder in ("a", "b"))
    del before["files"], after["files"]
    assert before == after


def test_training_goes_on_after_loading(tmp_path: Path) -> None:
    surgeon.save(surgeon.convert(timm_model(), "ghost:size=2"), tmp_path / "out")
    loaded = surgeon.load(tmp_path / "out").train()
    loaded(randn(4, 3, 64, 64)).square().mean().backward()
    assert all(p.grad is not None for p in loaded.parameters())
    assert loaded.get_submodule("bn1").training_rule.size == 2


# --- for plain timm and PyTorch


@pytest.mark.parametrize("rewrites", ["ghost", "example-weighted", "both", "per layer"])
def test_plain_timm_takes_the_weights_and_predicts_as_before(rewrites: str, tmp_path: Path) -> None:
    original = timm_model(num_classes=7)
    surgeon.save(surgeon.convert(original, *REWRITES[rewrites]), tmp_path / "out")
    plain = timm.create_model(TIMM, num_classes=7).eval()
    plain.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"), strict=True)
    assert torch.equal(outputs(plain), outputs(original))
    from_folder = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    assert torch.equal(outputs(from_folder), outputs(original))
    assert outputs(from_folder).shape == (2, 7)


def test_plain_timm_learns_the_preprocessing_from_the_folder(tmp_path: Path) -> None:
    original = timm.create_model("test_resnet.r160_in1k")
    surgeon.save(surgeon.convert(original, "ghost"), tmp_path / "out")
    from_folder = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True)
    expected, found = (timm.data.resolve_data_config({}, model=model) for model in (original, from_folder))
    assert expected["crop_pct"] != 0.875  # timm's default
    assert json.dumps(found) == json.dumps(expected)  # to which lists and tuples are the same


def test_the_command_line_keeps_the_preprocessing_of_the_tag(tmp_path: Path) -> None:
    name, out = "resnet18.fb_swsl_ig1b_ft_in1k", tmp_path / "out"
    config = timm.get_pretrained_cfg(name)
    assert config.crop_pct != timm.get_pretrained_cfg("resnet18").crop_pct
    done("convert", name, "--no-pretrained", "--bn", "ghost", "-o", out)
    kept = record(out)["preprocessing"]
    assert (kept["interpolation"], kept["crop_pct"]) == (config.interpolation, config.crop_pct)
    assert json.loads((out / "config.json").read_text())["pretrained_cfg"]["tag"] == config.tag


def test_weights_keep_their_names_and_values(tmp_path: Path) -> None:
    original = timm_model()
    surgeon.save(surgeon.convert(original, "example-weighted:alpha=0.2"), tmp_path / "out")
    saved = load_file(tmp_path / "out" / "model.safetensors")
    assert saved.keys() == original.state_dict().keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in original.state_dict().items())


# --- what is on record


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as the command line writes it from a weights file."""
    folder = tmp_path_factory.mktemp("written")
    torch.save(timm_model("test_resnet").state_dict(), folder / "mine.pth")
    specs = ("--bn", "ghost:size=4", "--bn", "example-weighted@layer4.*:alpha=0.2")
    done("convert", "test_resnet", "--weights", folder / "mine.pth", *specs, "-o", folder / "out")
    return folder / "out"


def test_the_record(written: Path) -> None:
    found = record(written)
    assert found["schema_version"] == 2
    (step,) = found["history"]
    assert (step["kind"], step["rewrites"], step["units"]) == (
        "converted",
        "ghost:size=4 + example-weighted:alpha=0.2",
        0,
    )
    assert 0 <= step["identity_difference"] < 1e-5
    assert step["output_shift"] > 1e-5
    assert found["surgeon_version"] == surgeon.__version__
    assert found["source"] == {"library": "timm", "architecture": "test_resnet", "arguments": {"num_classes": 1000}}
    base = written.parent / "mine.pth"
    assert found["base_weights"] == {"origin": "mine.pth", "sha256": hashlib.sha256(base.read_bytes()).hexdigest()}
    assert found["preprocessing"] == {
        "input_size": [3, 160, 160],
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "interpolation": "bilinear",
        "crop_pct": 0.95,
    }
    hashed = {name: hashlib.sha256((written / name).read_bytes()).hexdigest() for name in found["files"]}
    assert found["files"] == hashed
    assert set(hashed) == {"model.safetensors", "config.json"}


def test_the_plan_on_record_leaves_nothing_to_be_resolved(written: Path) -> None:
    found = operations(written)
    names = [name for name, module in timm_model("test_resnet").named_modules() if isinstance(module, nn.BatchNorm2d)]
    assert list(found) == names
    ghost = {"ghost": {"size": 4, "running": "batch"}}
    for layer, rewrites in found.items():
        assert rewrites == ghost | ({"example-weighted": {"alpha": 0.2}} if layer.startswith("layer4.") else {})


def test_the_record_is_also_in_the_weights(written: Path) -> None:
    with safe_open(written / "model.safetensors", "pt") as file:
        metadata = file.metadata()
    beside = record(written)
    del beside["files"]
    assert json.loads(metadata["surgeon"]) == beside
    assert metadata["format"] == "pt"


def test_the_config_is_timms(written: Path) -> None:
    config = json.loads((written / "config.json").read_text())
    assert (config["architecture"], config["num_classes"], config["num_features"]) == ("test_resnet", 1000, 96)
    assert config["pretrained_cfg"]["input_size"] == [3, 160, 160]


def test_the_card(written: Path) -> None:
    assert sorted(contents(written)) == FILES
    _, front, text = (written / "README.md").read_text("utf-8").split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "norm-surgeon"
    assert yaml.safe_load(front)["pipeline_tag"] == "image-classification"
    assert text.startswith("# test_resnet\n")
    for fact in (
        "timm: test_resnet",
        "ghost:size=4",
        "mine.pth",
        record(written)["base_weights"]["sha256"],
        "3x160x160",
    ):
        assert fact in text
    assert "surgeon.load(" in text
    assert "{" not in text  # every blank is filled in


@pytest.mark.parametrize(
    "rewrite",
    [
        *(name for name in (*norms, *inserts) if name != "batch-group"),
        "batch-group:channel_groups=4",
        "batch-group:channel_groups=channels",
        "example-weighted:alpha=0.1",
    ],
)
def test_the_card_says_timm_only_where_timm_makes_the_same_network_of_it(rewrite: str, tmp_path: Path) -> None:
    model = surgeon.convert(randomise(timm.create_model("test_resnet")), rewrite).eval()
    surgeon.save(model, tmp_path / "out")
    _, front, _ = (tmp_path / "out" / "README.md").read_text("utf-8").split("---\n", 2)
    images = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(0))
    try:
        theirs = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
        with torch.no_grad():
            same = torch.allclose(theirs(images), model(images), rtol=1e-4, atol=1e-4)
    except RuntimeError:  # of layers that timm's network has not
        same = False
    assert yaml.safe_load(front)["library_name"] == ("timm" if same else "norm-surgeon")


def test_a_temperature_is_not_for_timm(tmp_path: Path) -> None:
    model = timm.create_model("test_resnet")
    set_temperature(model, 2.0)
    surgeon.save(model, tmp_path / "out")
    assert "library_name: norm-surgeon" in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_the_card_promises_plain_weights_only_where_that_is_true(tmp_path: Path) -> None:
    """A GroupNorm network gets running statistics that the original has no place for."""
    original = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4))
    surgeon.save(surgeon.convert(original, "example-weighted:alpha=1"), tmp_path / "out")
    promised = "also load into the unconverted network" in (tmp_path / "out" / "README.md").read_text()
    try:
        original.load_state_dict(load_file(tmp_path / "out" / "model.safetensors"), strict=True)
    except RuntimeError:
        assert not promised
