"""Activation checkpointing of split networks: a recomputation takes the branch of the first pass."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import surgeon
from surgeon.layers.router import Branch, Router

REENTRANT = pytest.mark.parametrize("reentrant", [True, False])
WEIGHTS = torch.linspace(-1, 1, 40, dtype=torch.double).view(8, 5)


class Network(nn.Module):
    """Two blocks, each of which can be checkpointed, or both as one with the first nested in it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5), nn.ReLU())
        self.checkpointing: dict[str, Any] | None = None
        self.nested = False

    def run(self, block: Any, x: Tensor) -> Tensor:
        if self.checkpointing is None:
            return block(x)
        y: Tensor = checkpoint(block, x, **self.checkpointing)
        return y

    def forward(self, x: Tensor) -> Tensor:
        if self.nested:
            return self.run(lambda x: self.second(self.run(self.first, x)), x).mean((2, 3))
        return self.run(self.second, self.run(self.first, x)).mean((2, 3))


def network(*specs: str) -> nn.Module:
    torch.manual_seed(0)
    return surgeon.convert(Network().double(), *(specs or ("split",))).train()


def images() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 3, 8, 8, generator=generator, dtype=torch.double).requires_grad_()


def loss_of(model: nn.Module, x: Tensor, name: str) -> Tensor:
    with surgeon.branch(model, name):
        return (model(x) * WEIGHTS).sum()


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def halves(model: nn.Module) -> None:
    loss_of(model, images(), "halves").backward()


def both_at_once(model: nn.Module) -> None:
    (loss_of(model, images(), "main") + loss_of(model, 2 * images(), "aux")).backward()


def first_come_first_served(model: nn.Module) -> None:
    losses = [loss_of(model, scale * images(), name) for scale, name in ((1, "aux"), (2, "main"), (3, "halves"))]
    for loss in losses:
        loss.backward()


def another_pass_before_backward(model: nn.Module) -> None:
    loss = loss_of(model, images(), "aux")
    model(images())
    loss.backward()


def backward_in_another_thread(model: nn.Module) -> None:
    """As on a GPU, where threads of autograd's run it."""
    losses = [loss_of(model, images(), name) for name in ("halves", "aux")]
    for loss in losses:
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()


PATTERNS = [halves, both_at_once, first_come_first_served, another_pass_before_backward, backward_in_another_thread]


@REENTRANT
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_gradients_are_those_without_checkpointing(pattern: Any, nested: bool, reentrant: bool) -> None:
    plain, checkpointed = network(), network()
    checkpointed.checkpointing, checkpointed.nested = {"use_reentrant": reentrant}, nested
    for model in (plain, checkpointed):
        pattern(model)
    expected, actual = gradients(plain), gradients(checkpointed)
    for name, gradient in expected.items():
        assert (gradient is None) == (actual[name] is None), name
        if gradient is not None:
            torch.testing.assert_close(actual[name], gradient)


@REENTRANT
def test_each_branch_counts_a_recomputed_batch_twice_as_plain_batch_norm_does(reentrant: bool) -> None:
    torch.manual_seed(0)
    plain = Network().double().train()
    split = network()
    first_half, second_half = copy.deepcopy(plain), copy.deepcopy(plain)
    x = images()
    for model, part in ((first_half, x[:4]), (second_half, x[4:])):
        model.checkpointing = {"use_reentrant": reentrant}
        model(part).sum().backward()
    split.checkpointing = {"use_reentrant": reentrant}
    with surgeon.branch(split, "halves"):
        y = split(x)
    y.sum().backward()
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        layer = split.first[1]
        torch.testing.assert_close(getattr(layer, name), getattr(first_half.first[1], name))
        torch.testing.assert_close(getattr(layer.aux, name), getattr(second_half.first[1], name))
    assert layer.aux.num_batches_tracked == 2


def test_a_failed_backward_pass_leaves_nothing_behind() -> None:
    plain, checkpointed = network(), network()
    checkpointed.checkpointing = {"use_reentrant": True}
    loss = loss_of(checkpointed, images(), "aux")
    handle = checkpointed.first[0].weight.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    handle.remove()
    checkpointed.zero_grad()
    for model in (plain, checkpointed):
        halves(model)
    torch.testing.assert_close(checkpointed.first[0].weight.grad, plain.first[0].weight.grad)


@REENTRANT
def test_timm_checkpoints_split_networks(reentrant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timm.layers.config._USE_REENTRANT_CKPT", reentrant)
    torch.manual_seed(0)
    plain = surgeon.convert(timm.create_model("resnet10t", num_classes=3).double(), "split", "ghost:size=2").train()
    checkpointed = copy.deepcopy(plain)
    checkpointed.set_grad_checkpointing()
    x = torch.randn(8, 3, 32, 32, dtype=torch.double)
    for model in (plain, checkpointed):
        with surgeon.branch(model, "halves"):
            logits = model(x)
        logits.square().sum().backward()
    for (name, expected), actual in zip(plain.named_parameters(), checkpointed.parameters(), strict=True):
        torch.testing.assert_close(actual.grad, expected.grad, msg=name)


def test_a_branch_taken_everywhere_holds_in_new_threads() -> None:
    router, seen = Router(), []

    def look() -> None:
        thread = threading.Thread(target=lambda: seen.append(router.branch))
        thread.start()
        thread.join()

    with router.taking(Branch.AUXILIARY):
        look()
    with router.taking(Branch.HALVES, everywhere=True):  # as for DataParallel, whose replicas run in threads
        look()
    look()
    assert seen == [Branch.MAIN, Branch.HALVES, Branch.MAIN]
