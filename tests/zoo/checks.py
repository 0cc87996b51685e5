"""Converts one real architecture and checks all that issue-free surgery promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from torch import Tensor, nn

import surgeon
from surgeon.layers.running import evaluate_once
from surgeon.layers.surgical import surgical_layers
from surgeon.models.origin import ModelSource, Origin
from surgeon.models.sources import build, example_inputs, timm_preprocessing
from surgeon.surgery import adapters, parity

SMALL = 128


def source_of(name: str) -> ModelSource:
    library, _, architecture = name.rpartition(":")
    return ModelSource(library="torchvision" if library else "timm", architecture=architecture)


def has_batch_norm(name: str) -> bool:
    try:
        with torch.device("meta"):
            model = build(source_of(name))
    except NotImplementedError:  # computes with tensors while it is built
        model = build(source_of(name))
    return bool(adapters.batch_norm_layers(model))


def build_small(source: ModelSource) -> nn.Module:
    """The network; detectors shrink their images so that one evaluation takes seconds."""
    model = build(source)
    if isinstance(getattr(model, "transform", None), nn.Module):
        model.transform.min_size, model.transform.max_size = (SMALL,), SMALL
        if hasattr(model.transform, "fixed_size"):
            model.transform.fixed_size = None
    return model


def randomise_norms(model: nn.Module) -> None:
    """Make every part of a norm layer matter: a dropped activation or bias must show."""
    generator = torch.Generator().manual_seed(1)
    ranges = {
        "weight": (0.6, 1.2),
        "bias": (-0.4, 0.4),
        "running_mean": (-0.4, 0.4),
        "running_var": (0.6, 1.6),
    }
    for layer in adapters.batch_norm_layers(model):
        for name, (low, high) in ranges.items():
            value = getattr(layer.module, name, None)
            if isinstance(value, Tensor):
                value.data.copy_(torch.rand(value.shape, generator=generator) * (high - low) + low)


def inputs_for(source: ModelSource, model: nn.Module) -> tuple[Any, ...]:
    if source.library == "torchvision":
        inputs = example_inputs(Origin(source=source), examples=1)
        assert inputs is not None
        if isinstance(inputs[0], Tensor) and inputs[0].dim() == 4 and "raft" not in source.architecture:
            return (inputs[0][..., :SMALL, :SMALL],)
        if isinstance(inputs[0], Tensor) and inputs[0].dim() == 5 and source.architecture != "s3d":
            return (inputs[0][:, :, :8, :64, :64],)
        return inputs
    config = model.pretrained_cfg
    preprocessing = timm_preprocessing(config)
    if not config.get("fixed_input_size"):
        smaller = tuple(min(SMALL, side) for side in preprocessing.input_size[1:])
        preprocessing = preprocessing.model_copy(update={"input_size": (preprocessing.input_size[0], *smaller)})
    inputs = example_inputs(Origin(source=source, preprocessing=preprocessing), examples=1)
    assert inputs is not None
    return inputs


def outputs_of(model: nn.Module, inputs: tuple[Any, ...]) -> list[Tensor]:
    outputs = evaluate_once(model, inputs)
    if isinstance(inputs[0], list):  # a detector may find nothing: look at its features too
        outputs += evaluate_once(model.backbone, (torch.stack(inputs[0]),))
    return outputs


def check_architecture(name: str, folder: Path) -> None:
    source = source_of(name)
    model = build_small(source)
    randomise_norms(model)
    names = list(model.state_dict())
    layers = adapters.batch_norm_layers(model)
    inputs = inputs_for(source, model)
    try:
        original = outputs_of(model, inputs)
    except (RuntimeError, AssertionError):  # too small for this network
        inputs = example_inputs(Origin(source=source, preprocessing=_own_size(model)), examples=1)
        original = outputs_of(model, inputs)
    model.origin = Origin(source=source)

    converted = surgeon.convert(model, "example-weighted", inplace=True)
    assert len(surgical_layers(converted)) == len(layers)
    assert list(converted.state_dict()) == names
    assert parity.relative_difference(outputs_of(converted, inputs), original) <= 1e-5

    surgeon.convert(converted, "example-weighted", alpha=0.1, inplace=True)
    weighted = outputs_of(converted, inputs)
    assert all(torch.isfinite(t).all() for t in weighted)
    assert parity.relative_difference(weighted, original) > 0

    surgeon.save(converted, folder)
    del model, converted
    loaded = surgeon.load(folder, build_small(source))
    again = outputs_of(loaded, inputs)
    assert len(again) == len(weighted)
    assert all(torch.equal(a, b) for a, b in zip(again, weighted, strict=True))


def _own_size(model: nn.Module) -> Any:
    return timm_preprocessing(model.pretrained_cfg) if hasattr(model, "pretrained_cfg") else None


def all_names() -> list[str]:
    return [*timm.list_models(), *(f"torchvision:{name}" for name in torchvision.models.list_models())]
