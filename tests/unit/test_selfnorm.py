"""SelfNorm: a fresh unit is the identity and learns; the published form is what it is."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.fx
from torch import Tensor, nn

from surgeon.inserts.selfnorm.layer import Form, SelfNorm
from tests.helpers import randn
from tests.reference import inserts

SIDES = pytest.mark.parametrize("two_sided", [False, True], ids=["one-sided", "two-sided"])


def features(*shape: int, seed: int = 0) -> Tensor:
    """As a ResNet's: after a ReLU, channels of different size."""
    return torch.relu(randn(*shape, seed=seed) * torch.linspace(0.1, 4, shape[1]).reshape(-1, *[1] * (len(shape) - 2)))


def unit(two_sided: bool = False, form: Form = "residual", channels: int = 6) -> SelfNorm:
    torch.manual_seed(0)
    return SelfNorm(channels, two_sided, form)


@SIDES
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(5, 6, 7, 3), (5, 6, 9), (5, 6, 2, 3, 4)], ids=str)
def test_a_fresh_unit_is_the_identity(two_sided: bool, training: bool, shape: tuple[int, ...]) -> None:
    x = features(*shape)
    assert torch.equal(unit(two_sided).train(training)(x), x)


@SIDES
def test_the_published_form_is_not(two_sided: bool) -> None:
    x = features(5, 6, 7, 3)
    y = unit(two_sided, "published").eval()(x)
    assert (y - x).norm() / x.norm() > 0.2


def gradients(layer: nn.Module, x: Tensor, target: Tensor) -> dict[str, float]:
    layer.zero_grad()
    (layer(x) - target).square().mean().backward()
    return {name: p.grad.norm().item() for name, p in layer.named_parameters() if p.grad is not None}


@SIDES
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_every_parameter_learns_from_the_second_step_on(two_sided: bool, optimiser: str) -> None:
    layer = unit(two_sided)
    x, target = features(32, 6, 5, 5), features(32, 6, 5, 5, seed=1)
    first = gradients(layer, x, target)
    assert len(first) == (6 if two_sided else 3)
    for name, size in first.items():
        assert size == 0 if "fc" in name else size > 1e-3, name
    if optimiser == "sgd":
        torch.optim.SGD(layer.parameters(), lr=0.1).step()
    else:
        torch.optim.Adam(layer.parameters(), lr=1e-2).step()
    second = gradients(layer, x, target)
    assert min(second.values()) > 1e-4
    # A thousandth of what the published form has would be next to nothing; this is more.
    published = gradients(unit(two_sided, "published"), x, target)
    assert all(second[name] > 1e-3 * published[name] for name in second)


@SIDES
def test_training_moves_every_parameter_and_lowers_the_loss(two_sided: bool) -> None:
    layer = unit(two_sided)
    x = features(32, 6, 5, 5)
    target = x / (1 + x.mean((2, 3), keepdim=True))  # louder channels are to be damped, as a gate can
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = (layer(x) - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert all((p - before[name]).norm() > 1e-3 for name, p in layer.named_parameters())


@SIDES
@pytest.mark.parametrize("form", ["residual", "published"])
@pytest.mark.parametrize("training", [False, True])
def test_the_reference(two_sided: bool, form: Form, training: bool) -> None:
    layer = trained_unit(two_sided, form).train(training)
    exact = copy.deepcopy(layer).double()
    x = features(5, 6, 7, 3)
    expected = inserts.selfnorm(exact, x.double())
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-5)
    for name, buffer in exact.named_buffers():
        torch.testing.assert_close(layer.get_buffer(name).double(), buffer.double(), rtol=1e-5, atol=1e-5)


@SIDES
@pytest.mark.parametrize("form", ["residual", "published"])
@pytest.mark.parametrize("training", [False, True])
def test_gradients(two_sided: bool, form: Form, training: bool) -> None:
    layer = trained_unit(two_sided, form, channels=2).double().train(training)
    x = randn(3, 2, 4, dtype=torch.float64).requires_grad_()
    names, parameters = zip(*layer.named_parameters(), strict=True)

    def run(x: Tensor, *values: Tensor) -> Tensor:
        y: Tensor = torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))
        return y

    assert torch.autograd.gradcheck(run, (x, *parameters))


def trained_unit(two_sided: bool, form: Form = "residual", channels: int = 6) -> SelfNorm:
    layer = unit(two_sided, form, channels)
    for p in layer.parameters():
        nn.init.normal_(p)
    return layer


def plainly(layer: SelfNorm, x: Tensor) -> Tensor:
    """The same by torch's layers and autograd, as torch.compile and others get it."""
    y: Tensor = torch.fx.symbolic_trace(layer)(x)
    return y


@SIDES
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_by_hand_equals_by_autograd(
    two_sided: bool, training: bool, momentum: float | None, memory_format: torch.memory_format
) -> None:
    layer = trained_unit(two_sided).double().train(training)
    for module in layer.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.momentum = momentum
    twin = copy.deepcopy(layer)
    for step in range(3):
        x = (features(5, 6, 7, 3, seed=step).double() + 10).contiguous(memory_format=memory_format)
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, expected = layer(ours), plainly(twin, theirs)
        assert torch.equal(y, expected)
        assert y.grad_fn is not None
        assert "ScaleByMoments" in y.grad_fn.name()
        weights = randn(*y.shape, seed=9)
        (y * weights).sum().backward()
        (expected * weights).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
        assert ours.grad is not None
        assert ours.grad.is_contiguous(memory_format=memory_format)
    for p, q in zip(layer.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    for (name, p), q in zip(layer.named_buffers(), twin.buffers(), strict=True):
        assert torch.equal(p, q), name
    assert layer.g_bn.num_batches_tracked == (3 if training else 0)


@SIDES
def test_without_gradients_nothing_changes(two_sided: bool) -> None:
    layer, x = trained_unit(two_sided).eval(), features(5, 6, 7, 3)
    expected = layer(x)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = layer(x)
        assert torch.equal(y, expected)
    assert torch.equal(x, features(5, 6, 7, 3))


@SIDES
def test_recomputed_in_the_backward_pass(two_sided: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    layer, x = trained_unit(two_sided).eval(), features(5, 6, 7, 3).requires_grad_()
    gradients = []
    for y in (layer(x), checkpoint(layer, x, use_reentrant=False)):
        gradients.append(torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_gates_that_are_other_layers_now_are_called() -> None:
    layer, x = trained_unit(False).eval(), features(5, 6, 7, 3)
    expected = layer(x)
    calls = []

    class Counted(nn.BatchNorm1d):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(x.shape)
            return super().forward(x)

    layer.g_bn.__class__ = Counted
    assert torch.equal(layer(x), expected)
    assert calls == [(5, 6)]


def test_state_names_are_the_published_ones() -> None:
    norm = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    names = {f"{gate}_fc.weight" for gate in "fg"} | {f"{gate}_bn.{name}" for gate in "fg" for name in norm}
    assert set(unit(two_sided=True).state_dict()) == names


@SIDES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cast_layer", [False, True])
def test_half_precision(two_sided: bool, dtype: torch.dtype, cast_layer: bool) -> None:
    layer, x = unit(two_sided, "published").eval(), features(5, 6, 7, 3)
    expected = layer(x)
    y = (layer.to(dtype) if cast_layer else layer)(x.to(dtype))
    assert y.dtype == dtype
    torch.testing.assert_close(y.float(), expected, rtol=0.03, atol=0.03)


@SIDES
def test_memory_format_is_kept(two_sided: bool) -> None:
    x = features(5, 6, 7, 3).contiguous(memory_format=torch.channels_last)
    assert unit(two_sided, "published")(x).is_contiguous(memory_format=torch.channels_last)


@SIDES
def test_silent_channels_and_large_means(two_sided: bool) -> None:
    layer = unit(two_sided, "published")
    x = (torch.zeros(5, 6, 7, 3) + torch.tensor([0.0, 1.0, 1e3, 0.0, -1e3, 1e-3]).reshape(6, 1, 1)).requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="no variance"):
        unit()(randn(5, 6, 1, 1))
    with pytest.raises(RuntimeError, match="6 channels"):
        unit()(randn(5, 1, 4, 4))
    with pytest.raises(ValueError, match="Unknown form 'other'"):
        SelfNorm(6, form="other")  # type: ignore[arg-type]
