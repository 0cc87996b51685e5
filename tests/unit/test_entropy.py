"""Entropy minimisation: the gradient and Adam's steps of the formula, gamma and beta alone, no collapse."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.surgery.apply import convert
from surgeon.surgery.branches import mix_branches
from surgeon.surgery.entropy import mean_entropy, minimise_entropy
from tests.helpers import Snapshot, randn, small_images, small_resnet

Array = NDArray[np.float64]


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def entropies(p: Array) -> Array:
    return -(p * np.log(p)).sum(1, keepdims=True)


def gradient_of_mean_entropy(logits: Array) -> Array:
    """d mean H / d logit_j = -p_j (log p_j + H) / n."""
    p = softmax(logits)
    return -p * (np.log(p) + entropies(p)) / len(p)


def test_gradient_is_that_of_the_formula() -> None:
    logits = (3 * randn(6, 5, dtype=torch.float64)).requires_grad_()
    value = mean_entropy(logits)
    value.backward()
    assert value.item() == pytest.approx(float(entropies(softmax(logits.detach().numpy())).mean()), rel=1e-12)
    np.testing.assert_allclose(logits.grad, gradient_of_mean_entropy(logits.detach().numpy()), rtol=1e-10, atol=1e-14)


def test_entropy_of_certain_predictions_is_zero_with_a_gradient() -> None:
    logits = torch.tensor([[1000.0, 0.0, -1000.0]], requires_grad=True)
    value = mean_entropy(logits)
    value.backward()
    assert value.item() == 0
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def adam(x: Array, gamma: Array, beta: Array, batches: list[slice], epochs: int, lr: float) -> tuple[Array, Array]:
    """Adam as published, on logits = gamma * x + beta."""
    values, first, second = np.stack([gamma, beta]), np.zeros((2, len(gamma))), np.zeros((2, len(gamma)))
    step = 0
    for _ in range(epochs):
        for part in batches:
            step += 1
            of_logits = gradient_of_mean_entropy(values[0] * x[part] + values[1])
            g = np.stack([(of_logits * x[part]).sum(0), of_logits.sum(0)])
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
            values = values - lr * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return values[0], values[1]


def test_steps_are_those_of_adam_on_gamma_and_beta() -> None:
    layer = nn.BatchNorm1d(4).double()
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.running_mean.copy_(randn(4, seed=1))
    layer.running_var.copy_(randn(4, seed=2).square() + 0.5)
    layer.weight.data.copy_(randn(4, seed=3))
    layer.bias.data.copy_(randn(4, seed=4))
    x = randn(11, 4, seed=5, dtype=torch.float64)
    normalised = ((x - layer.running_mean) / (layer.running_var + layer.eps).sqrt()).numpy()
    gamma, beta = (t.detach().clone().numpy() for t in (layer.weight, layer.bias))
    result = minimise_entropy(layer, x.split(6), epochs=3, lr=0.01)
    expected = adam(normalised, gamma, beta, [slice(0, 6), slice(6, 11)], 3, 0.01)
    np.testing.assert_allclose(layer.weight.detach(), expected[0], rtol=1e-9)
    np.testing.assert_allclose(layer.bias.detach(), expected[1], rtol=1e-9)
    before, after = (softmax(g * normalised + b) for g, b in ((gamma, beta), expected))
    for found, p in ((result.before, before), (result.after, after)):
        assert found.entropy == pytest.approx(float(entropies(p).mean()))
        assert found.confidence == pytest.approx(float(p.max(1).mean()))
        shares = np.bincount(p.argmax(1)) / 11
        shares = shares[shares > 0]
        assert found.classes == pytest.approx(float(np.exp(-(shares * np.log(shares)).sum())))
    assert result.changed == pytest.approx(float((before.argmax(1) != after.argmax(1)).mean()))


@pytest.mark.parametrize("rewrite", [None, "ghost", "example-weighted:alpha=0.2", "split"])
def test_gamma_and_beta_alone_change(rewrite: str | None) -> None:
    model = small_resnet()
    if rewrite:
        model = convert(model, rewrite)
    model.train()
    model.fc.weight.requires_grad_(False)
    wanted = {name: p.requires_grad for name, p in model.named_parameters()}
    before = copy.deepcopy(model.state_dict())
    result = minimise_entropy(model, [(small_images(12), "no labels")], epochs=2)
    after = model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    norms = {n for n in before if "bn" in n and n.endswith(("weight", "bias")) and ".aux." not in n}
    assert changed == norms
    assert result.after.entropy < result.before.entropy
    assert (result.layers, result.images, result.epochs, result.collapsed) == (7, 12, 2, False)
    assert bool(result.notes) == (rewrite == "split")
    assert {name: p.requires_grad for name, p in model.named_parameters()} == wanted
    assert all(p.grad is None for p in model.parameters())
    assert all(module.training for module in model.modules())


def test_fused_layers_take_part() -> None:
    model = small_resnet(BatchNormAct2d)
    result = minimise_entropy(model, [small_images(12)], epochs=3)
    assert result.layers == 7
    assert result.after.entropy < result.before.entropy


def test_the_same_images_give_the_same_network_also_from_an_iterator() -> None:
    first, second = small_resnet(), small_resnet()
    minimise_entropy(first, small_images(12).split(5))
    minimise_entropy(second, iter(small_images(12).split(5)))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


class Blurred(nn.Module):
    """Logits that all images share in part: one class gains from every image that is made surer of it."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(4)
        self.bn.bias.data[0] = 0.3

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x)


def test_a_collapse_is_undone_and_said() -> None:
    x = 0.3 * randn(64, 4)
    careful, hasty = Blurred(), Blurred()
    assert not minimise_entropy(careful, [x], epochs=1, lr=1e-3).collapsed
    result = minimise_entropy(hasty, [x] * 10, epochs=20, lr=0.02)
    assert result.collapsed
    assert result.epochs < len(result.trace) <= 20
    assert result.trace[-1].classes < 0.8 * result.before.classes
    assert result.after == (result.before, *result.trace)[result.epochs]
    again = Blurred()  # what is left is the network after the last good epoch
    if result.epochs:
        minimise_entropy(again, [x] * 10, epochs=result.epochs, lr=0.02)
    assert all(torch.equal(a, b) for a, b in zip(hasty.parameters(), again.parameters(), strict=True))


def test_numbers_that_overflow_are_a_collapse_too() -> None:
    model = small_resnet()
    before = [p.detach().clone() for p in model.parameters()]
    result = minimise_entropy(model, [small_images(12)], epochs=3, lr=1e30)
    assert result.collapsed
    assert result.epochs == 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_failure_leaves_the_network_as_it_was() -> None:
    model = small_resnet()
    before = Snapshot(model)
    calls = iter(range(100))

    def fail_later(*_: object) -> None:
        if next(calls) > 3:
            raise KeyboardInterrupt

    handle = model.register_forward_pre_hook(fail_later)
    with pytest.raises(KeyboardInterrupt):
        minimise_entropy(model, small_images(12).split(6), epochs=3)
    handle.remove()
    before.assert_unchanged()


def test_refusals() -> None:
    x = small_images(4)
    with pytest.raises(SurgeonError, match="0 epochs"):
        minimise_entropy(small_resnet(), [x], epochs=0)
    with pytest.raises(SurgeonError, match="learning rate cannot be -1"):
        minimise_entropy(small_resnet(), [x], lr=-1)
    with pytest.raises(SurgeonError, match="gave no batches"):
        minimise_entropy(small_resnet(), [])
    with pytest.raises(SurgeonError, match="no BatchNorm layer with a gamma"):
        minimise_entropy(nn.Linear(2, 2), [torch.zeros(2, 2)])
    with pytest.raises(SurgeonError, match="predicts NaN"):
        minimise_entropy(small_resnet(), [torch.full_like(x, torch.nan)])
    with pytest.raises(SurgeonError, match="not those of a classifier"):
        minimise_entropy(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)), [torch.zeros(2, 3)])
    both = convert(small_resnet(), "split")
    mix_branches(both, 0.5)
    with pytest.raises(SurgeonError, match="both of its branches"):
        minimise_entropy(both, [x])
