"""Where networks come from: names, tags, folders, random weights, and inputs that they accept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.layers.running import evaluate_once
from surgeon.models.catalog import CATALOG
from surgeon.models.names import all_model_names, architecture_names
from surgeon.models.origin import LoadedModel, ModelSource, Origin
from surgeon.models.sources import build, example_inputs, load_model


def random(name: str, **options: int) -> LoadedModel:
    return load_model(name, pretrained=False, **options)


# --- names


def test_names_are_those_of_the_libraries() -> None:
    """They are read from the sources, because importing the libraries takes seconds."""
    assert architecture_names("timm") == sorted(timm.list_models())
    assert architecture_names("torchvision") == sorted(torchvision.models.list_models())


def test_every_name_is_there_once() -> None:
    names = all_model_names()
    assert len(names) == len(set(names))
    assert set(CATALOG) < set(names)
    assert {"resnet50", "torchvision:resnet50"} < set(names)


def test_a_library_that_is_not_installed_has_no_names() -> None:
    assert architecture_names("no_such_library") == []


# --- timm


def test_a_plain_name_and_a_tag() -> None:
    plain, tagged = random("resnet18"), random("resnet18.fb_swsl_ig1b_ft_in1k")
    assert plain.origin.source == tagged.origin.source
    assert plain.origin.source == ModelSource(library="timm", architecture="resnet18", arguments={"num_classes": 1000})
    assert plain.origin.preprocessing is not None
    assert tagged.origin.preprocessing is not None
    assert plain.origin.preprocessing.crop_pct == 0.95
    assert tagged.origin.preprocessing.crop_pct == 0.875
    assert not plain.model.training


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet18.a1_in1kk", "Did you mean a1_in1k"),
        ("resnet18.qqqqqqqq", "Known tags: "),
    ],
)
@pytest.mark.parametrize("pretrained", [True, False])
def test_an_unknown_tag(name: str, hint: str, pretrained: bool) -> None:
    with pytest.raises(SurgeonError, match=f"'resnet18' has no pretrained weights tagged {name[9:]!r}") as caught:
        load_model(name, pretrained=pretrained)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("name", ["test_resnet", "torchvision:squeezenet1_1", "cifar-resnet20"])
def test_a_network_has_the_classes_of_its_weights(name: str, tmp_path: Path) -> None:
    trained = random(name, num_classes=4)
    torch.save(trained.model.state_dict(), tmp_path / "mine.pth")
    loaded = load_model(name, weights=tmp_path / "mine.pth")
    assert loaded.origin.source == trained.origin.source
    assert loaded.origin.weights.origin == "mine.pth"
    assert loaded.origin.notes == ("built for the 4 classes of the file",)
    mine = loaded.model.state_dict()
    assert all(torch.equal(mine[key], value) for key, value in trained.model.state_dict().items())
    with pytest.raises(SurgeonError, match="pass --num-classes 4"):
        load_model(name, weights=tmp_path / "mine.pth", num_classes=5)


def test_classes_are_part_of_the_source() -> None:
    loaded = random("test_resnet", num_classes=7)
    assert loaded.origin.source is not None
    assert loaded.origin.source.arguments == {"num_classes": 7}
    assert build(loaded.origin.source).num_classes == 7


@pytest.mark.parametrize("place", ["local-dir:{}", "{}"])
def test_a_folder_of_timm(place: str, tmp_path: Path) -> None:
    model = timm.create_model("test_resnet", num_classes=5).eval()
    timm.models.save_for_hf(model, str(tmp_path), safe_serialization=True)
    loaded = load_model(place.format(tmp_path))
    images = example_inputs(loaded.origin)
    assert images is not None
    assert torch.equal(loaded.model(*images), model(*images))
    source = loaded.origin.source
    assert source is not None
    assert (source.library, source.architecture, source.arguments["num_classes"]) == ("timm", "test_resnet", 5)
    build(source).load_state_dict(model.state_dict())
    assert loaded.origin.weights.origin == f"local-dir:{tmp_path}"


def test_a_folder_of_timm_keeps_its_arguments(tmp_path: Path) -> None:
    model = timm.create_model("test_resnet", num_classes=5, in_chans=1, global_pool="max").eval()
    arguments = {"in_chans": 1, "global_pool": "max"}
    timm.models.save_for_hf(model, str(tmp_path), model_args=arguments, safe_serialization=True)
    loaded = load_model(f"local-dir:{tmp_path}")
    assert loaded.origin.source is not None
    rebuilt = build(loaded.origin.source)
    rebuilt.load_state_dict(loaded.model.state_dict())
    images = torch.randn(2, 1, 96, 96)
    assert torch.equal(rebuilt(images), model(images))
    inputs = example_inputs(loaded.origin)
    assert inputs is not None
    assert inputs[0].shape == (2, 1, 160, 160)


def test_a_folder_with_the_name_of_an_architecture_is_not_mistaken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name means the architecture; the folder can be had as ./NAME."""
    monkeypatch.chdir(tmp_path)
    timm.models.save_for_hf(timm.create_model("test_efficientnet", num_classes=3), "test_resnet")
    assert random("test_resnet").origin.source.architecture == "test_resnet"
    assert random("./test_resnet").origin.source.architecture == "test_efficientnet"


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(json.dumps({}))
    with pytest.raises(SurgeonError, match="neither a surgeon checkpoint"):
        load_model(str(tmp_path))


# --- our own and torchvision's


def test_our_own_networks_have_a_source_and_a_preprocessing() -> None:
    for name, entry in CATALOG.items():
        if "28-10" in name:
            continue  # 36 million parameters, and built like the others
        origin = random(name).origin
        assert origin.source is not None
        assert origin.source.library == "surgeon"
        assert origin.preprocessing is not None
        assert origin.preprocessing.input_size == entry.input_size


def test_our_own_networks_have_no_pretrained_weights() -> None:
    with pytest.raises(SurgeonError, match="--no-pretrained"):
        load_model("cifar-resnet20")


def test_torchvision_weights_and_preprocessing_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network with several sets of weights gets the default one, and is prepared for as that one was trained."""
    best = torchvision.models.MobileNet_V3_Large_Weights.DEFAULT
    asked: list[str] = []

    def download(url: str, **_: object) -> dict[str, Tensor]:
        asked.append(url)
        return torchvision.models.mobilenet_v3_large().state_dict()

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", download)
    origin = load_model("torchvision:mobilenet_v3_large").origin
    assert asked == [best.url]
    assert origin.weights.origin == "torchvision:MobileNet_V3_Large_Weights.IMAGENET1K_V2"
    assert origin.preprocessing is not None
    assert origin.preprocessing.input_size == (3, 224, 224)
    assert origin.preprocessing.mean == (0.485, 0.456, 0.406)
    assert origin.preprocessing.crop_pct == pytest.approx(224 / best.transforms().resize_size[0], abs=1e-4)


SHAPES = {
    "torchvision:mobilenet_v3_small": [(1, 3, 224, 224)],
    "torchvision:lraspp_mobilenet_v3_large": [(1, 3, 224, 224)],
    "torchvision:mc3_18": [(1, 3, 16, 112, 112)],
    "torchvision:raft_small": [(1, 3, 128, 128), (1, 3, 128, 128)],
    "torchvision:ssdlite320_mobilenet_v3_large": [[(3, 64, 64)]],
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_task_of_torchvision_takes_its_example_inputs(name: str) -> None:
    loaded = random(name)
    inputs = example_inputs(loaded.origin, examples=1)
    assert inputs is not None
    assert [tuple(t.shape) if isinstance(t, Tensor) else [tuple(i.shape) for i in t] for t in inputs] == SHAPES[name]
    assert evaluate_once(loaded.model, inputs)


def test_example_inputs_are_the_same_in_every_run() -> None:
    origin = random("cifar-resnet20").origin
    first, second = example_inputs(origin), example_inputs(origin)
    assert first is not None
    assert second is not None
    assert torch.equal(first[0], second[0])
    assert first[0].shape == (2, 3, 32, 32)


def test_inputs_of_an_unknown_network_are_unknown() -> None:
    assert example_inputs(Origin()) is None


# --- random weights


@pytest.mark.parametrize("name", ["cifar-resnet20", "test_resnet", "torchvision:mobilenet_v3_small"])
def test_random_weights_are_the_same_in_every_run(name: str) -> None:
    torch.manual_seed(1)
    first = random(name).model.state_dict()
    torch.manual_seed(2)
    second = random(name).model.state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(tensor.std() > 0 for tensor in first.values() if tensor.is_floating_point() and tensor.numel() > 1)


@pytest.mark.parametrize("name", ["cifar-resnet20", "test_resnet", "torchvision:mobilenet_v3_small"])
def test_the_callers_random_numbers_are_untouched(name: str) -> None:
    before = torch.get_rng_state()
    loaded = random(name)
    assert loaded.origin.source is not None
    build(loaded.origin.source)
    example_inputs(loaded.origin)
    assert torch.equal(torch.get_rng_state(), before)
