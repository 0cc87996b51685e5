"""State dicts of converted networks: the original's keys, and alpha beside them."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from torch import nn

import surgeon

ALPHA = (0.1, 0.2, 0.3, 0.4)


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.BatchNorm2d(4))


def converted(alpha: Any = 0.3, *others: str) -> nn.Module:
    return surgeon.convert(surgeon.convert(plain(), *others) if others else plain(), "example-weighted", alpha=alpha)


def alphas(model: nn.Module) -> list[Any]:
    return [model[1].alpha_values, model[2].alpha_values]


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.mark.parametrize("alpha", [0.3, {"1": 0.1, "2": 0.4}, {"1": ALPHA, "2": 0.0}])
@pytest.mark.parametrize("weights_only", [True, False])
def test_alpha_comes_with_the_weights(alpha: Any, weights_only: bool, tmp_path: Path) -> None:
    saved = converted(alpha)
    torch.save({"model": saved.state_dict()}, tmp_path / "w.pth")
    again = converted(0)
    again.load_state_dict(torch.load(tmp_path / "w.pth", weights_only=weights_only)["model"])
    assert alphas(again) == alphas(saved)
    x = torch.randn(2, 3, 5, 5)
    assert torch.equal(again.eval()(x), saved.eval()(x))
    assert surgeon.inspect_model(again).layers[0].rewrites == surgeon.inspect_model(saved).layers[0].rewrites


def test_plain_and_converted_networks_load_each_other_strictly(tmp_path: Path) -> None:
    saved = converted(0.3)
    assert list(saved.state_dict()) == list(plain().state_dict())
    torch.save(saved.state_dict(), tmp_path / "w.pth")
    plain().load_state_dict(torch.load(tmp_path / "w.pth"), strict=True)
    saved.load_state_dict(plain().state_dict(), strict=True)
    assert alphas(saved) == [0.3, 0.3]
    converted(0).load_state_dict(plain().state_dict(), strict=True)


def test_timm_loads_the_state_of_a_converted_network_strictly_and_back() -> None:
    original = timm.create_model("test_resnet", num_classes=3)
    rewritten = surgeon.convert(original, "ghost:size=2", "example-weighted:alpha=0.2")
    timm.create_model("test_resnet", num_classes=3).load_state_dict(rewritten.state_dict(), strict=True)
    rewritten.load_state_dict(original.state_dict(), strict=True)


def test_an_alpha_set_here_stays_and_the_other_is_told() -> None:
    model = converted(0.1)
    with pytest.warns(UserWarning, match=r"saved with alpha 0\.3, but this network has alpha 0\.1, which it keeps"):
        model.load_state_dict(converted(0.3).state_dict())
    assert alphas(model) == [0.1, 0.1]
    ghost = surgeon.convert(plain(), "ghost")
    with pytest.warns(UserWarning, match="but this network has no example weighting"):
        ghost.load_state_dict(converted(0.3).state_dict())
    model.load_state_dict(converted(0).state_dict())
    assert alphas(model) == [0.1, 0.1]


def test_other_channel_groups_are_told() -> None:
    saved = surgeon.convert(plain(), "batch-group:channel_groups=2")
    with pytest.warns(UserWarning, match="layers with 2 channel groups, but here are 4"):
        surgeon.convert(plain(), "batch-group:channel_groups=4").load_state_dict(saved.state_dict())
    surgeon.convert(plain(), "batch-group:channel_groups=2").load_state_dict(saved.state_dict())


def test_weights_without_metadata_are_told_of(tmp_path: Path) -> None:
    safetensors.torch.save_file(converted(0.3).state_dict(), tmp_path / "w.safetensors")
    state = safetensors.torch.load_file(tmp_path / "w.safetensors")
    plain().load_state_dict(state, strict=True)
    with pytest.warns(UserWarning, match="without the metadata of a state dict, so alpha stays 0"):
        converted(0).load_state_dict(state)
    converted(0.3).load_state_dict(state)  # somebody has set an alpha
    surgeon.convert(plain(), "ghost").load_state_dict(state)  # nobody asked for one


def test_prefixes_of_wrappers_and_copies_keep_alpha() -> None:
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    saved, again = converted(0.3), converted(0)
    Wrapper(again).load_state_dict(Wrapper(saved).state_dict())
    assert alphas(again) == [0.3, 0.3]
    state, bare = Wrapper(saved).state_dict(), converted(0)
    torch.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    bare.load_state_dict(state)
    assert alphas(bare) == [0.3, 0.3]
    assert alphas(copy.deepcopy(saved)) == [0.3, 0.3]
    average = timm.utils.ModelEmaV3(saved)
    average.update(saved)
    assert alphas(average.module) == [0.3, 0.3]


def test_a_split_network_takes_alpha_for_both_branches() -> None:
    again = converted(0, "split")
    again.load_state_dict(converted(0.3, "split").state_dict())
    assert again[1].aux.alpha_values == again[1].alpha_values == 0.3


def test_checkpoints_are_loaded_without_a_word(tmp_path: Path) -> None:
    for alpha in (0, 0.3):
        surgeon.save(converted(alpha), tmp_path / str(alpha))
        assert alphas(surgeon.load(tmp_path / str(alpha), model=plain())) == [alpha, alpha]
