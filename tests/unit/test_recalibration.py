"""Statistics from images without labels, against float64 references that are written from the formula."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from timm.layers import FrozenBatchNormAct2d
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn
from torchvision.ops import FrozenBatchNorm2d

import surgeon
from surgeon.checkpoint import open_model
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.layers.surgical import surgical_layers
from surgeon.surgery.branches import mix_branches
from surgeon.surgery.recalibration import reestimate, statistics_of, weight_of
from tests.helpers import SMALL_RESNET_NORMS, Snapshot, randn, small_images, small_resnet

Moments = dict[str, tuple[Tensor, Tensor]]


class Reference(nn.Module):
    """BatchNorm while statistics are estimated: x normalised by (1 - w) * old + w * the batch's own, all in float64.

    With alpha, each example's moments E[x] and E[x^2] are mixed into those at that weight.
    """

    def __init__(self, layer: Any, collected_at: float, alpha: float) -> None:
        super().__init__()
        self.mean, self.var, self.gamma, self.beta = (
            getattr(layer, name).detach().double() for name in ("running_mean", "running_var", "weight", "bias")
        )
        self.eps, self.weight, self.alpha = layer.eps, collected_at, alpha
        self.activation = getattr(layer, "act", nn.Identity())
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        mean = (1 - self.weight) * self.mean + self.weight * x.mean((0, 2, 3))
        var = (1 - self.weight) * self.var + self.weight * x.var((0, 2, 3), correction=0)
        first, second = mean.expand(len(x), -1), (var + mean**2).expand(len(x), -1)
        first = (1 - self.alpha) * first + self.alpha * x.mean((2, 3))
        second = (1 - self.alpha) * second + self.alpha * (x**2).mean((2, 3))
        mean, var = (values[..., None, None] for values in (first, second - first**2))
        gamma, beta = (values[:, None, None] for values in (self.gamma, self.beta))
        return cast("Tensor", self.activation((x - mean) / (var + self.eps).sqrt() * gamma + beta))


def reference(
    model: nn.Module, batches: list[Tensor], prior: float, *, alpha: float = 0.0, collected_at: float | None = None
) -> Moments:
    """(N * old + n * new) / (N + n), where new is E[x] and E[x^2] - E[x]^2 of all values of all batches."""
    model, n = copy.deepcopy(model).double().eval(), sum(map(len, batches))
    weight = n / (prior + n) if collected_at is None else collected_at
    layers: dict[str, Reference] = {}
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.BatchNorm2d | FrozenBatchNorm2d | FrozenBatchNormAct2d):
            layers[name] = Reference(layer, weight, alpha)
            model.set_submodule(name, layers[name])
    with torch.no_grad():
        for batch in batches:
            model(batch.double())
    found: Moments = {}
    for name, layer in layers.items():
        x = torch.cat([seen.transpose(0, 1).flatten(1) for seen in layer.seen], 1)
        mean, square = x.mean(1), (x**2).mean(1)
        old = (layer.mean, layer.var)
        found[name] = cast(
            "tuple[Tensor, Tensor]",
            tuple((prior * o + n * t) / (prior + n) for o, t in zip(old, (mean, square - mean**2), strict=True)),
        )
    return found


def assert_found(model: nn.Module, expected: Moments, names: list[str] = SMALL_RESNET_NORMS) -> None:
    modules = dict(model.named_modules())
    assert list(expected) == names
    for name, (mean, var) in expected.items():
        torch.testing.assert_close(modules[name].running_mean.double(), mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(modules[name].running_var.double(), var, rtol=1e-5, atol=1e-5)


def batches(*sizes: int) -> list[Tensor]:
    return list((2 * small_images(sum(sizes)) + 1).split(list(sizes)))


# The formula ----------------------------------------------------------------------------------------------


def test_nothing_of_the_old_is_left_of_one_batch() -> None:
    """Its mean and biased variance, in every layer."""
    model, (images,) = small_resnet(), batches(9)
    expected = reference(model, [images], 0)
    surgeon.recalibrate(model, [images], prior=0)
    assert_found(model, expected)
    with torch.no_grad():
        x = model.conv1(images).double()
    torch.testing.assert_close(model.bn1.running_mean.double(), x.mean((0, 2, 3)), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.bn1.running_var.double(), x.var((0, 2, 3), correction=0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("prior", [0, 0.5, 7, 64, 1e6])
def test_several_batches(prior: float, memory: torch.memory_format) -> None:
    """The moments of all images together, however they are cut."""
    model, images = small_resnet(), [batch.contiguous(memory_format=memory) for batch in batches(8, 8, 3)]
    expected = reference(model, images, prior)
    found = surgeon.recalibrate(model, images, prior=prior)
    assert_found(model, expected)
    assert (found.images, found.prior, found.weight) == (19, prior, pytest.approx(19 / (19 + prior)))
    assert [layer.values for layer in found.layers] == [19 * 36] * 7


def test_an_infinite_prior_changes_not_a_bit() -> None:
    model = small_resnet().train()
    before = Snapshot(model)
    found = surgeon.recalibrate(model, batches(4, 4), prior=math.inf)
    before.before["attributes"][""]["origin"] = model.origin  # where its history is noted
    before.assert_unchanged()
    assert {layer.mean_shift for layer in found.layers} == {0}
    assert {layer.deviation_ratio for layer in found.layers} == {1}


@pytest.mark.parametrize("prior", [0, 7])
def test_a_second_pass_agrees(prior: float) -> None:
    """With what was stored for its running statistics, the network gives its layers what they were estimated from."""
    original, (images,) = small_resnet(), batches(12)
    model = copy.deepcopy(original)
    surgeon.recalibrate(model, [images], prior=prior)
    weight, seen = 12 / (12 + prior), {}
    for name in SMALL_RESNET_NORMS:
        model.get_submodule(name).register_forward_pre_hook(lambda _, x, name=name: seen.update({name: x[0].double()}))
    with torch.no_grad():
        model(images)
    for name in SMALL_RESNET_NORMS:
        old, new = original.get_submodule(name), model.get_submodule(name)
        mean = (1 - weight) * old.running_mean + weight * seen[name].mean((0, 2, 3))
        var = (1 - weight) * old.running_var + weight * seen[name].var((0, 2, 3), correction=0)
        torch.testing.assert_close(new.running_mean.double(), mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(new.running_var.double(), var, rtol=1e-4, atol=1e-5)


def test_forgetting_twice_is_forgetting_once() -> None:
    model, images = small_resnet(), batches(8, 8)
    surgeon.recalibrate(model, images, prior=0)
    once = statistics_of(model)
    surgeon.recalibrate(model, images, prior=0)
    for name, (mean, var) in statistics_of(model).items():
        assert torch.equal(mean, once[name].mean)
        assert torch.equal(var, once[name].var)


def test_collecting_at_another_weight_than_that_of_storing_is_something_else() -> None:
    """So the tests above would see it, which can destroy a network."""
    model, images = small_resnet(), batches(8, 8)
    right, wrong = (reference(model, images, 7, collected_at=weight) for weight in (None, 1.0))
    assert max(float((right[name][1] - wrong[name][1]).abs().max()) for name in right) > 0.05


def test_how_it_differs_from_update_bn() -> None:
    """That averages the batches' own unbiased variances, so how batches differ from one another is lost."""
    model, images = small_resnet(), [batch + shift for shift, batch in zip((0, 3), batches(8, 8), strict=True)]
    theirs = copy.deepcopy(model)
    update_bn(images, theirs)
    surgeon.recalibrate(model, images, prior=0)
    with torch.no_grad():
        means = torch.stack([model.conv1(batch).double().mean((0, 2, 3)) for batch in images])
    values = 8 * 36
    between = means.var(0, correction=0)
    expected = theirs.bn1.running_var.double() * (values - 1) / values + between
    torch.testing.assert_close(model.bn1.running_var.double(), expected, rtol=1e-5, atol=1e-5)
    assert float((between / expected).max()) > 0.3


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_digits_survive_large_means_and_many_values(memory: torch.memory_format) -> None:
    layer = nn.BatchNorm2d(4).eval()
    x = (randn(2, 4, 300, 300) + 300).contiguous(memory_format=memory)
    surgeon.recalibrate(layer, [x], prior=0)
    torch.testing.assert_close(layer.running_mean.double(), x.double().mean((0, 2, 3)), rtol=1e-6, atol=0)
    torch.testing.assert_close(layer.running_var.double(), x.double().var((0, 2, 3), correction=0), rtol=1e-4, atol=0)


def test_movement_is_told_in_old_standard_deviations() -> None:
    model, images = small_resnet(), batches(8, 8)
    expected, old = reference(model, images, 7), copy.deepcopy(model)
    found = surgeon.recalibrate(model, images, prior=7)
    assert [layer.layer for layer in found.layers] == SMALL_RESNET_NORMS
    for layer in found.layers:
        before, (mean, var) = old.get_submodule(layer.layer), expected[layer.layer]
        old_var = before.running_var.double() + before.eps
        shift = (mean - before.running_mean).abs() / old_var.sqrt()
        assert layer.mean_shift == pytest.approx(float(shift.mean()), rel=1e-4)
        assert layer.largest_shift == pytest.approx(float(shift.max()), rel=1e-4)
        ratio = ((var + before.eps) / old_var).sqrt().log().mean().exp()
        assert layer.deviation_ratio == pytest.approx(float(ratio), rel=1e-4)


# Kinds of layers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewrites", "alpha"),
    [
        (("ghost:size=2",), 0.0),
        (("example-weighted:alpha=0.3",), 0.3),
        (("ghost:size=2", "example-weighted:alpha=0.3"), 0.3),
    ],
)
def test_rewritten_layers(rewrites: tuple[str, ...], alpha: float) -> None:
    """Each example's own statistics keep their weight; groups of training count for nothing."""
    original, images = small_resnet(), batches(8, 3)
    model = surgeon.convert(original, *rewrites)
    surgeon.recalibrate(model, images, prior=7)
    assert_found(model, reference(original, images, 7, alpha=alpha))
    assert {layer.alpha_values for layer in surgical_layers(model).values()} == {alpha}


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("kind", [BatchNormAct2d, FrozenBatchNorm2d, FrozenBatchNormAct2d])
def test_fused_and_frozen_layers(kind: type[nn.Module], converted: bool) -> None:
    original, images = small_resnet(kind), batches(8, 3)
    model = surgeon.convert(original, "example-weighted") if converted else copy.deepcopy(original)
    surgeon.recalibrate(model, images, prior=7)
    assert_found(model, reference(original, images, 7))


def _split() -> tuple[nn.Module, nn.Module, nn.Module]:
    """A split network with unlike branches, and each branch as a plain network."""
    main = small_resnet()
    model, aux = surgeon.convert(main, "split"), copy.deepcopy(main)
    for number, (name, layer) in enumerate(surgical_layers(model).items()):
        assert layer.aux is not None
        plain = aux.get_submodule(name)
        for of in ("weight", "bias", "running_mean", "running_var"):
            values = getattr(plain, of).data
            values.add_(0.3 * randn(*values.shape, seed=number).abs())
            getattr(layer.aux, of).data.copy_(values)
    return model, main, aux


@pytest.mark.parametrize("share", [None, 0.4])
def test_split_networks_by_branch(share: float | None) -> None:
    model, main, aux = _split()
    if share is not None:
        mix_branches(model, share)
    images = batches(8, 3)
    found = surgeon.recalibrate(model, images, prior=7)
    assert len(found.layers) == 14
    assert_found(model, reference(main, images, 7))
    modules = dict(model.named_modules())
    for name, (mean, var) in reference(aux, images, 7).items():
        torch.testing.assert_close(modules[name].aux.running_mean.double(), mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(modules[name].aux.running_var.double(), var, rtol=1e-5, atol=1e-5)


def test_selected_layers() -> None:
    """All others keep theirs, and normalise by them meanwhile."""
    model, images = small_resnet(), batches(8, 3)
    before = copy.deepcopy(model.state_dict())
    found = surgeon.recalibrate(model, images, prior=0, layers="layer2.*")
    assert [layer.layer for layer in found.layers] == ["layer2.0.bn1", "layer2.0.bn2"]
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {f"layer2.0.bn{i}.running_{of}" for i in (1, 2) for of in ("mean", "var")}
    with pytest.raises(SurgeonError, match="layer9"):
        surgeon.recalibrate(model, images, layers="layer9.*")


def test_layers_of_other_shapes() -> None:
    """Flat, in rows, and in volumes; a layer that is called twice counts both."""
    shapes = [(nn.BatchNorm1d, (9, 5)), (nn.BatchNorm1d, (9, 5, 7)), (nn.BatchNorm3d, (9, 5, 2, 3, 2))]
    for kind, shape in shapes:
        layer, x = kind(5).eval(), 2 * randn(*shape) + 1
        surgeon.recalibrate(layer, list(x.split(4)), prior=0)
        values = x.double().transpose(0, 1).flatten(1)
        torch.testing.assert_close(layer.running_mean.double(), values.mean(1), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(layer.running_var.double(), values.var(1, correction=0), rtol=1e-5, atol=1e-5)
    norm, x = nn.BatchNorm1d(5).eval(), randn(9, 5) + 1
    twice = nn.Sequential(norm, norm)
    surgeon.recalibrate(twice, [x], prior=0)
    torch.testing.assert_close(norm.running_mean.double(), x.double().mean(0) / 2, rtol=1e-4, atol=1e-5)


# Loaders --------------------------------------------------------------------------------------------------


def _once(images: list[Tensor]) -> Iterator[Tensor]:
    yield from images


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda images: [(batch, torch.zeros(len(batch))) for batch in images], id="pairs"),
        pytest.param(lambda images: [{"image": batch, "label": None} for batch in images], id="dictionaries"),
        pytest.param(_once, id="a generator"),
        pytest.param(lambda images: [batch.numpy() for batch in images], id="arrays"),
        pytest.param(lambda images: [images[0], images[0][:0], images[1]], id="an empty batch"),
        pytest.param(lambda images: torch.utils.data.DataLoader(torch.cat(images), batch_size=8), id="a DataLoader"),
    ],
)
def test_any_iterable_of_images(given: Any) -> None:
    model, images = small_resnet(), batches(8, 8)
    expected = reference(model, images, 7)
    assert surgeon.recalibrate(model, given(images), prior=7).images == 16
    assert_found(model, expected)


def test_one_tensor_is_one_batch() -> None:
    model, (images,) = small_resnet(), batches(8)
    expected = reference(model, [images], 0)
    surgeon.recalibrate(model, images, prior=0)
    assert_found(model, expected)


class Changing(list[Tensor]):
    """Gives fewer batches the second time."""

    def __iter__(self) -> Iterator[Tensor]:
        yield from [self.pop() for _ in range(1)] if len(self) == 1 else [self[0], self.pop()]


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        ([], "No images"),
        ([torch.zeros(0, 3, 8, 8)], "No images"),
        ([randn(4, 1, 8, 8)], "cannot take a batch of 4x1x8x8"),
        (["images"], "tensor of images"),
        ([{"picture": randn(4, 3, 8, 8)}], "dictionary of picture"),
        (Changing(batches(4, 4)), "8 images were expected, but the loader gave 4"),
        (3, "gives no batches"),
    ],
)
def test_loaders_that_will_not_do(loader: Any, said: str) -> None:
    model = small_resnet()
    before = Snapshot(model)
    with pytest.raises(SurgeonError, match=said) as error:
        surgeon.recalibrate(model, loader)
    assert error.value.exit_code == ExitCode.USAGE
    before.assert_unchanged()


@pytest.mark.parametrize("prior", [-1, math.nan])
def test_priors_that_will_not_do(prior: float) -> None:
    with pytest.raises(SurgeonError, match="prior cannot be"):
        surgeon.recalibrate(small_resnet(), batches(4), prior=prior)


def test_the_weight_needs_a_number_of_images() -> None:
    assert [weight_of(prior, 10) for prior in (0, 10, math.inf)] == [1, 0.5, 0]
    assert [weight_of(prior, None) for prior in (0, math.inf)] == [1, 0]
    with pytest.raises(SurgeonError, match="not known"):
        weight_of(3, None)


# What fails changes nothing -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_activations_that_are_no_numbers(value: float) -> None:
    model, images = small_resnet(), batches(4, 4)
    images[1][2, 0, 3, 3] = value
    before = Snapshot(model)
    with pytest.raises(SurgeonError, match="What reaches bn1 is not finite") as error:
        surgeon.recalibrate(model, images)
    assert error.value.exit_code == ExitCode.FAILED
    before.assert_unchanged()


def test_an_interruption() -> None:
    model = small_resnet()
    before = Snapshot(model)

    def interrupted() -> Iterator[Tensor]:
        yield from batches(4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reestimate(model, interrupted(), prior=0)
    before.assert_unchanged()


def test_one_value_has_no_variance() -> None:
    layer, x = nn.BatchNorm1d(3).eval(), randn(1, 3)
    with pytest.raises(SurgeonError, match="one value per channel"):
        surgeon.recalibrate(layer, [x], prior=0)
    surgeon.recalibrate(layer, [x], prior=3)  # three quarters of the old variance, and nothing of a new one
    torch.testing.assert_close(layer.running_var, torch.full((3,), 0.75))


@pytest.mark.parametrize("norm", [lambda n: nn.GroupNorm(2, n), lambda n: nn.BatchNorm2d(n, track_running_stats=False)])
def test_networks_without_statistics(norm: Any) -> None:
    with pytest.raises(SurgeonError, match="no layer whose running statistics"):
        surgeon.recalibrate(small_resnet(norm), batches(4))


# Entropy, and what is told of it all ----------------------------------------------------------------------


def test_entropy_is_minimised_after_that() -> None:
    model, images = small_resnet(), batches(16, 16)
    expected = reference(model, images, 7)
    before = copy.deepcopy(model.state_dict())
    found = surgeon.recalibrate(model, images, prior=7, tent=True, epochs=2, lr=1e-3)
    assert_found(model, expected)
    assert found.entropy is not None
    assert (found.entropy.epochs, found.entropy.lr, found.entropy.layers) == (2, 1e-3, 7)
    assert found.entropy.after.entropy < found.entropy.before.entropy
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    kinds = ("weight", "bias", "running_mean", "running_var")
    assert changed == {f"{name}.{kind}" for name in SMALL_RESNET_NORMS for kind in kinds}


def test_entropy_that_cannot_be_minimised_leaves_the_statistics_too() -> None:
    model = small_resnet()
    before = Snapshot(model)
    with pytest.raises(SurgeonError, match="0 epochs"):
        surgeon.recalibrate(model, batches(8), tent=True, epochs=0)
    before.assert_unchanged()


def test_what_was_done_is_remembered(tmp_path: Path) -> None:
    model = open_model("digits-resnet8").model
    found = surgeon.recalibrate(model, [randn(16, 1, 8, 8), randn(16, 1, 8, 8, seed=1)], prior=32, tent=True, epochs=1)
    surgeon.save(model, tmp_path / "kept")
    record = json.loads((tmp_path / "kept" / "surgery.json").read_text("utf-8"))
    (step,) = [step for step in record["history"] if step["kind"] == "recalibrated"]
    assert (step["prior"], step["estimated_on"]["number"], step["layers"]) == (32, 32, len(found.layers))
    assert step["entropy"]["epochs"] == found.entropy.epochs
    card = (tmp_path / "kept" / "README.md").read_text("utf-8")
    assert "statistics re-estimated" in card
    assert "ntropy minimisation" in card
    again = surgeon.load(tmp_path / "kept")
    x = randn(3, 1, 8, 8, seed=2)
    with torch.no_grad():
        assert torch.equal(again.eval()(x), model.eval()(x))
