"""Put a resolved plan into a network."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from typing import Any, cast

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.private import children_of, compiled_from
from surgeon.inserts import inserts
from surgeon.layers.running import evaluate_once
from surgeon.layers.surgical import SurgicalNorm, surgical_layers
from surgeon.models.history import Converted
from surgeon.models.origin import note_on
from surgeon.norms import NormConfig, norms
from surgeon.surgery import adapters, parity
from surgeon.surgery.inserting import carry_over, insert_units
from surgeon.surgery.plan import Operation, ResolvedPlan, inserts_among, resolve
from surgeon.surgery.references import about_unregistered, exchange_references, refusing_replaced_layers


def convert(
    model: nn.Module,
    *rewrites: str,
    layers: str | None = None,
    inputs: tuple[Any, ...] | None = None,
    inplace: bool = False,
    **options: Any,
) -> nn.Module:
    """Rewrite the BatchNorm layers of any network, or insert units, and return it with its plan as `model.surgery`.

    Every rewritten layer is checked against the original at the rewrite's identity setting.

    Args:
        model: Any network; it is left as it is unless `inplace`.
        rewrites: Rewrites and inserts, each written `name` or `name:key=value,key=value`.
        layers: A pattern of the names of the layers to rewrite.
        inputs: Example inputs, which show where units stand, and whether the network calls the rewritten layers;
            for the former a network of timm's, or one that surgeon opened, needs none.
        inplace: Change the given network instead of a copy.
        options: Of a single rewrite or insert, as keywords.

    Examples:
        >>> convert(model, "ghost", size=16)
        >>> convert(model, "ghost:size=16", "example-weighted:alpha=0.05", layers="layer[34].*")
        >>> convert(model, "example-weighted", alpha={"*": 0.02, "layer4.*": 0.3})
        >>> convert(model, "crossnorm", "selfnorm", inputs=(images,))
    """
    if unwrapped(model) is not model:
        raise SurgeonError(
            f"The network is wrapped in {type(model).__name__}, which would not see its new layers.",
            "Convert the network first, and then wrap it.",
        )
    requests, units = inserts_among(rewrites)
    if options:
        if len(rewrites) != 1:
            raise SurgeonError(
                "Options as keywords go with exactly one rewrite.", 'Write them as "name:key=value" instead.'
            )
        requests, units = (
            [request.model_copy(update={"options": {**request.options, **options}}) for request in those]
            for those in (requests, units)
        )
    named = [request for request in requests if request.name in inserts]
    requests = [request for request in requests if request not in named]
    plan = resolve(model, requests, [*units, *named], layers, inputs)
    if plan.operations and (note := about_unregistered(model)):
        warnings.warn(f"{note}.", stacklevel=2)
    converted = apply_plan(model if inplace else copy.deepcopy(model), plan)
    if plan.operations and inputs is not None:
        with refusing_replaced_layers(converted, surgical_layers(converted)):
            evaluate_once(converted, inputs)
    step = Converted(rewrites=plan.summary(), layers=len(plan.operations), units=len(plan.insertions))
    note_on(converted, step)
    return converted


def apply_plan(model: nn.Module, plan: ResolvedPlan) -> nn.Module:
    """Rewrite the planned layers in place, each checked against the layer it replaces."""
    plan.check_installed()
    modules = dict(model.named_modules())
    missing = [operation.layer for operation in plan.operations if operation.layer not in modules]
    if missing:
        raise SurgeonError(f"The plan rewrites {missing[0]!r}, which this network does not have.")
    replacements: dict[nn.Module, nn.Module] = {}
    for operation in plan.operations:
        original = modules[operation.layer]
        norm = adapters.to_surgical(adapters.NormLayer(operation.layer, original))
        if norm is not original:
            _check_layer(original, norm, operation)
            carry_over(original, norm)
            replacements[original] = norm
        install(norm, operation)
        parent = modules.get(operation.layer.rpartition(".")[0])
        if parent is not None and (wrapper := adapters.parent_wrapper(parent, norm)) is not None:
            replacements[parent] = wrapper
    model = _replace(model, replacements)
    share_router(surgical_layers(model).values())
    earlier: ResolvedPlan | None = getattr(model, "surgery", None)
    model.surgery = plan if earlier is None else earlier.merged_with(plan)  # type: ignore[assignment]
    insert_units(model, plan.insertions)
    return model


def install(norm: SurgicalNorm, operation: Operation, *, at_identity: bool = False) -> None:
    """Give a layer its rewrites, as planned or at each one's identity setting."""
    for rewrite in operation.rewrites:
        variant, config = norms[rewrite.name], cast("NormConfig", rewrite.config())
        if at_identity and variant.identity is not None:
            config = variant.configure({**rewrite.options, **variant.identity(norm)})
        install_rewrite(norm, rewrite.name, config)


def install_rewrite(norm: SurgicalNorm, name: str, config: NormConfig) -> None:
    """Give a layer one rewrite, or other options of one that it has."""
    norms[name].install(norm, config)
    norm.rewrites[name] = config
    if norm.aux is not None:
        norm.aux.follow(norm)


def install_everywhere(model: nn.Module, plan: ResolvedPlan, *, at_identity: bool = False) -> None:
    """Switch a converted network to its identity setting, or back to its plan."""
    modules = dict(model.named_modules())
    for operation in plan.operations:
        norm = modules[operation.layer]
        assert isinstance(norm, SurgicalNorm)
        install(norm, operation, at_identity=at_identity)


def unwrapped(model: nn.Module) -> nn.Module:
    """The network itself, if DistributedDataParallel, DataParallel or torch.compile has wrapped it."""
    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif (inner := compiled_from(model)) is not None:
            model = inner
        else:
            return model


def current_plan(model: nn.Module) -> ResolvedPlan:
    """What is done to the layers now; their alpha may have been set since they were converted."""
    plan: ResolvedPlan = getattr(model, "surgery", ResolvedPlan(operations=()))
    layers = surgical_layers(model)
    operations = []
    for operation in plan.operations:
        configs = layers[operation.layer].rewrites
        rewrites = (
            r.model_copy(update={"options": configs[r.name].model_dump(mode="json")}) for r in operation.rewrites
        )
        operations.append(operation.model_copy(update={"rewrites": tuple(rewrites)}))
    return ResolvedPlan(operations=tuple(operations), insertions=plan.insertions)


def share_router(layers: Iterable[SurgicalNorm]) -> None:
    """One router for all layers of a network: that of a layer which was split before, if there is one."""
    split = [layer for layer in layers if layer.aux is not None]
    for layer in split[1:]:
        layer.router = split[0].router


def _check_layer(original: nn.Module, norm: SurgicalNorm, operation: Operation) -> None:
    if not ResolvedPlan(operations=(operation,)).has_identity():
        return
    install(norm, operation, at_identity=True)
    difference = parity.layer_difference(original, norm)
    if difference > parity.TOLERANCE:
        raise SurgeonError(
            f"The rewritten layer {operation.layer!r} differs from the original by {difference:.2g} (relative) "
            "at the setting where both must be equal.",
            "This is a bug in surgeon: please report it with the model's name.",
            ExitCode.VERIFICATION,
        )


def _replace(model: nn.Module, replacements: dict[nn.Module, nn.Module]) -> nn.Module:
    """Exchange modules wherever they are referred to, shared ones in every place."""
    for parent in list(model.modules()):
        for name, child in children_of(parent).items():
            if child in replacements:
                children_of(parent)[name] = replacements[child]
    exchange_references(model, replacements)
    return replacements.get(model, model)
