"""Layers that a network reaches by other ways than as its registered parts: lists, attributes, closures.

A layer in a plain list is replaced there as well. What lies deeper (in a closure, say) shows only when the
network runs: then the layer that was replaced is still called. A norm that is nowhere registered is not a
part of the network, as its parameters are not; it stays as it is, and is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.layers.surgical import SurgicalNorm
from surgeon.surgery.adapters import is_batch_norm

OWN = frozenset(vars(nn.Module()))
"""Where torch keeps a module's registered parts and hooks."""


def exchange_references(model: nn.Module, replacements: Mapping[nn.Module, nn.Module]) -> None:
    """Exchange modules in the plain attributes of a network's parts, and in lists, tuples and mappings there."""
    for module in model.modules():
        for name, value in vars(module).items():
            if name not in OWN:
                vars(module)[name] = _exchanged(value, replacements)


def _exchanged(value: Any, replacements: Mapping[nn.Module, nn.Module]) -> Any:
    if isinstance(value, nn.Module):
        return replacements.get(value, value)
    if type(value) is list:
        value[:] = [_exchanged(item, replacements) for item in value]
    elif type(value) is dict:
        value.update({key: _exchanged(item, replacements) for key, item in value.items()})
    elif type(value) is tuple and any(_modules_in(value, "")):
        return tuple(_exchanged(item, replacements) for item in value)
    return value


def unregistered_norms(model: nn.Module) -> dict[str, nn.Module]:
    """BatchNorm layers that lie in plain attributes of a network's parts and are no parts of it, by where they lie."""
    registered = set(model.modules())
    found: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in OWN:
                continue
            for place, hidden in _modules_in(value, f"{path}.{name}".lstrip(".")):
                for part, layer in hidden.named_modules():
                    if layer not in registered and is_batch_norm(layer):
                        found.setdefault(f"{place}.{part}".rstrip("."), layer)
    return found


def about_unregistered(model: nn.Module) -> str:
    """A sentence that names such layers, or nothing."""
    names = list(unregistered_norms(model))
    if not names:
        return ""
    return (
        f"Left as it was, because the network does not register it as a part (nn.ModuleList, nn.ModuleDict): "
        f"{count(len(names), 'BatchNorm layer')} ({listing(names, limit=3)})"
    )


def _modules_in(value: Any, place: str) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(value, nn.Module):
        yield place, value
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield from _modules_in(item, f"{place}[{index}]")
    elif type(value) is dict:
        for key, item in value.items():
            yield from _modules_in(item, f"{place}[{key!r}]")


@contextmanager
def refusing_replaced_layers(model: nn.Module, layers: Mapping[str, SurgicalNorm]) -> Iterator[None]:
    """Within this block, a call of a layer that was replaced is an error: the rewritten one would be passed by."""
    holders = {
        id(tensor): name
        for name, norm in layers.items()
        for tensor in (norm.weight, norm.running_mean)
        if tensor is not None
    }
    registered = set(model.modules())

    def look(module: nn.Module, _: Any) -> None:
        if module in registered or not is_batch_norm(module):
            return
        for tensor in (getattr(module, "weight", None), getattr(module, "running_mean", None)):
            if (name := holders.get(id(tensor))) is not None:
                raise SurgeonError(
                    f"The network calls the original of the rewritten layer {name!r}, which is not among its "
                    "submodules or their attributes.",
                    "Let its forward call the registered layer by name, or leave it out with --layers (layers=…).",
                )

    handle = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        handle.remove()
