"""Adversarial copies in training: known optima, the attacks of the robustness lab, and what is left alone."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import surgeon
from surgeon.conditions.attack import generators_of, one_attack
from surgeon.conditions.base import Seen
from surgeon.data.loaders import Batch
from surgeon.measuring.conditions import ConditionMaker, pixels_of, renormalise
from surgeon.models.origin import Preprocessing
from surgeon.training.attack import TrainingAttack
from tests.helpers import Snapshot, randn, small_resnet
from tests.unit.test_attacks import NETWORKS, PLAIN

RAW = Preprocessing(input_size=(3, 4, 4), mean=(0.0,) * 3, std=(1.0,) * 3)
FEATURES, INDICES = 48, torch.tensor([3, 11, 4, 7, 20])


def pictures(count: int = 5, size: int = 4) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Linear(nn.Module):
    """Logits W x + b in float64."""

    def __init__(self, classes: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(scale * randn(classes, FEATURES, seed=2, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(classes, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T + self.bias


def made(spec: str, model: nn.Module, preprocessing: Preprocessing = RAW, **options: bool) -> TrainingAttack:
    return TrainingAttack(one_attack(spec), model, preprocessing, **options)


def pushed(model: Linear, images: Tensor, eps: float, towards: Tensor) -> Tensor:
    """The corner of the box that lies farthest in the direction of class 1, or of class 0."""
    slope = (model.weight[1] - model.weight[0]).detach().sign().view(1, 3, 4, 4)
    return (images + eps * slope * towards[:, None, None, None]).clamp(0, 1)


@pytest.mark.parametrize("spec", ["fgsm:eps=0.1", "pgd:eps=0.1,step=0.02,steps=11"])
def test_two_linear_classes_are_attacked_at_the_optimum(spec: str) -> None:
    model, labels = Linear(2), torch.tensor([0, 1, 0, 1, 1])
    found = made(spec, model)(pictures(), F.one_hot(labels, 2).float(), INDICES, 0)
    expected = pushed(model, pictures(), 0.1, 1.0 - 2 * labels)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", ["fgsm:eps=0.1", "pgd:eps=0.1,step=0.02,steps=11"])
@pytest.mark.parametrize("sure_of", [0, 1])
def test_mixed_targets_of_two_linear_classes_are_attacked_at_the_optimum(spec: str, sure_of: int) -> None:
    """Cross-entropy is convex in the margin, and least where the prediction is the target: away from that it grows."""
    model, shares = Linear(2, scale=0.05), torch.tensor([0.3, 0.4, 0.5, 0.6, 0.7])
    model.bias.data[sure_of] = 3.0  # so sure that predictions lie on one side of all targets, in the whole box
    found = made(spec, model)(pictures(), torch.stack([1 - shares, shares], 1), INDICES, 0)
    expected = pushed(model, pictures(), 0.1, torch.full((5,), 2.0 * sure_of - 1))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", ["fgsm:eps=0.05", "pgd:eps=0.05,steps=4", "spsa:eps=0.05,steps=2,samples=3"])
def test_hard_labels_are_attacked_as_in_the_robustness_lab(spec: str) -> None:
    model, labels = small_resnet().double(), torch.arange(5) % 4
    images = renormalise(pictures(5, 8).mul(255).round().div(255), PLAIN)
    lab = ConditionMaker(seed=9).make(one_attack(spec), PLAIN, model)
    assert lab is not None
    expected = lab(Batch(images, labels, INDICES)).images
    found = made(spec, model, PLAIN)(images, F.one_hot(labels, 4).float(), INDICES, 9)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert not torch.allclose(found, images, atol=1e-3)


@pytest.mark.parametrize("spec", ["fgsm:eps=0.05", "pgd:eps=0.05,steps=3", "spsa:eps=0.05,steps=2,samples=3"])
def test_pixels_that_no_picture_can_show_are_not_brought_back(spec: str) -> None:
    """A mix such as BC+ leaves them."""
    pixels = pictures(5, 8).float() * 3 - 1
    model, targets = small_resnet(), torch.full((5, 4), 0.25)
    found = pixels_of(made(spec, model, PLAIN)(renormalise(pixels, PLAIN), targets, INDICES, 0), PLAIN)
    assert float((found - pixels).abs().max()) <= 0.05 + 1e-6
    assert bool((found[pixels < 0] >= pixels[pixels < 0] - 1e-6).all()), "nor made darker still"
    assert bool((found[pixels > 1] <= pixels[pixels > 1] + 1e-6).all())
    inside = (pixels >= 0) & (pixels <= 1)
    assert 0 - 1e-6 <= float(found[inside].min()) <= float(found[inside].max()) <= 1 + 1e-6


@pytest.mark.parametrize("spec", ["fgsm:eps=0", "pgd:eps=0,steps=2", "spsa:eps=0,steps=1,samples=2"])
def test_at_eps_0_images_stay_as_they_are(spec: str) -> None:
    images = randn(5, 3, 8, 8)
    found = made(spec, small_resnet(), PLAIN)(images, torch.full((5, 4), 0.25), INDICES, 0)
    torch.testing.assert_close(found, images, rtol=0, atol=1e-6)


def test_the_divergence_is_climbed_where_predictions_are_attacked() -> None:
    """As TRADES does: of KL(p(x), p(x')) the gradient with respect to x' is W' (p(x') - p(x))."""
    model, spec, eps, step = Linear(3, scale=0.3), "pgd:eps=0.05,step=0.02,steps=1", 0.05, 0.02
    wrong = F.one_hot(torch.arange(5) % 3, 3).float()
    found = made(spec, model, predictions=True)(pictures(), wrong, INDICES, 4)
    weight, bias = model.weight.detach().numpy(), model.bias.detach().numpy()

    def probabilities(image: np.ndarray) -> np.ndarray:
        logits = weight @ image.ravel() + bias
        return np.exp(logits) / np.exp(logits).sum()

    generators = generators_of(Seen(pictures(), torch.zeros(5), INDICES, 4, spec), "pgd")
    for image, generator, reached in zip(pictures().numpy(), generators, found.numpy(), strict=True):
        offset = torch.rand(image.shape, generator=generator, dtype=torch.float64).numpy() * 2 - 1
        low, high = np.maximum(image - eps, 0), np.minimum(image + eps, 1)
        start = np.clip(image + eps * offset, low, high)
        slope = weight.T @ (probabilities(start) - probabilities(image))
        expected = np.clip(start + step * np.sign(slope).reshape(image.shape), low, high)
        np.testing.assert_allclose(reached, expected, atol=1e-9)


def test_an_attack_that_knows_no_shares_is_given_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """AutoAttack takes class numbers alone: of a mixed image, that of the largest share."""
    given: list[Tensor] = []

    def run(_: object, pixels: Tensor, labels: Tensor, **__: object) -> Tensor:
        given.append(labels)
        return pixels

    monkeypatch.setattr("surgeon.conditions.attacks.automatic.run", run)
    made("auto-attack", Linear(3))(pictures(), torch.eye(3)[[0, 2, 1, 1, 0]] * 0.4 + 0.2, INDICES, 0)
    assert given[0].tolist() == [0, 2, 1, 1, 0]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("predictions", [False, True])
def test_the_network_is_left_as_it_was(name: str, predictions: bool) -> None:
    """Also one of which a part is in evaluation mode, and one whose gradients are half accumulated."""
    model = NETWORKS[name]().train()
    model.layer2.eval()
    model.fc.weight.requires_grad_(False)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
    wanted = [parameter.requires_grad for parameter in model.parameters()]
    before, drawn = Snapshot(model), torch.get_rng_state()
    attack = made("pgd:steps=2", model, PLAIN, auxiliary=name == "split", predictions=predictions)
    images = randn(5, 3, 8, 8)
    found = attack(images, torch.full((5, 4), 0.25), INDICES, 0)
    assert not found.requires_grad
    assert torch.equal(images, randn(5, 3, 8, 8))
    before.assert_unchanged()
    assert [parameter.requires_grad for parameter in model.parameters()] == wanted
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters() if p.grad is not None)
    assert torch.equal(torch.get_rng_state(), drawn)


@pytest.mark.parametrize("auxiliary", [False, True])
def test_the_attack_goes_through_its_branch(auxiliary: bool) -> None:
    """As on an ordinary network that has the statistics of that branch."""
    branches = [small_resnet().double(), small_resnet().double()]
    for module in branches[1].modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.add_(0.7)  # type: ignore[union-attr]
            module.weight.data.mul_(-1.3)
    model = surgeon.convert(copy.deepcopy(branches[0]), "split")
    for layer, other in zip(
        surgeon.layers.surgical.surgical_layers(model).values(),
        (module for module in branches[1].modules() if isinstance(module, nn.BatchNorm2d)),
        strict=True,
    ):
        assert layer.aux is not None
        layer.aux.load_state_dict(other.state_dict(), strict=False)
    images, targets = randn(5, 3, 8, 8, dtype=torch.float64), torch.eye(4)[torch.arange(5) % 4]
    spec = "pgd:eps=0.1,steps=3"
    found = made(spec, model, PLAIN, auxiliary=auxiliary)(images, targets, INDICES, 0)
    own, other = (made(spec, one, PLAIN)(images, targets, INDICES, 0) for one in branches)
    torch.testing.assert_close(found, other if auxiliary else own, rtol=0, atol=1e-9)
    assert not torch.allclose(own, other, atol=1e-3)


def test_a_head_of_zeros_is_no_reason_to_refuse() -> None:
    """Some networks begin with one, and their gradients are 0 until the first step."""
    model = small_resnet()
    nn.init.zeros_(model.fc.weight)
    found = made("pgd:eps=0.05,steps=2", model, PLAIN)(randn(5, 3, 8, 8), torch.eye(4)[[0, 1, 2, 3, 0]], INDICES, 0)
    assert bool(found.isfinite().all())


class Watched(nn.Module):
    """Notes how wide its logits are, and that it was in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, 3)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x.flatten(1))
        self.seen.append(logits.dtype)
        assert not self.training
        return logits


def prepared(model: nn.Module) -> nn.Module:
    """As accelerate leaves a network in half precision."""
    model._original_forward = model.forward  # type: ignore[assignment]
    model.forward = torch.autocast("cpu", dtype=torch.float16)(model.forward)  # type: ignore[method-assign]
    return model


@pytest.mark.parametrize("prepare", [lambda model: model, prepared], ids=["as it is", "prepared"])
def test_no_gradient_with_respect_to_images_is_taken_in_float16(prepare: Callable[[nn.Module], nn.Module]) -> None:
    """Without a scaler it would underflow."""
    model = Watched()
    prepare(model)
    forward = vars(model).get("forward")
    with torch.autocast("cpu", dtype=torch.float16):
        found = made("pgd:steps=2", model)(pictures().float(), torch.full((5, 3), 1 / 3), INDICES, 0)
        assert torch.is_autocast_enabled("cpu")
    assert set(model.seen) == {torch.float32}
    assert found.dtype is torch.float32
    assert vars(model).get("forward") is forward


def test_half_precision_logits_are_widened_for_the_loss() -> None:
    """bfloat16 has the range for gradients, but not the digits for log odds."""

    class Narrow(Watched):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).bfloat16()

    found = made("pgd:eps=0.05,steps=2", Narrow())(pictures().float(), torch.eye(3)[[0, 1, 2, 0, 1]], INDICES, 0)
    assert found.dtype is torch.float32
    assert float((found - pictures()).abs().max()) <= 0.05 + 1e-6
