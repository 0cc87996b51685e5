"""A diverse sample of real architectures that covers every kind of layer; `make test-all` runs them all."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import timm
import torch
from timm.layers import convert_sync_batchnorm, freeze_batch_norm_2d
from torch import nn

import surgeon
from surgeon.layers.running import evaluate_once
from surgeon.surgery import adapters, parity
from tests.zoo.checks import build_small, check_architecture, inputs_for, randomise_norms, source_of

SAMPLE = [
    "resnet18",  # plain BatchNorm2d
    "resnetv2_50",  # pre-activation
    "densenet121",  # BatchNormAct2d before the convolution
    "efficientnet_b0",  # SiLU
    "tf_efficientnet_lite0",  # ReLU6
    "mobilenetv3_small_050",  # Hardswish
    "mobileone_s0",  # BatchNorm as an identity branch
    "regnety_002",
    "cspdarknet53",  # LeakyReLU
    "inception_v3",
    "fastvit_t8",
    "levit_128s",  # BatchNorm1d on flattened tokens
    "efficientvit_m0",  # BatchNorm1d in the head
    "xcit_nano_12_p16_224",  # beside LayerNorm
    "torchvision:mnasnet0_5",  # reads versions from the state dict
    "torchvision:googlenet",
    "torchvision:lraspp_mobilenet_v3_large",  # segmentation: a dict of outputs
    "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn",  # detection: lists of dicts
    "torchvision:r3d_18",  # BatchNorm3d
]


RECALIBRATED = [
    "resnet18",
    "tf_efficientnet_lite0",
    "mobilenetv3_small_050",
    "levit_128s",
    "efficientvit_m0",
    "torchvision:lraspp_mobilenet_v3_large",
    "torchvision:r3d_18",
]


@pytest.mark.parametrize("name", SAMPLE)
def test_architecture(name: str, tmp_path: Path) -> None:
    check_architecture(name, tmp_path / "checkpoint")


@pytest.mark.parametrize("name", RECALIBRATED)
def test_recalibrated_statistics_are_those_of_what_each_layer_then_gets(name: str) -> None:
    """With all images in one batch and a prior of 0, the estimate is a fixed point of evaluation."""
    source = source_of(name)
    model = build_small(source).eval()
    randomise_norms(model)
    image = inputs_for(source, model)[0]
    images = torch.randn(4, *image.shape[1:], generator=torch.Generator().manual_seed(2))
    untouched = {key: value.clone() for key, value in model.state_dict().items()}
    surgeon.recalibrate(model, [images], prior=math.inf)
    assert all(torch.equal(value, untouched[key]) for key, value in model.state_dict().items())

    surgeon.recalibrate(model, [images], prior=0)
    distances: dict[str, float] = {}
    for layer in adapters.batch_norm_layers(model):
        layer.module.register_forward_pre_hook(
            lambda module, inputs, name=layer.name: distances.update({name: _distance(module, inputs[0])})
        )
    evaluate_once(model, (images,))
    assert distances
    assert max(distances.values()) < 1e-3, distances


def _distance(layer: nn.Module, x: torch.Tensor) -> float:
    """Between the stored statistics of a layer and those of its input, in standard deviations."""
    values = x.double().transpose(0, 1).flatten(1)
    mean, var = values.mean(1), values.var(1, correction=0)
    spread = (var + 1e-5).sqrt()
    off = (layer.running_mean - mean).abs() / spread, ((layer.running_var + 1e-5).sqrt() / spread - 1).abs()
    return float(torch.cat(off).max())


def _frozen(model: nn.Module) -> nn.Module:
    return freeze_batch_norm_2d(model)


@pytest.mark.parametrize("change", [convert_sync_batchnorm, _frozen], ids=["synchronised", "frozen"])
@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0"])
def test_changed_layers(name: str, change: object) -> None:
    model = timm.create_model(name).eval()
    randomise_norms(model)
    model = change(model).eval()  # type: ignore[operator]
    kinds = {layer.kind for layer in adapters.batch_norm_layers(model)}
    assert kinds <= {"SyncBatchNorm", "SyncBatchNormAct", "FrozenBatchNorm2d", "FrozenBatchNormAct2d"}
    image = torch.randn(2, 3, 64, 64)
    original = evaluate_once(model, (image,))
    converted = surgeon.convert(model, "example-weighted")
    assert parity.relative_difference(evaluate_once(converted, (image,)), original) == 0
    weighted = surgeon.convert(model, "example-weighted", alpha=0.1)
    assert parity.relative_difference(evaluate_once(weighted, (image,)), original) > 1e-4
