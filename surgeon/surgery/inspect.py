"""What normalisation a network has, and in what state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon.core.private import BatchNorm
from surgeon.core.readable import Readable
from surgeon.layers.running import evaluating, flatten
from surgeon.layers.surgical import SurgicalNorm
from surgeon.models.origin import Preprocessing
from surgeon.surgery import adapters
from surgeon.surgery.gates import GateUsage
from surgeon.surgery.inserting import units_of
from surgeon.surgery.plan import Insertion, ResolvedPlan
from surgeon.surgery.shift import Shift

AFFINE, RUNNING = ("weight", "bias"), ("running_mean", "running_var")
TENSORS = (*AFFINE, *RUNNING)


class LayerReport(BaseModel):
    """One normalisation layer."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: str
    channels: int | None
    eps: float | None
    momentum: float | None
    fused: list[str]
    rewrites: list[str]
    health: list[str]
    norm_free_path: bool | None
    """Whether a path leads from here to the output without another norm (None: not known).

    Only there does weight decay on gamma and beta matter: elsewhere the next norm undoes it.
    """


class UnitReport(BaseModel):
    """One inserted unit."""

    model_config = ConfigDict(frozen=True)

    insert: str
    where: str
    channels: int | None
    parameters: int


class Inspection(Readable, BaseModel):
    """All normalisation layers of a network, with totals, and the units that were inserted."""

    model_config = ConfigDict(frozen=True)

    model: str
    parameters: int
    norm_parameters: int
    kinds: dict[str, int]
    unhealthy: int
    layers: list[LayerReport]
    units: list[UnitReport] = []
    gates: dict[str, GateUsage] = {}
    """How the gates of each layer assigned the images, if images were given."""
    shift: Shift | None = None
    """How far the images are from the stored statistics, if images were given."""
    preprocessing: Preprocessing | None = None
    """The preprocessing that the network expects, if known."""


def inspect_model(model: nn.Module, name: str = "", inputs: tuple[Any, ...] | None = None) -> Inspection:
    """Report on each norm layer: its kind, what is fused into it, its rewrites and its statistics' health.

    Args:
        model: Any network.
        name: What the report calls it.
        inputs: Example inputs. With them the report also says of each layer whether a path without another norm
            leads from it to the output.
    """
    layers = list(adapters.norm_layers(model))
    open_layers = layers_with_norm_free_path(model, [layer.module for layer in layers], inputs)
    reports = [_report(layer, None if open_layers is None else layer.module in open_layers) for layer in layers]
    kinds: dict[str, int] = {}
    for report in reports:
        kinds[report.kind] = kinds.get(report.kind, 0) + 1
    norm_parameters = {id(p): p.numel() for layer in layers for p in layer.module.parameters()}
    return Inspection(
        model=name,
        parameters=sum(p.numel() for p in model.parameters()),
        norm_parameters=sum(norm_parameters.values()),
        kinds=kinds,
        unhealthy=sum(bool(report.health) for report in reports),
        layers=reports,
        units=[_unit_report(insertion, unit) for insertion, unit in units_of(model)],
    )


def _unit_report(insertion: Insertion, unit: nn.Module) -> UnitReport:
    return UnitReport(
        insert=ResolvedPlan(operations=(), insertions=(insertion,)).summary(),
        where=insertion.where,
        channels=insertion.channels,
        parameters=sum(p.numel() for p in unit.parameters()),
    )


def _report(layer: adapters.NormLayer, norm_free_path: bool | None) -> LayerReport:
    module = layer.module
    sizes = (getattr(module, name, None) for name in ("num_features", "num_channels", "weight"))
    size = next((s for s in sizes if s is not None), None)
    rewrites = module.rewrites if isinstance(module, SurgicalNorm) else {}
    eps = module.epsilon if isinstance(module, SurgicalNorm) else getattr(module, "eps", None)
    momentum = getattr(module, "momentum", None)
    return LayerReport(
        name=layer.name,
        kind=layer.kind,
        channels=size.numel() if isinstance(size, Tensor) else size,
        eps=eps if isinstance(eps, float) else None,
        momentum=momentum if isinstance(momentum, float) else None,
        fused=layer.fused,
        rewrites=[f"{name}:{','.join(f'{k}={v}' for k, v in config)}" for name, config in rewrites.items()],
        health=statistics_health(module),
        norm_free_path=norm_free_path,
    )


def statistics_health(module: nn.Module) -> list[str]:
    """What is wrong with a layer's statistics and parameters; empty if nothing is."""
    found = [f"{part}{problem}" for part, tensors in _parts(module) for problem in _problems(tensors)]
    untracked = isinstance(module, BatchNorm | SurgicalNorm) and module.running_var is None
    return [*found, "no running statistics"] if untracked else found


def _parts(module: nn.Module) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """The tensors by which a layer normalises, by name: its own, and those that its rewrites have added."""
    if not isinstance(module, SurgicalNorm):
        yield "", _tensors(module)
        return
    yield "", _tensors(module, AFFINE if module.whole_rule is not None else TENSORS)  # its own statistics lie idle
    for config in module.rewrites.values():
        for label, part in config.parts(module):
            yield label, _tensors(part)


def _tensors(part: nn.Module | Mapping[str, Tensor], names: Iterable[str] = TENSORS) -> dict[str, Tensor]:
    found = {name: part.get(name) if isinstance(part, Mapping) else getattr(part, name, None) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def _problems(tensors: dict[str, Tensor]) -> Iterator[str]:
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            yield f"{name} has {int((~torch.isfinite(value)).sum())} NaN or infinite"
    mean, var = (tensors.get(name) for name in RUNNING)
    if var is None:
        return
    for kind, sick in (("zero", var == 0), ("negative", var < 0)):
        if number := int(sick.sum()):
            yield f"{kind} variance in {number} of {len(var)} channels"
    # Still at their initial 0 and 1 (a counter at 0 alone may only mean an old file format).
    if mean is not None and (mean == 0).all() and (var == 1).all():
        yield "statistics never updated"


def layers_with_norm_free_path(
    model: nn.Module, norms: list[nn.Module], inputs: tuple[Any, ...] | None
) -> set[nn.Module] | None:
    """Norm layers from which some path reaches the output without meeting another norm.

    Read off the autograd graph of one evaluation: walking back from the output and stopping at the
    first norm on every path finds exactly these.
    """
    if inputs is None:
        return None
    ends: dict[Any, nn.Module] = {}

    def note(module: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.grad_fn is not None:
            ends[output.grad_fn] = module

    handles = [norm.register_forward_hook(note) for norm in norms]
    try:
        with evaluating(model), torch.enable_grad():
            wired = tuple(t.clone().requires_grad_() if isinstance(t, Tensor) else t for t in inputs)
            outputs = list(flatten(model(*wired)))
    finally:
        for handle in handles:
            handle.remove()
    return _first_met([t.grad_fn for t in outputs if t.grad_fn is not None], ends)


def _first_met(starts: list[Any], ends: dict[Any, nn.Module]) -> set[nn.Module]:
    found: set[nn.Module] = set()
    seen: set[Any] = set()
    queue = list(starts)
    while queue:
        node = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in ends:
            found.add(ends[node])
        else:
            queue.extend(next_node for next_node, _ in node.next_functions if next_node is not None)
    return found
