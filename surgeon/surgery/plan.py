"""From what the user asks for to an explicit list: layer name -> rewrites with their options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.core.registry import Registry
from surgeon.core.specs import Options, parse_spec
from surgeon.inserts import PREFIX, Effect, Insert, aliases, inserts
from surgeon.norms import NormVariant, norms, norms_with
from surgeon.surgery.selectors import select

if TYPE_CHECKING:
    from torch import nn

    from surgeon.surgery.adapters import NormLayer

T = TypeVar("T")


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RewriteRequest(Frozen):
    """One rewrite as asked for: `name[@SELECTOR][:key=value,...]`."""

    name: str
    options: dict[str, Any] = {}
    selector: str | None = None

    @classmethod
    def parse(cls, text: str) -> RewriteRequest:
        head, options = parse_spec(text)
        name, _, selector = head.partition("@")
        if not name:
            raise SurgeonError(f"The rewrite {text!r} has no name.", "Write name or name:key=value,key=value.")
        return cls(name=name.strip(), options=options, selector=selector or None)


def _installed(registry: Registry[T], name: str) -> T:
    """What a plan names, which somebody else's surgeon has known."""
    if name not in registry:
        raise SurgeonError(
            f"The {registry.kind} {name!r} of this network is not installed here.",
            "Install the package that adds it, or a newer surgeon; `surgeon doctor` lists the packages it has found.",
        )
    return registry[name]


class Rewrite(Frozen):
    """One rewrite of one layer, with every option spelled out."""

    name: str
    version: int
    options: dict[str, Any]

    def variant(self) -> NormVariant | Insert:
        return _installed(norms, self.name)

    def config(self) -> Options:
        variant = self.variant()
        if self.version > variant.version:
            raise SurgeonError(
                f"{self.name!r} has version {self.version}, this surgeon supports up to {variant.version}.",
                "Update surgeon.",
            )
        return variant.configure(self.options)


class Operation(Frozen):
    """What happens to one layer."""

    layer: str
    source: str
    rewrites: tuple[Rewrite, ...]


class Unit(Rewrite):
    """One insert, with every option spelled out."""

    def variant(self) -> Insert:
        return _installed(inserts, self.name)


class Place(StrEnum):
    """Where at a module a unit stands."""

    INPUT = "input"
    OUTPUT = "output"
    ADDITION = "addition"


class Insertion(Frozen):
    """One unit put into one place: before or after a module, or after the residual addition in it."""

    site: str
    place: Place
    channels: int | None = None
    unit: Unit

    @property
    def attribute(self) -> str:
        """The name of the unit within the module."""
        return f"{PREFIX}{self.unit.name.replace('-', '_')}_{self.place}"

    @property
    def effect(self) -> Effect:
        return self.unit.variant().effect(self.unit.config())

    @property
    def where(self) -> str:
        module = self.site or "the network"
        return {
            Place.INPUT: f"before {module}",
            Place.OUTPUT: f"after {module}",
            Place.ADDITION: f"after the addition in {module}",
        }[self.place]


class ResolvedPlan(Frozen):
    """Every layer that is rewritten, by name, and every unit; nothing is left to be resolved."""

    operations: tuple[Operation, ...]
    insertions: tuple[Insertion, ...] = ()

    def __len__(self) -> int:
        return len(self.operations)

    def check_installed(self) -> None:
        """Refuse a plan that names what only somebody else's surgeon has."""
        for operation in self.operations:
            for rewrite in operation.rewrites:
                rewrite.variant()
        for insertion in self.insertions:
            insertion.unit.variant()

    def merged_with(self, later: ResolvedPlan) -> ResolvedPlan:
        """This plan followed by a later one on the same network (which repeats what it keeps)."""
        replaced = {operation.layer: operation for operation in later.operations}
        kept = [replaced.pop(operation.layer, operation) for operation in self.operations]
        return ResolvedPlan(operations=(*kept, *replaced.values()), insertions=(*self.insertions, *later.insertions))

    def has_identity(self) -> bool:
        """Whether there are settings at which a freshly converted network must equal the original."""
        return all(norms[r.name].identity is not None for operation in self.operations for r in operation.rewrites)

    def trains_away(self) -> list[str]:
        """The rewrites with parameters that training moves away from the original network."""
        names = (r.name for operation in self.operations for r in operation.rewrites)
        return [name for name in dict.fromkeys(names) if norms[name].trains_away]

    def without(self, rewrite: str) -> ResolvedPlan:
        """The plan without a rewrite, and without the layers that had no other."""
        left = []
        for operation in self.operations:
            rewrites = tuple(r for r in operation.rewrites if r.name != rewrite)
            if rewrites:
                left.append(operation.model_copy(update={"rewrites": rewrites}))
        return ResolvedPlan(operations=tuple(left), insertions=self.insertions)

    def summary(self) -> str:
        """The rewrites by name and options, each once, e.g. `ghost:size=16 + example-weighted:alpha=0.05`."""
        texts: dict[str, dict[str, None]] = {}
        rewrites = [rewrite for operation in self.operations for rewrite in operation.rewrites]
        for rewrite in (*rewrites, *(insertion.unit for insertion in self.insertions)):
            changed = rewrite.config().model_dump(exclude_defaults=True, mode="json")
            pairs = (f"{k}={v if not isinstance(v, list) else 'per channel'}" for k, v in changed.items())
            texts.setdefault(rewrite.name, {})[",".join(pairs)] = None
        return " + ".join(
            name + (f":{next(iter(options))}" if len(options) == 1 and next(iter(options)) else "")
            + (" (per layer)" if len(options) > 1 else "")
            for name, options in texts.items()
        )  # fmt: skip


def inserts_among(rewrites: Sequence[str]) -> tuple[list[RewriteRequest], list[RewriteRequest]]:
    """Requests for rewrites, and those for inserts that go by the name of a rewrite, with what it stands for."""
    requests = [RewriteRequest.parse(text) for text in rewrites]
    known = aliases()
    units = []
    for request in requests:
        if request.name in known:
            insert = known[request.name]
            options = {**insert.aliases[request.name], **request.options}
            units.append(request.model_copy(update={"name": insert.name, "options": options}))
    return [request for request in requests if request.name not in known], units


def check_requests(rewrites: Sequence[str], units: Sequence[str]) -> None:
    """Refuse unknown names and options, before anything is loaded."""
    requests, aliased = inserts_among(rewrites)
    for request in requests:
        if request.name in inserts:
            raise SurgeonError(f"{request.name!r} is an insert.", f"Write --insert {request.name}.")
        norms[request.name].configure(request.options)
    for request in (*aliased, *map(RewriteRequest.parse, units)):
        if request.name in norms:
            raise SurgeonError(f"{request.name!r} is a rewrite of norm layers.", f"Write --bn {request.name}.")
        inserts[request.name].configure(request.options)


def resolve(
    model: nn.Module,
    rewrites: Sequence[RewriteRequest],
    units: Sequence[RewriteRequest],
    layers: str | None = None,
    inputs: tuple[Any, ...] | None = None,
) -> ResolvedPlan:
    """Decide what happens to each layer and where units go, or say why that cannot be."""
    if not units:
        return resolve_plan(model, rewrites, layers)
    from surgeon.surgery.sites import resolve_insertions

    if layers is not None and not rewrites:
        raise SurgeonError("--layers selects norm layers to rewrite, and no rewrite was asked for.", "Write NAME@GLOB.")
    operations = resolve_plan(model, rewrites, layers).operations if rewrites else ()
    return ResolvedPlan(operations=operations, insertions=resolve_insertions(model, units, inputs))


def resolve_plan(model: nn.Module, requests: Sequence[RewriteRequest], layers: str | None = None) -> ResolvedPlan:
    """Decide for each layer what happens to it, or say why that cannot be."""
    if not requests:
        raise SurgeonError("No rewrite was asked for.", f"Choose one (--bn): {listing(norms, 'or')}.")
    for request in requests:
        norms[request.name]
    candidates = _candidates(model, requests)
    names = [layer.name for layer in candidates]
    selected = set(names) if layers is None else set(select(names, layers))
    wanted: dict[str, dict[str, dict[str, Any]]] = {}
    for request in requests:
        matches = names if request.selector is None else select(names, request.selector)
        matches = [name for name in matches if name in selected]
        for name, options in _options_per_layer(request, matches).items():
            wanted.setdefault(name, {})[request.name] = options
    if not wanted:
        raise SurgeonError("No layer is left to rewrite.", "The @ selector and --layers have no layer in common.")
    objections: list[str] = []
    operations = [_operation(layer, wanted[layer.name], objections) for layer in candidates if layer.name in wanted]
    if objections:
        more = f" (and {count(len(objections) - 1, 'other layer')} likewise)" if len(objections) > 1 else ""
        raise SurgeonError(f"Cannot rewrite: {objections[0]}{more}.")
    return ResolvedPlan(operations=tuple(operations))


def _candidates(model: nn.Module, requests: Sequence[RewriteRequest]) -> list[NormLayer]:
    from surgeon.surgery import adapters
    from surgeon.surgery.references import about_unregistered

    batch_norms = adapters.batch_norm_layers(model)
    if batch_norms:
        return batch_norms
    group_norms = adapters.group_norm_layers(model)
    possible = norms_with(lambda config: config.takes_group_norm)
    if group_norms and all(request.name in possible for request in requests):
        return group_norms
    if hidden := about_unregistered(model):
        raise SurgeonError(
            f"This network has no BatchNorm layer that can be rewritten. {hidden}.", "Register its layers as parts."
        )
    kinds: dict[str, int] = {}
    for layer in adapters.norm_layers(model):
        kinds[layer.kind] = kinds.get(layer.kind, 0) + 1
    found = listing(f"{number} {kind}" for kind, number in sorted(kinds.items(), key=lambda item: -item[1]))
    raise SurgeonError(
        "This network has no BatchNorm layer to rewrite; "
        + (f"it has {found}." if found else "it has no normalisation layers at all."),
        f"Its GroupNorm layers can take {listing(_unchanging(group_norms[0], possible), 'or')}." if group_norms else "",
    )


def _unchanging(layer: NormLayer, names: Sequence[str]) -> Iterator[str]:
    """Specs of rewrites, each at the setting at which this layer stays what it is."""
    from surgeon.surgery import adapters

    norm = adapters.to_surgical(layer)
    for name in names:
        identity = norms[name].identity
        settings = {} if identity is None else identity(norm)
        values = (f"{key}={f'{value:g}' if isinstance(value, float) else value}" for key, value in settings.items())
        yield f"{name}:{','.join(values)}".rstrip(":")


def _operation(layer: NormLayer, wanted: Mapping[str, Mapping[str, Any]], objections: list[str]) -> Operation:
    from surgeon.surgery import adapters

    norm = adapters.to_surgical(layer)
    options = {name: config.model_dump(mode="json") for name, config in norm.rewrites.items()} | dict(wanted)
    configs = {name: norms[name].configure(values) for name, values in options.items()}
    _refuse_conflicts(configs)
    for name, config in configs.items():
        if objection := norms[name].objection(norm, config):
            objections.append(f"{layer.name or 'the layer'} {objection}")
            break
    rewrites = tuple(
        Rewrite(name=name, version=norms[name].version, options=config.model_dump(mode="json"))
        for name, config in configs.items()
    )
    return Operation(layer=layer.name, source=layer.kind, rewrites=rewrites)


def _refuse_conflicts(configs: Iterable[str]) -> None:
    owners: dict[str, str] = {}
    for name in configs:
        for phase in norms[name].changes:
            if phase in owners:
                raise SurgeonError(
                    f"{owners[phase]!r} and {name!r} both change {phase}; a layer can take only one of them.",
                    "Drop one, or give them different layers: --bn 'name@layer4.*'.",
                )
            owners[phase] = name


def _options_per_layer(request: RewriteRequest, layers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Spread options that were given per layer: a mapping from selectors, or one value per layer."""
    spread = {name: dict(request.options) for name in layers}
    for key, value in request.options.items():
        if isinstance(value, Mapping):
            for name in layers:
                del spread[name][key]
            for selector, layer_value in value.items():
                for name in set(select(list(layers), selector)):
                    spread[name][key] = layer_value
        elif isinstance(value, list):
            if len(value) != len(layers):
                raise SurgeonError(
                    f"{key} lists {count(len(value), 'value')}, but {count(len(layers), 'layer')} are rewritten.",
                    "Give one per layer in the order of `surgeon inspect`, or a mapping from layer globs.",
                )
            for name, layer_value in zip(layers, value, strict=True):
                spread[name][key] = layer_value
    return spread
