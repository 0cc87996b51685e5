"""Where units go: from `site=stem` to the modules of a network, with one forward as proof that they can."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, count, did_you_mean, listing
from surgeon.core.private import children_of
from surgeon.inserts import PREFIX, Insert, InsertConfig, inserts
from surgeon.inserts.base import RESIDUAL
from surgeon.layers.running import evaluate_once
from surgeon.surgery import adapters, parity
from surgeon.surgery.inserting import Probe, put
from surgeon.surgery.plan import Insertion, Place, ResolvedPlan, RewriteRequest, Unit
from surgeon.surgery.residual import original_class, residual_blocks

Site = tuple[str, Place]

_STAGES = [
    re.compile(rf"(?:[A-Za-z_]+\.)*{pattern}")
    for pattern in (
        r"layers?[._]?\d+",
        r"(?:layer1|stages?[._]?\d+)",  # HRNet has layer1, stage2, stage3 and stage4
        r"denseblock\d+",
        r"s\d+",
        r"blocks?[._]?\d+",
        r"levels?[._]?\d+",
    )
]
"""How the modules of a network's stages are called, the first pattern that matches two or more."""


def resolve_insertions(
    model: nn.Module, requests: Sequence[RewriteRequest], inputs: tuple[Any, ...] | None
) -> tuple[Insertion, ...]:
    """Decide where units go, or say why they cannot; with inputs, one evaluation proves it."""
    earlier: ResolvedPlan | None = getattr(model, "surgery", None)
    there = [] if earlier is None else list(earlier.insertions)
    planned: list[Insertion] = []
    for request in requests:
        insert, config = inserts[request.name], inserts[request.name].configure(request.options)
        unit = Unit(name=insert.name, version=insert.version, options=config.model_dump(mode="json"))
        for name, place in _sites(model, insert, config, request.selector):
            insertion = Insertion(site=name, place=place, unit=unit)
            _refuse_second(insert, insertion, [*there, *planned])
            planned.append(insertion)
    inputs = inputs if inputs is not None else known_inputs(model)
    if inputs is not None:
        return _proven(model, planned, inputs)
    for insertion in planned:
        if inserts[insertion.unit.name].learns:
            raise SurgeonError(
                f"The number of channels of {insertion.site!r} is unknown without an input.",
                f'Pass one: surgeon.convert(model, "{insertion.unit.name}", inputs=(images,)).',
            )
    return tuple(planned)


def _refuse_second(insert: Insert, insertion: Insertion, others: Sequence[Insertion]) -> None:
    same = [other for other in others if other.unit.name == insert.name]
    if insert.single and same:
        raise SurgeonError(f"The network already has a {insert.name} unit {same[0].where}, and takes only one.")
    if any((other.site, other.place) == (insertion.site, insertion.place) for other in same):
        raise SurgeonError(f"There is a {insert.name} unit {insertion.where} already.")


def known_inputs(model: nn.Module) -> tuple[Any, ...] | None:
    """Inputs for a network that says where it came from, or what images timm's training gave it."""
    from surgeon.models.sources import example_inputs

    if (origin := getattr(model, "origin", None)) is not None and (inputs := example_inputs(origin)) is not None:
        return inputs
    size = (getattr(model, "pretrained_cfg", None) or {}).get("input_size")
    return None if size is None else (torch.randn(2, *size, generator=torch.Generator().manual_seed(0)),)


# --- finding


def _sites(model: nn.Module, insert: Insert, config: InsertConfig, selector: str | None) -> list[Site]:
    if config.site == RESIDUAL:
        if insert.single:
            raise SurgeonError(f"{insert.name} goes to one site.", "Write site=stem, site=stage1, or a module's name.")
        return [(name, Place.ADDITION) for name in residual_blocks(model, selector)]
    if selector is not None:
        raise SurgeonError(f"{insert.name}@{selector} selects residual additions: it does not go with site=.")
    if config.site == "image":
        return [_inner(model, "", Place.INPUT)]
    if config.site == "stem":
        return [_stem(model)]
    if match := re.fullmatch(r"stage([1-9]\d*)", config.site):
        if config.site in dict(model.named_modules()):
            return [_inner(model, config.site, Place.OUTPUT)]
        return [_inner(model, _stage(model, int(match[1])), Place.OUTPUT)]
    return [_inner(model, name, Place.OUTPUT) for name in _named(model, config.site, insert.single)]


def _named(model: nn.Module, site: str, single: bool) -> list[str]:
    names = [name for name, _ in model.named_modules() if name and PREFIX not in name]
    matches = [name for name in names if name == site] or [name for name in names if fnmatchcase(name, site)]
    if not matches:
        hint = did_you_mean(site, names) or "Write stem, stage1, a module's name as in `surgeon inspect`, or a glob."
        raise SurgeonError(f"The network has no module {site!r}.", hint)
    if single and len(matches) > 1:
        raise SurgeonError(f"{site!r} matches {listing(matches, limit=4)}, but only one site can be taken.")
    return matches


def stages(model: nn.Module) -> list[str]:
    """The modules that are the network's stages, by how they are called; none if that is unknown."""
    names = [name for name, module in model.named_modules() if any(True for _ in module.children())]
    for pattern in _STAGES:
        matches = [name for name in names if pattern.fullmatch(name)]
        if len(matches) > 1:
            depth = min(name.count(".") for name in matches)
            return [name for name in matches if name.count(".") == depth]
    return []


def _stage(model: nn.Module, number: int) -> str:
    found = stages(model)
    if number > len(found):
        has = f"the network has {listing(found)}" if found else "the network has no modules that are called so"
        raise SurgeonError(f"There is no stage {number}: {has}.", "Write site=NAME, a module's name or a glob.")
    return found[number - 1]


def _stem(model: nn.Module) -> Site:
    """Before the first stage; in a network without stages, after the first norm and its activation."""
    if found := stages(model):
        before = _sibling_before(model, found[0])
        return _inner(model, found[0], Place.INPUT) if before is None else _inner(model, before, Place.OUTPUT)
    modules = [(name, module) for name, module in model.named_modules() if PREFIX not in name]
    names = [name for name, _ in modules]
    for layer in adapters.batch_norm_layers(model)[:1]:
        name, module = modules[min(names.index(layer.name) + 1, len(modules) - 1)]
        is_activation = type(module).__module__ in ("torch.nn.modules.activation", "timm.layers.activations")
        return (name if is_activation else layer.name), Place.OUTPUT
    raise SurgeonError("The end of this network's stem is not known.", "Write site=NAME, a module's name.")


def _sibling_before(model: nn.Module, name: str) -> str | None:
    """What comes before a module of a plain sequence."""
    parent, _, own = name.rpartition(".")
    siblings = list(children_of(model.get_submodule(parent)))
    index = siblings.index(own)
    if not _is_plain_sequence(model.get_submodule(parent)) or index == 0:
        return None
    return f"{parent}.{siblings[index - 1]}".lstrip(".")


def _inner(model: nn.Module, name: str, place: Place) -> Site:
    """The innermost module with the same input or output: a sequence would run a unit as one of its steps."""
    module = model.get_submodule(name)
    while _goes_through_children(module) and children_of(module):
        child = list(children_of(module))[0 if place is Place.INPUT else -1]
        name, module = f"{name}.{child}".lstrip("."), getattr(module, child)
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        raise SurgeonError(
            f"A unit cannot be put into {name!r}, a {type(module).__name__} that runs its parts by itself.",
            f"Name one of them, e.g. site={name}.{next(iter(children_of(module)), '')}.",
        )
    return name, place


def _goes_through_children(module: nn.Module) -> bool:
    """A plain sequence, or a stage like RegNet's, which loops over whatever children it has."""
    if _is_plain_sequence(module):
        return True
    try:
        return "self.children()" in inspect.getsource(original_class(module).forward)
    except (OSError, TypeError):
        return False


def _is_plain_sequence(module: nn.Module) -> bool:
    return type(module).forward is nn.Sequential.forward


# --- proving


def _proven(model: nn.Module, planned: Sequence[Insertion], inputs: tuple[Any, ...]) -> tuple[Insertion, ...]:
    """The plan with the channels that one evaluation found at each site."""
    reference = next((p for p in model.parameters() if p.is_floating_point()), None)
    if reference is not None:
        inputs = tuple(_like(value, reference) for value in inputs)
    trial = copy.deepcopy(model)
    probes: list[Probe] = []
    for insertion in planned:
        probes.append(Probe())
        module = trial.get_submodule(insertion.site)
        module.register_forward_pre_hook(probes[-1].count)
        put(module, insertion, probes[-1])
    try:
        after = evaluate_once(trial, inputs)
    except Exception as error:
        raise SurgeonError(
            f"The network cannot take these units: {(str(error) or repr(error)).splitlines()[0]}",
            "Say where they go with site=NAME, a module's name or a glob.",
        ) from error
    difference = parity.relative_difference(after, evaluate_once(model, inputs))
    if difference > parity.TOLERANCE:
        raise SurgeonError(
            f"The code of this network's blocks was read wrongly: its outputs move by {difference:.2g}.",
            "Say where units go with site=NAME. This is a bug in surgeon: please report it with the model's name.",
        )
    image = any(isinstance(value, Tensor) and value.dim() == 4 for value in inputs)
    return tuple(_checked(trial, *pair, image) for pair in zip(planned, probes, strict=True))


def _like(value: Any, reference: Tensor) -> Any:
    """On the device of the weights, and of their type unless it counts something, as the numbers of words do."""
    if not isinstance(value, Tensor):
        return value
    counts = value.dtype in (torch.int32, torch.int64, torch.bool)
    return value.to(reference.device, value.dtype if counts else reference.dtype)


def _checked(model: nn.Module, insertion: Insertion, probe: Probe, image: bool) -> Insertion:
    for objection in _objections(model.get_submodule(insertion.site), insertion, probe, image):
        raise SurgeonError(
            f"A {insertion.unit.name} unit cannot work {insertion.where}: it {objection}.",
            "Choose with site=NAME" + (", or NAME@GLOB." if insertion.place is Place.ADDITION else "."),
        )
    shape = probe.shapes[0]
    assert shape is not None
    return insertion.model_copy(update={"channels": shape[1]})


def _objections(module: nn.Module, insertion: Insertion, probe: Probe, image: bool) -> Iterator[str]:
    insert, config = inserts[insertion.unit.name], insertion.unit.config()
    if not probe.shapes:
        yield "is not called in evaluation"
    elif len(probe.shapes) != probe.calls:
        yield "would also be run as one of the module's parts"
    if insert.single and len(probe.shapes) > 1:
        yield f"is called {count(len(probe.shapes), 'time')} in one forward pass"
    for shape in probe.shapes:
        if shape is None or len(shape) < 2:
            yield "does not return a feature tensor"
        elif _channels_come_last(module, shape, image or insertion.place is Place.ADDITION):
            yield f"has features of shape {shape}, whose second dimension is not the channels"
        elif objection := insert.objection(shape, config):
            yield objection


def _channels_come_last(module: nn.Module, shape: tuple[int, ...], sequences_are_tokens: bool) -> bool:
    """Tokens (N, T, C), as networks make of images, or images (N, H, W, C): a norm or linear map of its own says so."""
    if len(shape) == 3 and sequences_are_tokens:
        return True
    sizes = set(_sizes_of_last_dimensions(module))
    return len(shape) > 2 and shape[1] not in sizes and shape[-1] in sizes


def _sizes_of_last_dimensions(module: nn.Module) -> Iterator[int]:
    for part in module.modules():
        if isinstance(part, nn.LayerNorm | nn.RMSNorm):
            yield part.normalized_shape[-1]
        elif isinstance(part, nn.Linear):
            yield from (part.in_features, part.out_features)
