"""Which layers can be rewritten, and how each one's parts are taken over.

An exact-type table: a class that is not in it is never guessed at. timm's BatchNormAct2d, for
one, *is a* BatchNorm2d and also applies dropout and an activation, which a rewrite by isinstance
would lose without any error.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from timm.layers.norm import GroupNorm, GroupNorm1
from timm.layers.norm_act import BatchNormAct2d, FrozenBatchNormAct2d, GroupNormAct, SyncBatchNormAct
from timm.models.levit import LinearNorm
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torchvision.ops.misc import FrozenBatchNorm2d

from surgeon.core.errors import SurgeonError
from surgeon.core.private import BatchNorm, InstanceNorm
from surgeon.inserts import PREFIX
from surgeon.layers.kinds import (
    SurgicalBatchNorm1d,
    SurgicalBatchNorm2d,
    SurgicalBatchNorm3d,
    SurgicalFrozenBatchNorm2d,
    SurgicalGroupNorm,
    SurgicalSyncBatchNorm,
)
from surgeon.layers.rules import GroupStatistics, SynchronisedStatistics
from surgeon.layers.surgical import SurgicalNorm


@dataclass(frozen=True)
class Flavour:
    """What a class of layers becomes, and how it differs from plain BatchNorm."""

    surgical: type[SurgicalNorm]
    synchronised: bool = False
    frozen: bool = False
    grouped: bool = False


FLAVOURS: dict[type[nn.Module], Flavour] = {
    nn.BatchNorm1d: Flavour(SurgicalBatchNorm1d),
    nn.BatchNorm2d: Flavour(SurgicalBatchNorm2d),
    nn.BatchNorm3d: Flavour(SurgicalBatchNorm3d),
    nn.SyncBatchNorm: Flavour(SurgicalSyncBatchNorm, synchronised=True),
    BatchNormAct2d: Flavour(SurgicalBatchNorm2d),
    SyncBatchNormAct: Flavour(SurgicalSyncBatchNorm, synchronised=True),
    FrozenBatchNorm2d: Flavour(SurgicalFrozenBatchNorm2d, frozen=True),
    FrozenBatchNormAct2d: Flavour(SurgicalFrozenBatchNorm2d, frozen=True),
    nn.GroupNorm: Flavour(SurgicalGroupNorm, grouped=True),
    GroupNorm: Flavour(SurgicalGroupNorm, grouped=True),
    GroupNorm1: Flavour(SurgicalGroupNorm, grouped=True),
    GroupNormAct: Flavour(SurgicalGroupNorm, grouped=True),
}


_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)


@dataclass(frozen=True)
class NormLayer:
    """A normalisation layer of a network, under its full name."""

    name: str
    module: nn.Module

    @property
    def kind(self) -> str:
        return self.module.source if isinstance(self.module, SurgicalNorm) else type(self.module).__name__

    @property
    def grouped(self) -> bool:
        if isinstance(self.module, SurgicalNorm):
            return not self.module.source_has_statistics
        flavour = FLAVOURS.get(type(self.module))
        return flavour is not None and flavour.grouped

    @property
    def fused(self) -> list[str]:
        """What the layer does besides normalising, e.g. ['ReLU']."""
        parts = (getattr(self.module, part, None) for part in ("drop", "act"))
        return [type(part).__name__ for part in parts if part is not None and not isinstance(part, nn.Identity)]


def batch_norm_layers(model: nn.Module) -> list[NormLayer]:
    """Every BatchNorm of the network in its own order, rewritten ones and unknown kinds included."""
    return [layer for layer in norm_layers(model) if is_batch_norm(layer.module) and not layer.grouped]


def group_norm_layers(model: nn.Module) -> list[NormLayer]:
    return [layer for layer in norm_layers(model) if layer.grouped]


def norm_layers(model: nn.Module) -> Iterator[NormLayer]:
    """Every normalisation layer of any kind that has no others inside."""
    layers = [module for module in model.modules() if isinstance(module, SurgicalNorm)]
    parts = {part for layer in layers for part in layer.modules() if part is not layer}  # a branch, modes
    for name, module in model.named_modules():
        if module in parts or PREFIX in name:
            continue
        if isinstance(module, SurgicalNorm) or type(module) in FLAVOURS or _looks_like_norm(module):
            yield NormLayer(name, module)


def _looks_like_norm(module: nn.Module) -> bool:
    if is_batch_norm(module):
        return True
    holds_layers = any(m for m in module.children() if any(True for _ in m.parameters()))
    return "norm" in type(module).__name__.lower() and not holds_layers and any(True for _ in module.parameters())


def is_batch_norm(module: nn.Module) -> bool:
    """Whether a module is a BatchNorm of any kind, rewritten or unknown ones included."""
    if isinstance(module, SurgicalNorm | BatchNorm):
        return True
    # Frozen and third-party layers share no base class, but keep these buffers.
    tracks = isinstance(getattr(module, "running_mean", None), Tensor)
    return tracks and not isinstance(module, InstanceNorm)


def to_surgical(layer: NormLayer) -> SurgicalNorm:
    """A layer of ours that behaves like the given one and holds the same parameters and buffers."""
    module = layer.module
    if isinstance(module, SurgicalNorm):
        return module
    _refuse_computed_parameters(layer)
    flavour = FLAVOURS.get(type(module))
    if flavour is None:
        raise SurgeonError(
            f"The layer {layer.name!r} is a {type(module).__name__} ({_source_file(type(module))}), "
            "a BatchNorm subclass that surgeon does not know.",
            "Leave it out with --layers (in Python layers=…), or add it to the table in surgeon/surgery/adapters.py.",
        )
    weight, bias = (getattr(module, name, None) for name in ("weight", "bias"))
    norm = flavour.surgical(
        module.num_channels if flavour.grouped else _channels(module),  # type: ignore[arg-type]
        eps=float(module.eps),  # type: ignore[arg-type]
        momentum=getattr(module, "momentum", None),
        channel_groups=module.num_groups if flavour.grouped else None,  # type: ignore[arg-type]
        frozen=flavour.frozen,
        identity_alpha=1.0 if flavour.grouped else 0.0,
        source=type(module).__name__,
    )
    _adopt(norm, "weight", weight)
    _adopt(norm, "bias", bias)
    if flavour.grouped:
        _start_statistics(norm, weight)
    else:
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            norm.register_buffer(name, getattr(module, name, None))
        norm.track_running_stats = bool(getattr(module, "track_running_stats", True))
    for part in ("drop", "act"):
        if isinstance(child := getattr(module, part, None), nn.Module):
            norm.add_module(part, child)
    if flavour.synchronised:
        norm.training_rule = SynchronisedStatistics()
        norm.process_group = module.process_group
    norm.training = module.training  # its parts keep their own mode
    for hooks in _HOOKS:
        setattr(norm, hooks, getattr(module, hooks))
    reference = norm.running_mean if weight is None else weight
    return norm if reference is None else _on_device_of(norm, reference)


def _refuse_computed_parameters(layer: NormLayer) -> None:
    """Hooks that compute a parameter before each forward (pruning, weight norm) would compute it for the old layer."""
    module = layer.module
    computed = [name for name in ("weight", "bias") if isinstance(vars(module).get(name), Tensor)]
    if parametrize.is_parametrized(module):
        computed = list(cast("nn.ModuleDict", module.parametrizations))
    if computed:
        raise SurgeonError(
            f"The {computed[0]} of the layer {layer.name!r} is computed from other tensors (pruning, parametrization, "
            "weight or spectral norm).",
            "Make it a plain parameter first, e.g. with torch.nn.utils.prune.remove or "
            "torch.nn.utils.parametrize.remove_parametrizations.",
        )


def _channels(module: nn.Module) -> int:
    if hasattr(module, "num_features"):
        return int(module.num_features)  # type: ignore[arg-type]
    return len(module.running_mean)  # type: ignore[arg-type]


def _adopt(norm: SurgicalNorm, name: str, value: Tensor | None) -> None:
    """Keep a parameter a parameter and a (frozen) buffer a buffer."""
    if isinstance(value, nn.Parameter) or value is None:
        norm.register_parameter(name, value)
    else:
        norm.register_buffer(name, value)


def _start_statistics(norm: SurgicalNorm, like: Tensor | None) -> None:
    """GroupNorm brings no running statistics: room for them, to be collected."""
    device = None if like is None else like.device
    norm.momentum = 0.01
    norm.training_rule = GroupStatistics()
    norm.register_buffer("running_mean", torch.zeros(norm.num_features, device=device))
    norm.register_buffer("running_var", torch.ones(norm.num_features, device=device))
    norm.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long, device=device))


def _on_device_of(norm: SurgicalNorm, reference: Tensor) -> SurgicalNorm:
    dtype = torch.float32 if reference.dtype.itemsize < 4 else reference.dtype
    norm.alpha = norm.alpha.to(reference.device, dtype)
    return norm


def _source_file(cls: type) -> str:
    try:
        return inspect.getfile(cls)
    except (TypeError, OSError):
        return f"module {cls.__module__}"


class TokenLinearNorm(LinearNorm):
    """LeViT's linear layer + norm on (examples, tokens, channels), with the examples kept apart.

    The original flattens examples and tokens into one dimension before its BatchNorm1d, so that an
    example's own statistics could not be told from its neighbour's.
    """

    def __init__(self, original: LinearNorm, norm: SurgicalNorm) -> None:
        nn.Module.__init__(self)
        self.linear = original.linear
        self.bn = norm  # type: ignore[assignment]
        norm.input_dimensions = (4,)
        self.training = original.training

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        # (B, T, C) in memory is a channels-last (B, C, T, 1): nothing is copied either way.
        y: Tensor = self.bn(x.transpose(1, 2).unsqueeze(-1))
        return y.squeeze(-1).transpose(1, 2)


def parent_wrapper(parent: nn.Module, norm: SurgicalNorm) -> nn.Module | None:
    """What must stand in for a layer's parent too, where the parent hides which rows are one example."""
    return TokenLinearNorm(parent, norm) if type(parent) is LinearNorm else None
