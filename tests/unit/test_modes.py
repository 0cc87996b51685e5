"""Mode normalisation against its formula written out, against BatchNorm, and at its edges."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.norms.mode.layer import ModeStatistics
from surgeon.norms.mode_group.layer import ChannelModes, normalise_by_channel_modes
from surgeon.surgery.apply import convert
from tests.helpers import randn, randomise, small_resnet
from tests.reference.norms import by_modes, columns

EPS = 1e-5
SHAPES = [(6, 4, 5, 3), (6, 4, 7), (6, 4), (5, 4, 2, 3, 2), (2, 4, 1, 1)]


def batch_norm() -> nn.BatchNorm2d:
    norm = randomise(nn.BatchNorm2d(4))
    assert isinstance(norm, nn.BatchNorm2d)
    return norm


def with_modes(modes: int, seed: int = 0, gate: float = 1.0) -> ModeStatistics:
    """Modes that differ, and gates that know them apart."""
    layer = ModeStatistics(4, modes)
    with torch.no_grad():
        layer.gate.weight.copy_(gate * randn(modes, 4, seed=seed))
        layer.gate.bias.copy_(gate * randn(modes, seed=seed + 1))
        layer.running_mean.copy_(randn(modes, 4, seed=seed + 2))
        layer.running_var.copy_(randn(modes, 4, seed=seed + 3).exp())
    return layer


def reference(x: Tensor, layer: ModeStatistics, weight: Tensor, bias: Tensor, training: bool) -> Tensor:
    y, _ = by_modes(x.double(), layer, EPS, training)
    return y * columns(weight.double(), x) + columns(bias.double(), x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("modes", [2, 5])
@pytest.mark.parametrize("with_gradients", [False, True])
def test_the_formula(shape: tuple[int, ...], modes: int, with_gradients: bool) -> None:
    layer, norm, x = with_modes(modes), batch_norm(), randn(*shape)
    with torch.set_grad_enabled(with_gradients):
        for training in (False, True):
            expected = reference(x, layer, norm.weight, norm.bias, training)
            normalise = layer.normalise_batch if training else layer.normalise_running
            torch.testing.assert_close(normalise(x, norm.weight, norm.bias, EPS).double(), expected, rtol=0, atol=1e-4)


def test_running_moments_are_the_averages_of_x_and_its_square() -> None:
    layer, x = with_modes(3), randn(6, 4, 5, 3)
    running_x, running_x2 = layer.running_x.clone(), layer.running_x2.clone()
    gates = layer.gate(x.mean((2, 3))).softmax(1)
    shares = (gates / gates.sum(0)).T.detach()
    layer.normalise_batch(x, None, None, EPS)
    torch.testing.assert_close(layer.running_x, 0.9 * running_x + 0.1 * shares @ x.mean((2, 3)))
    torch.testing.assert_close(layer.running_x2, 0.9 * running_x2 + 0.1 * shares @ x.square().mean((2, 3)))
    assert not layer.running_x2.requires_grad


def test_moments_can_be_set_and_read_back() -> None:
    layer, other = with_modes(2), ModeStatistics(4, 2)
    other.set_moments(layer.running_x, layer.running_x2)
    torch.testing.assert_close(other.running_var, layer.running_var)


# ---- beside BatchNorm ----


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_mode_is_batch_norm_to_the_bit(shape: tuple[int, ...]) -> None:
    norm, x = batch_norm(), randn(*shape)
    layer = ModeStatistics.from_running(norm.running_mean, norm.running_var, 1)
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    for _ in range(2):
        expected = F.batch_norm(x, mean, var, norm.weight, norm.bias, True, 0.1, EPS)
        assert torch.equal(layer.normalise_batch(x, norm.weight, norm.bias, EPS), expected)
    assert torch.equal(layer.running_mean[0], mean)
    assert torch.equal(layer.running_var[0], var)
    expected = F.batch_norm(x, mean, var, norm.weight, norm.bias, False, 0.1, EPS)
    assert torch.equal(layer.normalise_running(x, norm.weight, norm.bias, EPS), expected)


@pytest.mark.parametrize("modes", [2, 3, 7])
@pytest.mark.parametrize("offset", [0.0, 30.0, 1e3])
def test_evaluation_starts_as_batch_norm(modes: int, offset: float) -> None:
    norm, x = batch_norm(), randn(8, 4, 5, 3) + offset
    norm.running_mean += offset
    layer = ModeStatistics.from_running(norm.running_mean, norm.running_var, modes)
    expected = norm.double().eval()(x.double())
    y = layer.normalise_running(x, norm.weight.float(), norm.bias.float(), EPS)
    # the running mean itself is rounded to float32: at 1e3 by up to 3e-5
    assert (y - expected).norm() / expected.norm() < (1e-6 if offset == 0 else 1e-5)


@pytest.mark.parametrize("modes", [2, 4])
def test_training_starts_near_batch_norm_but_modes_separate(modes: int) -> None:
    norm, x = batch_norm(), randn(64, 4, 5, 3)
    layer = ModeStatistics.from_running(norm.running_mean, norm.running_var, modes)
    y = layer.normalise_batch(x, norm.weight, norm.bias, EPS)
    expected = norm(x)
    assert (y - expected).norm() / expected.norm() < 0.01
    assert (layer.running_mean[0] - layer.running_mean[1]).abs().max() > 1e-5
    (y * randn(*y.shape, seed=3)).sum().backward()
    assert layer.gate.weight.grad is not None
    assert (layer.gate.weight.grad[0] - layer.gate.weight.grad[1]).norm() > 1e-3


def test_modes_of_two_kinds_of_images_are_found() -> None:
    """Two clusters of examples: trained through the gate, each mode comes to stand for one of them."""
    kind = (torch.arange(64) % 2 * 4.0 - 2).reshape(-1, 1, 1, 1)
    x = randn(64, 4, 4, 4) + kind
    layer = ModeStatistics.from_running(torch.zeros(4), torch.full((4,), 5.0), 2)
    optimiser = torch.optim.Adam(layer.gate.parameters(), lr=0.05)
    for _ in range(60):
        optimiser.zero_grad()
        # without its cluster's mean an example is small: what a mode of its own can achieve
        layer.normalise_batch(x, None, None, EPS).mean((2, 3)).square().mean().backward()
        optimiser.step()
    gates = layer.gate(x.mean((2, 3))).softmax(1)
    assert (gates[::2, 0].mean() - gates[1::2, 0].mean()).abs() > 0.8
    assert (layer.running_mean[0] - layer.running_mean[1]).abs().min() > 2


@pytest.mark.parametrize("offset", [-5.0, 1e3, 1e5])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_fresh_gates_are_near_uniform_at_any_scale(offset: float, scale: float) -> None:
    x = scale * (randn(64, 4, 5, 3) + offset)
    layer = ModeStatistics.from_running(x.mean((0, 2, 3)), x.var((0, 2, 3)), 2)
    gates = layer.gate(x.mean((2, 3))).softmax(1)
    assert (gates - 0.5).abs().max() < 0.05
    assert gates.std(0).max() > 1e-4


def test_seeds() -> None:
    first, again, other = (ModeStatistics.from_running(torch.zeros(4), torch.ones(4), 2, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.gate.weight, again.gate.weight)
    assert not torch.equal(first.gate.weight, other.gate.weight)


# ---- edges ----


@pytest.mark.parametrize("offset", [1e3, 1e4])
def test_large_means(offset: float) -> None:
    layer, x = with_modes(2, gate=0.1), randn(16, 4, 5, 3) + offset
    with torch.no_grad():
        layer.gate.bias.copy_(-offset * layer.gate.weight.sum(1))
        layer.running_mean.add_(offset)
    one = torch.ones(4)
    tolerance = 1e-6 * offset  # a few steps of float32 at this size
    for training in (True, False):
        expected = reference(x, copy.deepcopy(layer).double(), one, 0 * one, training)
        normalise = layer.normalise_batch if training else layer.normalise_running
        torch.testing.assert_close(normalise(x, one, None, EPS).double(), expected, rtol=0, atol=tolerance)
    for _ in range(100):
        layer.normalise_batch(x, one, None, EPS)
    _, var = reference_statistics(x, layer)
    torch.testing.assert_close(layer.running_var.double(), var, rtol=1e-3, atol=0)


def reference_statistics(x: Tensor, layer: ModeStatistics) -> tuple[Tensor, Tensor]:
    x = x.double()
    gates = F.linear(x.mean((2, 3)), layer.gate.weight.double(), layer.gate.bias.double()).softmax(1)
    shares = (gates / gates.sum(0)).T.detach()
    mean = shares @ x.mean((2, 3))
    return mean, torch.stack(
        [s @ (x - m[:, None, None]).square().mean((2, 3)) for s, m in zip(shares, mean, strict=True)]
    )


def test_a_deserted_mode_stays_finite() -> None:
    layer, x = with_modes(2), randn(6, 4, 5, 3).requires_grad_()
    with torch.no_grad():
        layer.gate.bias.copy_(torch.tensor([0.0, 1e4]))
    y = layer.normalise_batch(x, None, None, EPS)
    torch.testing.assert_close(y, F.batch_norm(x, None, None, training=True), rtol=1e-4, atol=1e-4)
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert layer.running_mean.isfinite().all()


@pytest.mark.parametrize("shape", [(5, 2, 3, 2), (5, 2)], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_gradients(shape: tuple[int, ...], training: bool, affine: bool) -> None:
    layer = ModeStatistics(2, 3).double()
    x, weight, bias = (randn(*s, seed=i, dtype=torch.float64) for i, s in enumerate((shape, (2,), (2,))))
    gate = randn(3, 2, seed=5, dtype=torch.float64), randn(3, seed=6, dtype=torch.float64)

    def run(x: Tensor, gate_weight: Tensor, gate_bias: Tensor, *parameters: Tensor) -> Tensor:
        state = {"gate.weight": gate_weight, "gate.bias": gate_bias}
        caller = Caller(copy.deepcopy(layer), training)
        state = {f"layer.{name}": t for name, t in state.items()}
        return torch.func.functional_call(caller, state, (x, *(parameters or (None, None))))

    inputs = (x, *gate, *((weight, bias) if affine else ()))
    assert torch.autograd.gradcheck(run, tuple(t.requires_grad_() for t in inputs))


class Caller(nn.Module):
    def __init__(self, layer: ModeStatistics, training: bool) -> None:
        super().__init__()
        self.layer = layer
        self.normalise = layer.normalise_batch if training else layer.normalise_running

    def forward(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        return self.normalise(x, weight, bias, 1e-2)


def test_gradients_are_batch_norms_when_gates_are_equal() -> None:
    layer = ModeStatistics(4, 2)
    nn.init.zeros_(layer.gate.weight)
    nn.init.zeros_(layer.gate.bias)
    norm = batch_norm()
    for fmt in (torch.contiguous_format, torch.channels_last):
        x, grad = (randn(6, 4, 5, 3, seed=s).contiguous(memory_format=fmt) for s in (0, 1))
        results = []
        for run in (norm, lambda t: layer.normalise_batch(t, norm.weight, norm.bias, EPS)):
            leaf = x.clone().requires_grad_()
            norm.zero_grad()
            run(leaf).backward(grad)
            results.append([leaf.grad, norm.weight.grad, norm.bias.grad])
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_backward_twice_and_expanded_gradients() -> None:
    layer, x = with_modes(2), randn(6, 4, 5, 3).requires_grad_()
    y = layer.normalise_batch(x, None, None, EPS).square().sum()
    y.backward(retain_graph=True)
    assert x.grad is not None
    first = x.grad.clone()
    y.backward()
    torch.testing.assert_close(x.grad, 2 * first)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("modes", [1, 2])
def test_half_precision(dtype: torch.dtype, modes: int) -> None:
    layer, norm, x = with_modes(modes), batch_norm(), (randn(6, 4, 5, 3) + 3).to(dtype)
    for name in ("normalise_batch", "normalise_running"):
        y = getattr(copy.deepcopy(layer), name)(x, norm.weight, norm.bias, EPS)
        assert y.dtype == dtype
        expected = getattr(copy.deepcopy(layer), name)(x.float(), norm.weight, norm.bias, EPS)
        torch.testing.assert_close(y.float(), expected, rtol=0.01, atol=0.01)


def test_autocast_leaves_statistics_in_single_precision() -> None:
    layer, x = with_modes(2), randn(6, 4, 5, 3) + 100
    expected = copy.deepcopy(layer).normalise_batch(x, None, None, EPS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer.normalise_batch(x, None, None, EPS)
    assert torch.equal(y, expected)


@pytest.mark.parametrize("with_gradients", [False, True])
def test_memory_format_is_kept(with_gradients: bool) -> None:
    layer, x = with_modes(2), randn(6, 4, 5, 3)
    last = x.contiguous(memory_format=torch.channels_last).requires_grad_(with_gradients)
    for name in ("normalise_batch", "normalise_running"):
        y = getattr(layer, name)(last, None, None, EPS)
        assert y.is_contiguous(memory_format=torch.channels_last)
    channels = ChannelModes.from_running(torch.zeros(4), torch.ones(4), 2)
    assert channels.normalise(last, None, None, EPS).is_contiguous(memory_format=torch.channels_last)


def test_one_value_per_channel_is_refused() -> None:
    for modes in (1, 2):
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            with_modes(modes).normalise_batch(randn(1, 4, 1, 1), None, None, EPS)


def test_no_modes_are_refused() -> None:
    for build in (lambda: ModeStatistics(4, 0), lambda: ChannelModes(0)):
        with pytest.raises(ValueError, match="at least one mode"):
            build()


def test_state_is_saved() -> None:
    assert set(with_modes(2).state_dict()) == {"gate.weight", "gate.bias", "running_mean", "running_var"}


# ---- mode group normalisation ----


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_mode_of_channels_is_group_norm(shape: tuple[int, ...]) -> None:
    layer, norm, x = ChannelModes(1), batch_norm(), randn(*shape)
    expected = F.group_norm(x, 1, norm.weight, norm.bias, EPS)
    torch.testing.assert_close(layer.normalise(x, norm.weight, norm.bias, EPS), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_modes_of_channels_by_hand(shape: tuple[int, ...]) -> None:
    x, norm, modes = randn(*shape, dtype=torch.float64), batch_norm().double(), 3
    gate_weight, gate_bias = (randn(modes, seed=s, dtype=torch.float64) for s in (1, 2))
    flat = x.reshape(*shape[:2], -1)
    gates = (flat.mean(-1)[..., None] * gate_weight + gate_bias).softmax(-1)
    y = torch.zeros_like(flat)
    for k in range(modes):
        share = (gates[..., k] / gates[..., k].sum(1, keepdim=True))[..., None] / flat.shape[-1]
        mean = (share * flat).sum((1, 2), keepdim=True)
        y += (flat - mean) / ((share * (flat - mean).square()).sum((1, 2), keepdim=True) + EPS).sqrt() / modes
    expected = y.reshape(shape) * columns(norm.weight, x) + columns(norm.bias, x)
    got = normalise_by_channel_modes(x, gate_weight, gate_bias, norm.weight, norm.bias, EPS)
    torch.testing.assert_close(got, expected)


def test_gradients_of_modes_of_channels() -> None:
    x, weight, bias = (randn(*s, seed=i, dtype=torch.float64) for i, s in enumerate(((3, 4, 3), (4,), (4,))))
    gate = (randn(2, seed=5, dtype=torch.float64), randn(2, seed=6, dtype=torch.float64))
    inputs = tuple(t.requires_grad_() for t in (x, *gate, weight, bias))
    assert torch.autograd.gradcheck(lambda *t: normalise_by_channel_modes(*t, 1e-2), inputs)


def test_fresh_modes_of_channels_are_near_uniform_and_learn() -> None:
    x = 50 * randn(8, 4, 5, 3) + 300
    layer = ChannelModes.from_running(x.mean((0, 2, 3)), x.var((0, 2, 3)), 2)
    expected = F.group_norm(x, 1)
    y = layer.normalise(x, None, None, EPS)
    assert (y - expected).norm() / expected.norm() < 0.05
    (y * randn(*y.shape, seed=2)).sum().backward()
    assert layer.gate.weight.grad is not None
    assert layer.gate.weight.grad.abs().max() > 1e-6


@pytest.mark.parametrize("rewrite", ["mode", "mode-group"])
def test_another_number_of_modes_needs_the_original(rewrite: str) -> None:
    model = convert(small_resnet(), rewrite, modes=3)
    with pytest.raises(SurgeonError, match="has 3 modes, which cannot become 2: convert the original network"):
        convert(model, rewrite, modes=2)
    kept = convert(model, rewrite, modes=3).state_dict()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model.state_dict().items())
