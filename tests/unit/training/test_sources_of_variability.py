"""Each source of randomness can be varied alone: initial weights, order, augmentation, rounding, one bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.training.images import Order
from surgeon.training.network import change_one_bit
from tests.helpers import SmallResNet


def test_a_rounding_seed_changes_places_within_a_batch_and_nothing_else() -> None:
    plain, other = (list(Order(23, 6, 0, 0, 9, rounding_seed=seed)) for seed in (None, 1))
    assert plain != other
    assert [sorted(batch) for batch in plain] == [sorted(batch) for batch in other]
    assert list(Order(23, 6, 0, 4, 9, rounding_seed=1)) == other[4:]


def test_one_bit_is_the_next_number_of_one_weight() -> None:
    before, after = SmallResNet(), SmallResNet()
    after.load_state_dict(before.state_dict())
    change_one_bit(after, seed=3)
    moved = [
        (old[old != new], new[old != new])
        for old, new in zip(before.parameters(), after.parameters(), strict=True)
        if not torch.equal(old, new)
    ]
    assert len(moved) == 1
    old, new = moved[0]
    assert old.shape == (1,)
    assert new.view(torch.int32) - old.view(torch.int32) == torch.where(old >= 0, 1, -1)


def test_every_weight_can_be_the_one() -> None:
    touched = set()
    for seed in range(200):
        layer = torch.nn.Linear(2, 2)
        before = [parameter.detach().clone() for parameter in layer.parameters()]
        change_one_bit(layer, seed)
        touched |= {
            (number, int((old != new).flatten().nonzero()))
            for number, (old, new) in enumerate(zip(before, layer.parameters(), strict=True))
            if not torch.equal(old, new)
        }
    assert len(touched) == 6


def trained(folder: Path, **keys: Any) -> dict[str, Tensor]:
    settings: dict[str, Any] = {
        "epochs": 1,
        "train_images": 40,
        "batch_size": 8,
        "augment": "standard:flip=false",
        "sweep": None,
    }
    surgeon.finetune("digits-resnet8", "digits", folder, pretrained=False, workers=0, **(settings | keys))
    return load_file(folder / "checkpoint" / "model.safetensors")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    return trained(tmp_path_factory.mktemp("runs") / "plain")


@pytest.mark.parametrize("key", ["init_seed", "order_seed", "augment_seed", "rounding_seed", "one_bit"])
def test_each_source_changes_the_result_and_rounding_changes_it_little(
    key: str, plain: dict[str, Tensor], tmp_path: Path
) -> None:
    other = trained(tmp_path / "run", **{key: 1})
    apart = max(float((tensor.double() - plain[name].double()).abs().max()) for name, tensor in other.items())
    assert apart > 0
    if key in ("rounding_seed", "one_bit"):
        assert apart < 0.02
    else:
        assert apart > 0.02


def test_seeds_stand_for_themselves(plain: dict[str, Tensor], tmp_path: Path) -> None:
    same = trained(tmp_path / "run", seed=5, init_seed=0, order_seed=0, augment_seed=0)
    assert all(torch.equal(tensor, plain[name]) for name, tensor in same.items())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"augment": ["mixup"]}, "augmentations of batches"),
        ({"augment": ["weak"]}, "batches"),
        ({"accumulate": 2}, "acc"),
    ],
)
def test_a_rounding_seed_does_not_go_with_what_goes_by_places(
    changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(SurgeonError, match=named):
        trained(tmp_path / "run", rounding_seed=1, **changes)
