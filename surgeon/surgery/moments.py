"""The moments of what reaches a network's normalisation layers, and normalising by them at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.layers.router import Branch
from surgeon.layers.statistics import Statistics, mix, pool, wide
from surgeon.layers.surgical import SurgicalNorm

VALUES_AT_ONCE = 1 << 14


class LayerMovement(BaseModel):
    """How far the statistics of one layer moved."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layer: str
    channels: int
    values: int
    """Per channel, that the new statistics were estimated from."""
    mean_shift: float
    """How far means moved, in the old standard deviations, averaged over the channels."""
    largest_shift: float
    """In the channel in which it moved farthest."""
    deviation_ratio: float
    """New standard deviations over old ones, averaged geometrically over the channels."""


@dataclass
class Seen:
    """The statistics that a layer had, and the moments of all values that it has seen since."""

    name: str
    old: Statistics
    all: Statistics | None = None
    values: int = 0
    first: int = 0
    """When it was first reached, among all layers."""

    def add(self, batch: Statistics, values: int) -> None:
        self.values += values
        self.all = batch if self.all is None else mix(self.all, batch, values / self.values)

    def mixed(self, new: Statistics, weight: float) -> Statistics:
        """Old and new statistics, each counted as so many images."""
        if weight == 0:
            return self.old
        mean, var = ((1 - weight) * old.double() + weight * values for old, values in zip(self.old, new, strict=True))
        return Statistics(mean, var)

    def new(self, weight: float) -> Statistics:
        """What the layer gets."""
        assert self.all is not None
        if not all(bool(values.isfinite().all()) for values in self.all):
            raise SurgeonError(
                f"What reaches {self.name or 'the layer'} is not finite, so it has no statistics.",
                "Check the weights and the preprocessing of the images.",
                ExitCode.FAILED,
            )
        if self.values == 1 and weight == 1:
            raise SurgeonError(
                f"{self.name or 'The layer'} has seen one value per channel, which has no variance.",
                "Use more images, or a prior above 0.",
            )
        return self.mixed(self.all, weight)

    def movement(self, new: Statistics, eps: float) -> LayerMovement:
        old_mean, old_var = (values.double() for values in self.old)
        new_mean, new_var = (values.double() for values in new)
        shift = (new_mean - old_mean).abs() / (old_var + eps).sqrt()
        ratio = ((new_var + eps) / (old_var + eps)).log().mean() / 2
        return LayerMovement(
            layer=self.name,
            channels=len(shift),
            values=self.values,
            mean_shift=float(shift.mean()),
            largest_shift=float(shift.max()),
            deviation_ratio=float(ratio.exp()),
        )


@contextmanager
def watching(seen: Mapping[nn.Module, Seen], weight: float) -> Iterator[None]:
    """Every layer takes note of its input, and normalises it by the statistics that are stored if there is no more.

    The layers stay in evaluation mode with these for running ones. Training mode would refuse a batch of one value,
    cut it into groups, or wait for other processes.
    """
    reached = 0

    def look(layer: nn.Module, args: tuple[Tensor, ...], keywords: dict[str, Tensor]) -> None:
        nonlocal reached
        x = wide(args[0] if args else next(iter(keywords.values())))
        target = _branch_of(layer)
        if target is None or target not in seen or not x.numel():
            return
        moments = seen[target]
        if not moments.values:
            reached += 1
            moments.first = reached
        batch = _moments(x)
        moments.add(batch, x.numel() // x.shape[1])
        fill(target, moments.mixed(batch, weight))

    handles = [
        layer.register_forward_pre_hook(look, with_kwargs=True)
        for layer in seen
        if not (isinstance(layer, SurgicalNorm) and layer.is_branch)  # which the whole layer calls on its own
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _branch_of(layer: nn.Module) -> nn.Module | None:
    """What normalises when a layer is called now; None if each half of a batch goes another way."""
    if not isinstance(layer, SurgicalNorm) or layer.aux is None:
        return layer
    return {Branch.MAIN: layer, Branch.AUXILIARY: layer.aux}.get(layer.router.branch)


def _moments(x: Tensor) -> Statistics:
    """Mean and biased variance of each channel, in double precision from here on.

    torch's own training kernel takes a third of the time of `var_mean`. But where channels lie next to one another it
    adds up all values one after the other, which loses digits, so it gets a stretch of them at a time.
    """
    values = x.numel() // x.shape[1]
    if values == 1:
        flat = x.reshape(-1).double()
        return Statistics(flat, torch.zeros_like(flat))
    parts = list(_stretches(x))
    if len(parts) == 1:
        return _moments_at_once(x)
    found = [_moments_at_once(part) for part in parts]
    sizes = torch.tensor([part.numel() for part in parts], dtype=torch.float64, device=x.device)
    return pool(Statistics(*(torch.stack(of_parts) for of_parts in zip(*found, strict=True))), sizes)


def _stretches(x: Tensor) -> Iterator[Tensor]:
    """All of it, or examples, or rows of images, of about so many values per channel that few digits are lost."""
    if x.is_contiguous() or x.dim() < 3:
        yield x
        return
    each = x.numel() // (len(x) * x.shape[1])
    rows = max(1, VALUES_AT_ONCE * x.shape[2] // each)
    for examples in torch.split(x, max(1, VALUES_AT_ONCE // each)):
        yield from torch.split(examples, rows, dim=2)


def _moments_at_once(x: Tensor) -> Statistics:
    mean, var = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
    F.batch_norm(x, mean, var, None, None, True, 1.0, 1e-5)
    values = x.numel() // x.shape[1]
    return Statistics(mean.double(), var.double() * ((values - 1) / values))  # it keeps the unbiased variance


def stored(module: nn.Module) -> Statistics:
    return Statistics(cast("Tensor", module.running_mean).clone(), cast("Tensor", module.running_var).clone())


def fill(module: nn.Module, statistics: Statistics) -> None:
    cast("Tensor", module.running_mean).copy_(statistics.mean)
    cast("Tensor", module.running_var).copy_(statistics.var)


def epsilon_of(module: nn.Module) -> float:
    return module.epsilon if isinstance(module, SurgicalNorm) else float(cast("float", module.eps))
