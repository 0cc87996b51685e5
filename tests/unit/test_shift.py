"""Whether images are shifted: distances as the formula gives them, noise as the sampling of images makes it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.surgery.apply import convert
from surgeon.surgery.shift import SPLITS, Verdict, measure_shift
from tests.helpers import SMALL_RESNET_NORMS, Snapshot, randn, small_images, small_resnet


def known_layer(mean: Tensor, var: Tensor, eps: float = 1e-5) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(len(mean), eps=eps).eval()
    layer.running_mean.copy_(mean)
    layer.running_var.copy_(var)
    return layer


def images_of(count: int, channels: int = 5, seed: int = 0, between: float = 0.3) -> Tensor:
    """Mean 0 and variance 1 + between^2; every image has a level of its own, as real ones do."""
    levels = randn(count, channels, 1, 1, seed=seed + 1000)
    return randn(count, channels, 6, 6, seed=seed) + between * levels


def truth(channels: int = 5, between: float = 0.3) -> nn.BatchNorm2d:
    return known_layer(torch.zeros(channels), torch.full((channels,), 1 + between**2))


def reference(x: Tensor, mean: Tensor, var: Tensor, eps: float) -> float:
    """Root mean square over channels of sqrt(d^2 + log(r)^2 / 2), in float64."""
    x, mean, var = (t.double().numpy() for t in (x, mean, var))
    d = (x.mean((0, 2, 3)) - mean) / np.sqrt(var + eps)
    log_ratio = np.log((x.var((0, 2, 3)) + eps) / (var + eps))
    return float(np.sqrt(np.mean(d**2 + log_ratio**2 / 2)))


@pytest.mark.parametrize("sizes", [(30,), (7, 20, 3)])
def test_distances_are_those_of_the_formula(sizes: tuple[int, ...]) -> None:
    mean, var, eps = torch.tensor([0.5, -1.0, 3.0]), torch.tensor([0.5, 2.0, 1e-6]), 1e-3
    layer = known_layer(mean, var, eps)
    x = 3 + 2 * randn(30, 3, 4, 5)
    found = measure_shift(layer, x.split(sizes)).layers[0]
    assert found.distance == pytest.approx(reference(x, mean, var, eps), rel=1e-5)
    shift = (x.double().mean((0, 2, 3)) - mean) / (var.double() + eps).sqrt()
    assert found.mean_shift == pytest.approx(float(shift.square().mean().sqrt()), rel=1e-5)
    ratio = (x.double().var((0, 2, 3), correction=0) + eps) / (var + eps)
    assert found.variance_ratio == pytest.approx(float(ratio.median()), rel=1e-5)
    assert found.worst_channel == 2
    assert found.channels == 3


def test_noise_is_that_of_drawing_images_not_pixels() -> None:
    layer = truth()
    measured = [measure_shift(layer, [images_of(64, seed=seed)], seed=seed).overall for seed in range(40)]
    root_mean_square = math.sqrt(sum(one.distance**2 for one in measured) / len(measured))
    # Without a shift, all of the distance is noise: what halves say has to be what repeated samples show.
    assert np.mean([one.noise for one in measured]) == pytest.approx(root_mean_square, rel=0.15)
    # Were pixels the unit, each level would count as 36 independent values.
    pixels = math.sqrt((1 + 0.5 * 2) / (64 * 36))
    assert root_mean_square > 1.5 * pixels


def test_false_alarms_are_rare_and_batches_of_one_class_do_not_matter() -> None:
    layer = truth()
    alarms = 0
    for seed in range(60):
        x = images_of(48, seed=seed)
        x = x[x.mean((1, 2, 3)).argsort()]  # alike ones come together, as in data that are sorted by class
        overall = measure_shift(layer, x.split(8), seed=seed).overall
        assert overall.verdict is not Verdict.SHIFTED
        alarms += overall.distance > overall.noise_high
    assert alarms <= 6  # one of 41 is expected


@pytest.mark.parametrize(("scale", "offset"), [(0.4, 0.0), (1.0, 0.8), (2.0, 0.5)])
def test_shifts_are_found(scale: float, offset: float) -> None:
    found = measure_shift(truth(), [scale * images_of(40) + offset])
    assert found.overall.verdict is Verdict.SHIFTED
    assert found.shifted == found.layers
    expected = math.sqrt(offset**2 / (1 + 0.3**2) + math.log(scale**2) ** 2 / 2)
    assert found.overall.low < expected < found.overall.high


def test_the_interval_holds_the_true_distance() -> None:
    offset, held = 0.5, 0
    for seed in range(60):
        found = measure_shift(truth(), [images_of(48, seed=seed) + offset], seed=seed).overall
        held += found.low <= offset / math.sqrt(1.09) <= found.high
    assert held >= 51


def test_a_small_shift_is_called_usual_and_few_images_unclear() -> None:
    assert measure_shift(truth(), [images_of(400) + 0.1]).overall.verdict is Verdict.SLIGHT
    assert measure_shift(truth(), [images_of(8) + 0.25]).overall.verdict is Verdict.UNCLEAR


@pytest.mark.parametrize("rewrite", [None, "ghost", "example-weighted:alpha=0.2", "split"])
def test_every_layer_is_told_and_the_network_is_left_alone(rewrite: str | None) -> None:
    model = small_resnet()
    plain = measure_shift(model, [small_images(9)])
    if rewrite is not None:
        model = convert(model, rewrite)
    model.train()
    before = Snapshot(model)
    found = surgeon.measure_shift(model, [(small_images(9), None)])
    before.assert_unchanged()
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert [layer.name for layer in found.layers] == SMALL_RESNET_NORMS
    assert found.images == 9
    assert found.layers[0].distance == pytest.approx(plain.layers[0].distance)
    squares = [layer.distance**2 for layer in found.layers]
    assert found.overall.distance == pytest.approx(math.sqrt(sum(squares) / len(squares)))


def test_fused_layers_are_compared_by_their_input() -> None:
    x = randn(10, 4, 5, 5)
    plain, fused = measure_shift(nn.BatchNorm2d(4).eval(), [x]), measure_shift(BatchNormAct2d(4).eval(), [x])
    assert plain == fused


def test_images_that_become_several_rows_stay_together() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn = nn.BatchNorm1d(5)

        def forward(self, x: Tensor) -> Tensor:
            return self.bn(x.flatten(2).transpose(1, 2).flatten(0, 1))

    x = images_of(20)
    rows, whole = measure_shift(Tokens().eval(), [x]), measure_shift(nn.BatchNorm2d(5).eval(), [x])
    assert rows.overall.distance == pytest.approx(whole.overall.distance, rel=1e-5)
    assert rows.overall.noise == pytest.approx(whole.overall.noise, rel=1e-5)


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, second, other = (measure_shift(truth(), [images_of(20)], seed=seed) for seed in (1, 1, 2))
    assert first == second
    assert other.overall.distance == first.overall.distance
    assert other.overall.noise != first.overall.noise
    assert SPLITS >= 20


def test_refusals() -> None:
    with pytest.raises(SurgeonError, match="no BatchNorm layer"):
        measure_shift(nn.Sequential(nn.Conv2d(3, 3, 1)), [small_images(10)])
    with pytest.raises(SurgeonError, match="1 image cannot tell"):
        measure_shift(small_resnet(), [small_images(1)])
    with pytest.raises(SurgeonError, match="'bn1' gets NaN"):
        measure_shift(small_resnet(), [torch.full((10, 3, 8, 8), torch.nan)])
