"""Put units into a network: children of the modules they work for, called by hooks or by generated code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.inserts import PREFIX, inserts
from surgeon.surgery.plan import Insertion, Place, ResolvedPlan
from surgeon.surgery.residual import RunAfter, UnreadableError, put_after_addition


class RunBefore:
    """A forward pre-hook: a unit works on the module's first input."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (getattr(module, self.unit)(inputs[0]), *inputs[1:])


FOLDING = ("fuse", "reparameterize", "switch_to_deploy")
"""Methods by which timm's networks fold layers into one another."""


class RefuseFolding:
    """Stands for such a method of a module that has a unit in it, which would be folded away without a word."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def __call__(self) -> None:
        raise SurgeonError(
            f"A network with {self.unit} units cannot be folded (fuse, reparameterize): they could be lost.",
            "Fold the original network, or write this one with surgeon.export.",
        )


def insert_units(model: nn.Module, insertions: Sequence[Insertion]) -> None:
    """Build the planned units and put them in their places; fresh ones are the same in every run."""
    modules = dict(model.named_modules())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for insertion in insertions:
            if insertion.site not in modules:
                raise SurgeonError(f"The plan inserts into {insertion.site!r}, which this network does not have.")
            unit = inserts[insertion.unit.name].build(insertion.channels, insertion.unit.config())
            module = modules[insertion.site]
            reference = next((t for t in module.parameters() if t.is_floating_point()), None)
            put(module, insertion, unit if reference is None else unit.to(reference.device, reference.dtype))
            parts = insertion.site.split(".")
            for outer in {modules[".".join(parts[:depth])] for depth in range(len(parts) + 1)}:
                for method in FOLDING:
                    if hasattr(outer, method):
                        setattr(outer, method, RefuseFolding(insertion.unit.name))
    for name in dict.fromkeys(insertion.unit.name for insertion in insertions):
        inserts[name].join(model, [unit for i, unit in units_of(model) if i.unit.name == name])


def put(module: nn.Module, insertion: Insertion, unit: nn.Module) -> None:
    """Make a unit a part of a module, at the place that is planned."""
    name = insertion.attribute
    if hasattr(module, name):
        raise SurgeonError(f"{insertion.site or 'The network'} has a unit {insertion.unit.name!r} there already.")
    module.add_module(name, unit.train(module.training))
    try:
        if insertion.place is Place.OUTPUT:
            module.register_forward_hook(RunAfter(name))
        elif insertion.place is Place.INPUT:
            module.register_forward_pre_hook(RunBefore(name))
        else:
            put_after_addition(module, name)
    except UnreadableError as error:
        raise SurgeonError(f"The code of {insertion.site!r} cannot be read: {error}.") from error


def units_of(model: nn.Module) -> list[tuple[Insertion, nn.Module]]:
    """The units of a network in the order in which they were put in, each with what was planned."""
    plan: ResolvedPlan | None = getattr(model, "surgery", None)
    insertions = () if plan is None else plan.insertions
    return [(i, getattr(model.get_submodule(i.site), i.attribute)) for i in insertions]


def carry_over(original: nn.Module, replacement: nn.Module) -> None:
    """A layer that takes another's place takes its units (hooks were taken over already)."""
    for name, child in original.named_children():
        if name.startswith(PREFIX):
            replacement.add_module(name, child)


@contextmanager
def taken_out(model: nn.Module, insertions: Sequence[Insertion]) -> Iterator[None]:
    """Within this block, features pass these units by."""
    units = [(i, unit) for i, unit in units_of(model) if i in insertions]
    for insertion, unit in units:
        setattr(model.get_submodule(insertion.site), insertion.attribute, nn.Identity().train(unit.training))
    try:
        yield
    finally:
        for insertion, unit in units:
            setattr(model.get_submodule(insertion.site), insertion.attribute, unit)


class Probe(nn.Module):
    """Stands where a unit would, and notes what passes."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...] | None] = []
        self.calls = 0

    def count(self, module: nn.Module, inputs: Any) -> None:  # noqa: ARG002
        """A forward pre-hook of the module that it was put into."""
        self.calls += 1

    def forward(self, x: Any) -> Any:
        self.shapes.append(tuple(x.shape) if isinstance(x, Tensor) else None)
        return x
