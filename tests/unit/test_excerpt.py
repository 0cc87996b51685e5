"""Weights files that hold more than the network: what is beside it is left out and named, and nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from surgeon.checkpoint import open_model
from surgeon.core.errors import SurgeonError
from surgeon.models.origin import LoadedModel
from surgeon.models.renaming import AS_NAMED, Naming
from surgeon.models.sources import load_model

State = dict[str, Tensor]


def state_of(name: str, seed: int = 0) -> State:
    torch.manual_seed(seed)
    own = load_model(name, pretrained=False).model.state_dict()
    return {key: torch.rand(value.shape) + seed for key, value in own.items()}


def under(prefix: str, state: State) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}


def loaded(state: State, path: Path, *, naming: Naming = AS_NAMED) -> LoadedModel:
    torch.save({"state_dict": state}, path)
    return load_model("cifar-resnet8", weights=path, naming=naming)


def assert_has(found: LoadedModel, state: State) -> None:
    assert torch.equal(found.model.state_dict()["layer2.0.conv1.weight"], state["layer2.0.conv1.weight"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "theirs.ckpt"


def test_a_loss_with_weights_is_left_out(file: Path) -> None:
    state = state_of("cifar-resnet8")
    found = loaded(under("model.", state) | {"criterion.weight": torch.ones(10)}, file)
    assert_has(found, state)
    assert found.origin.notes[-2:] == (
        f"removed the prefix 'model.' from {len(state)} names",
        "left out 1 tensor beside the network: criterion.weight",
    )


def test_any_prefix_will_do(file: Path) -> None:
    state = state_of("cifar-resnet8")
    assert_has(loaded(under("encoder.trunk.", state) | {"projector.0.weight": torch.ones(3, 3)}, file), state)


def test_two_networks_are_named_and_one_can_be_taken(file: Path) -> None:
    student, teacher = state_of("cifar-resnet8"), state_of("cifar-resnet8", seed=1)
    both = under("student.", student) | under("teacher.", teacher)
    with pytest.raises(SurgeonError, match=r"holds the network 2 times, under 'student\.' and 'teacher\.'\.") as caught:
        loaded(both, file)
    assert caught.value.hint == r"Take one of them: --rename '^student\.='."
    found = loaded(both, file, naming=Naming.of([r"^teacher\.="], None))
    assert_has(found, teacher)
    assert found.origin.notes[-1].startswith(
        f"left out {len(student)} tensors beside the network: student.conv1.weight"
    )


@pytest.mark.parametrize("prefix", ["", "model."])
def test_a_deeper_network_is_not_cut(prefix: str, file: Path) -> None:
    deeper = under(prefix, state_of("cifar-resnet14")) | {"criterion.weight": torch.ones(10)}
    with pytest.raises(SurgeonError, match="do not fit the model"):
        loaded(deeper, file)


def test_another_number_of_classes_behind_a_prefix(file: Path) -> None:
    state = state_of("cifar-resnet8") | {"linear.weight": torch.ones(7, 64), "linear.bias": torch.ones(7)}
    found = loaded(under("model.", state) | {"criterion.weight": torch.ones(7)}, file)
    assert found.model(torch.zeros(1, 3, 32, 32)).shape == (1, 7)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_of_a_training_that_diverged_are_refused(value: float, file: Path) -> None:
    state = state_of("cifar-resnet8")
    state["layer1.0.bn1.running_var"][3] = value
    torch.save(state, file)
    with pytest.raises(SurgeonError, match=r"stores NaN or infinite values in 'layer1\.0\.bn1\.running_var'"):
        open_model("cifar-resnet8", weights=file)
    opened = open_model("cifar-resnet8", weights=file, diverged=True).model.state_dict()["layer1.0.bn1.running_var"]
    torch.testing.assert_close(opened, state["layer1.0.bn1.running_var"], rtol=0, atol=0, equal_nan=True)


def test_parameters_without_statistics_are_named(file: Path) -> None:
    state = {name: tensor for name, tensor in state_of("cifar-resnet8").items() if "running" not in name}
    with pytest.raises(SurgeonError) as caught:
        loaded(state, file)
    assert caught.value.hint == (
        "It holds parameters without the running statistics of BatchNorm: save model.state_dict() instead."
    )
