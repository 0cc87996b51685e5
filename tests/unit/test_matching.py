"""Weights of other code bases: renamed by rules or matched by shape, and never put where they do not belong."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.models.cifar import resnet8
from surgeon.models.consistency import Agreement, agreement, like_images
from surgeon.models.guessing import architectures_of, weights_as_model
from surgeon.models.history import Renamed
from surgeon.models.matching import natural
from surgeon.models.renaming import Naming
from surgeon.models.sources import load_model
from surgeon.models.structure import layers_of
from surgeon.models.weights import read_weights

State = OrderedDict[str, Tensor]
STATISTICS = ("weight", "bias", "running_mean", "running_var")


def trained(network: nn.Module) -> nn.Module:
    """A network as training leaves it: no two channels alike, and the statistics of what it has seen."""
    torch.manual_seed(0)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.5)
            layer.momentum = None
    network.train()(torch.randn(32, 3, 32, 32))
    return network.eval()


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return trained(resnet8())


def renamed(state: dict[str, Tensor]) -> State:
    """As another code base may call them."""
    names = {"conv": "conv_", "bn": "bn_", "layer": "stage_", "linear": "classifier"}
    found = OrderedDict()
    for name, tensor in state.items():
        new = name
        for ours, theirs in names.items():
            new = new.replace(ours, theirs)
        found[new] = tensor.clone()
    return found


def stem_last(state: State) -> State:
    """Names among which those of the stem sort last."""
    return OrderedDict(
        (name if name.startswith(("stage", "class")) else f"stem.{name}", t) for name, t in state.items()
    )


def convolutions_first(state: State) -> State:
    """A code base that defines the convolutions of a block before its normalisations."""

    def place(name: str) -> tuple[str, bool]:
        block = name.split(".")[0] if name.startswith(("stage", "class")) else "a"
        return {"classifier": "z"}.get(block, block), ".bn_" in name

    return OrderedDict(sorted(state.items(), key=lambda pair: place(pair[0])))


def keras(state: State) -> State:
    words = {"running_mean": "moving_mean", "running_var": "moving_variance"}
    found = OrderedDict()
    for name, tensor in state.items():
        layer, _, part = name.rpartition(".")
        if "bn_" in layer:
            part = {"weight": "gamma", "bias": "beta", **words}.get(part, part)
        if part != "num_batches_tracked":
            found[f"{layer}/{part}"] = tensor
    return found


def write(state: State, path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file(dict(state), path)
    else:
        torch.save(state, path)
    return path


def matched(path: Path) -> nn.Module:
    return load_model("cifar-resnet8", weights=path, naming=Naming.of((), "shapes")).model


def notes_of(path: Path) -> tuple[str, ...]:
    return load_model("cifar-resnet8", weights=path, naming=Naming.of((), "shapes")).origin.notes


# --- matching


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("change", [dict, stem_last, convolutions_first, keras])
def test_the_same_network_under_other_names(
    change: Callable[[State], State], suffix: str, network: nn.Module, tmp_path: Path
) -> None:
    path = write(change(renamed(network.state_dict())), tmp_path / f"theirs{suffix}")
    found = matched(path)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(found(images), network(images))
    (step,) = found.origin.history  # type: ignore[union-attr, attr-defined]
    assert isinstance(step, Renamed)
    assert set(step.layers.values()) == {layer.name for layer in layers_of(network.state_dict())}
    assert (step.checked, step.norms) == (6, 7)


def test_exchanged_layers_are_noticed_whichever_they_are(network: nn.Module, tmp_path: Path) -> None:
    state = network.state_dict()
    layers = layers_of(state)
    pairs = [pair for pair in combinations(layers, 2) if pair[0].shapes == pair[1].shapes]
    assert len(pairs) == 6
    for one, other in pairs:
        wrong = OrderedDict(state)
        for part in one.tensors:
            wrong[one.tensors[part]], wrong[other.tensors[part]] = state[other.tensors[part]], state[one.tensors[part]]
        path = write(renamed(wrong), tmp_path / "exchanged.pth")
        with pytest.raises(SurgeonError, match="stored BatchNorm means disagree with what reaches the layer"):
            matched(path)


def test_what_agrees_less_than_in_trained_networks_is_doubted(
    network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any("doubtful" in note for note in notes_of(write(renamed(network.state_dict()), tmp_path / "a.pth")))
    weak = Agreement({"layer1.0.bn1": 0.99, "layer2.0.bn2": 0.9}, finite=True)
    monkeypatch.setattr("surgeon.models.matching.agreement", lambda *_: weak)
    (doubt,) = (note for note in notes_of(tmp_path / "a.pth") if "doubtful" in note)
    assert doubt.startswith("doubtful: 'layer2.0.bn2' agrees less (correlation 0.90) than in trained networks")


def test_another_number_of_classes(tmp_path: Path) -> None:
    path = write(renamed(trained(resnet8(num_classes=7)).state_dict()), tmp_path / "seven.pth")
    assert matched(path)(torch.randn(2, 3, 32, 32)).shape == (2, 7)


def test_another_depth_says_what_differs_and_what_it_fits(tmp_path: Path) -> None:
    path = write(renamed(load_model("cifar-resnet14", pretrained=False).model.state_dict()), tmp_path / "deeper.pth")
    with pytest.raises(SurgeonError) as caught:
        matched(path)
    told = str(caught.value)
    assert "13 convolutions instead of 7; 13 BatchNorm layers instead of 7" in told
    assert "2 convolutions of 16x16x3x3 (stage_1.1.conv_2)" in told
    assert told.endswith("It fits cifar-resnet14 by shapes alone (--match shapes).")


def test_without_match_the_same_structure_is_told(network: nn.Module, tmp_path: Path) -> None:
    path = write(renamed(network.state_dict()), tmp_path / "theirs.pth")
    with pytest.raises(SurgeonError, match="--match shapes pairs them"):
        load_model("cifar-resnet8", weights=path)


def test_an_untrained_network_confirms_nothing_and_says_so(tmp_path: Path) -> None:
    path = write(renamed(resnet8().state_dict()), tmp_path / "untrained.pth")
    notes = notes_of(path)
    assert any(note.startswith("no stored statistics could confirm it") for note in notes)


def test_equal_series_in_an_order_that_tells_nothing_are_refused(tmp_path: Path) -> None:
    """Nothing tells `attn.qkv` and the others of a transformer apart if names and order are of no use."""
    from surgeon.models.matching import matched as match

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.head(self.query(x) * self.key(x).sigmoid())
            return result

    own = Two()
    theirs = OrderedDict(
        (name.replace("query", "b").replace("key", "a").replace("head", "Z"), value)
        for name, value in own.state_dict().items()
    )
    path = write(theirs, tmp_path / "two.safetensors")
    with pytest.raises(SurgeonError, match="neither the order in the file nor the numbers"):
        match(own, read_weights(path), lambda number: (torch.randn(number, 4),))


def test_what_is_compared_is_the_mean_of_what_reaches_each_layer() -> None:
    """Against the same in numpy, in float64."""
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)
    )
    for norm in (model[1], model[4]):
        nn.init.normal_(norm.bias)
        nn.init.normal_(norm.running_mean)
    images = torch.randn(8, 3, 6, 6)
    with torch.no_grad():
        first = np.einsum("oi,nihw->nohw", model[0].weight[:, :, 0, 0].double().numpy(), images.double().numpy())
        mean, variance = first.mean((0, 2, 3), keepdims=True), first.var((0, 2, 3), keepdims=True)
        shaped = model[1].bias.double().numpy().reshape(1, -1, 1, 1)
        active = np.maximum((first - mean) / np.sqrt(variance + 1e-5) + shaped, 0)
        second = np.einsum("oi,nihw->nohw", model[3].weight[:, :, 0, 0].double().numpy(), active)
        seen = second.mean((0, 2, 3)) + model[3].bias.double().numpy()
    expected = np.corrcoef(seen, model[4].running_mean.double().numpy())[0, 1]
    found = agreement(model, (images,))
    assert found.layers == {"4": pytest.approx(expected, abs=1e-5)}
    assert found.finite
    assert torch.equal(model[4].running_mean, model[4].running_mean.clone())
    assert not model.training or model[1].num_batches_tracked == 0


def test_images_are_smooth_and_standardised() -> None:
    (images,) = like_images((torch.empty(8, 3, 33, 20),))
    assert isinstance(images, Tensor)
    assert images.mean((0, 2, 3)).abs().max() < 1e-5
    assert images.std().item() == pytest.approx(1, abs=1e-4)
    neighbours = functional.cosine_similarity(images[..., 1:].flatten(), images[..., :-1].flatten(), dim=0)
    assert neighbours > 0.7


def test_numbers_in_names_are_numbers() -> None:
    assert sorted(["layer10", "layer2", "conv", "2"], key=natural) == ["conv", "layer2", "layer10", "2"]


# --- renaming


def test_rules_are_regular_expressions_applied_in_order(network: nn.Module, tmp_path: Path) -> None:
    path = write(renamed(network.state_dict()), tmp_path / "theirs.pth")
    rules = (r"stage_(\d)=layer\1", r"(?P<kind>conv|bn)_(?=\d)=\g<kind>", "^classifier=linear")
    found = surgeon.load("cifar-resnet8", weights=path, rename=rules)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(found(images), network(images))
    assert found.origin.history == (Renamed(rules=rules),)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("stage", "Write PATTERN=REPLACEMENT"),
        ("=x", "Write PATTERN=REPLACEMENT"),
        (r"stage_(\d=layer", "not a regular expression"),
        (r"stage_(\d)=layer\2", "not a regular expression"),
        (r"stage_(\d)=layer\g<no>", "not a regular expression"),
        ("nothing=x", "changes no name"),
        (r"stage_\d=layer1", "makes one name, 'layer1.0.conv_1.weight', of"),
        (r"^.*=", "--rename makes the name 'conv_1.weight' empty"),
    ],
)
def test_rules_that_cannot_be(rule: str, told: str, network: nn.Module, tmp_path: Path) -> None:
    path = write(renamed(network.state_dict()), tmp_path / "theirs.pth")
    with pytest.raises(SurgeonError) as caught:
        surgeon.load("cifar-resnet8", weights=path, rename=[rule])
    assert told in str(caught.value)


def test_names_become_others_only_with_a_file() -> None:
    for naming in ({"rename": ["a=b"]}, {"match": "shapes"}):
        with pytest.raises(SurgeonError, match="need --weights FILE"):
            surgeon.load("cifar-resnet8", **naming)  # type: ignore[arg-type]
    with pytest.raises(SurgeonError, match="--match cannot be 'names'"):
        surgeon.load("cifar-resnet8", match="names")


# --- guessing


def test_a_file_tells_what_it_fits(network: nn.Module, tmp_path: Path) -> None:
    ours = write(OrderedDict(network.state_dict()), tmp_path / "ours.pth")
    theirs = write(renamed(network.state_dict()), tmp_path / "theirs.pth")
    assert architectures_of(read_weights(ours)) == (("cifar-resnet8",), True)
    assert architectures_of(read_weights(theirs)) == (("cifar-resnet8",), False)
    told = partial(str, weights_as_model(str(ours)))()
    assert told.endswith(f"It fits cifar-resnet8: surgeon inspect cifar-resnet8 --weights {ours}")


def test_the_name_of_a_file_helps_where_those_of_its_tensors_do_not(tmp_path: Path) -> None:
    state = timm.create_model("test_resnet", pretrained=False).state_dict()
    path = write(OrderedDict((f"_{name}", tensor) for name, tensor in state.items()), tmp_path / "Test-ResNet-77cc.pth")
    assert "It fits test_resnet by shapes alone (--match shapes)" in str(weights_as_model(str(path)))
