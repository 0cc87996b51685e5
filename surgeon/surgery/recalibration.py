"""Estimate the statistics of a network's normalisation layers anew, from images without labels and without training.

Given n images and a prior of N images, a layer's mean and variance become (N * old + n * new) / (N + n), where `new` are
the moments E[x] and E[x^2] - E[x]^2 of all values of all images (Schneider et al., NeurIPS 2020). What a layer sees
depends on how the layers before it normalise. So while moments are collected, each layer normalises each batch by the
batch's own statistics, mixed into the old ones at the very weight n / (N + n) at which they are stored in the end.
Collecting at one weight and storing at another can destroy a network. Dropout and whatever else differs in training
stay off, and each example's own statistics keep their weight alpha.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon.core.errors import ExitCode, SurgeonError, count
from surgeon.core.private import BatchNorm
from surgeon.layers.branches import Branch
from surgeon.layers.running import evaluating
from surgeon.layers.statistics import Statistics, mix, pool, wide
from surgeon.layers.surgical import SurgicalNorm, is_whole_layer, surgical_layers
from surgeon.surgery.adapters import FLAVOURS
from surgeon.surgery.branches import branch, mix_of
from surgeon.surgery.selectors import select

FORGET, KEEP = 0.0, math.inf
"""The priors at which old statistics count for nothing, and at which new ones do."""
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


class Reestimation(BaseModel):
    """What became of a network's statistics."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    images: int
    prior: float
    """How many images the old statistics counted for."""
    weight: float
    """Of the new statistics: images / (prior + images)."""
    layers: tuple[LayerMovement, ...]
    """In the order in which images go through them."""
    kept: tuple[str, ...] = ()
    """Layers some of whose statistics stayed as they were: they have a rule of their own."""


def reestimate(
    model: nn.Module,
    batches: Iterable[Tensor],
    *,
    prior: float,
    images: int | None = None,
    layers: str | None = None,
    auxiliary: bool = True,
    frozen: bool = True,
) -> Reestimation:
    """Estimate running statistics from batches of images, in place; if anything fails the network stays as it was.

    Args:
        model: The network, on the device of the batches.
        batches: Its inputs.
        prior: How many images the old statistics count for.
        images: How many there are in all batches; the priors 0 and infinity can do without.
        layers: A selector of the layers; all others keep their statistics.
        auxiliary: Whether auxiliary branches get new statistics too, each from its own pass.
        frozen: Whether frozen layers do.
    """
    weight = weight_of(prior, images)
    seen = {module: _Seen(name, _stored(module)) for name, module in _targets(model, layers, auxiliary, frozen).items()}
    try:
        with evaluating(model), torch.no_grad(), _watching(seen, weight):
            number = sum(_go_through(model, batch, auxiliary) for batch in batches)
        _check_number(number, images)
        found = {module: moments for module, moments in _in_order(seen) if moments.values}
        new = {module: moments.new(weight) for module, moments in found.items()}
    except BaseException:
        for module, moments in seen.items():
            _fill(module, moments.old)
        raise
    for module, moments in seen.items():
        _fill(module, new.get(module, moments.old))
    return Reestimation(
        images=number,
        prior=prior,
        weight=weight,
        layers=tuple(moments.movement(new[module], _epsilon(module)) for module, moments in found.items()),
        kept=keeps_statistics(model, auxiliary=auxiliary),
    )


def weight_of(prior: float, images: int | None) -> float:
    """The share of new statistics from so many images."""
    if not prior >= 0:
        raise SurgeonError(f"The prior cannot be {prior:g}.", "It is a number of images: 0, more, or inf.")
    if prior in (FORGET, KEEP):
        return 1.0 if prior == FORGET else 0.0
    if images is None:
        raise SurgeonError("How much new statistics count depends on the number of images, which is not known.")
    return images / (prior + images)


def keeps_statistics(model: nn.Module, *, auxiliary: bool = True) -> tuple[str, ...]:
    """The layers some of whose statistics are not estimated: of a rule of their own, or of an auxiliary branch."""
    return tuple(
        name
        for name, layer in surgical_layers(model).items()
        if layer.whole_rule is not None or (layer.aux is not None and not auxiliary)
    )


def statistics_of(model: nn.Module) -> dict[str, Statistics]:
    """The running statistics that `reestimate` may change, by the names of their layers."""
    return {name: _stored(module) for name, module in _targets(model, None, auxiliary=True, frozen=True).items()}


def set_statistics(model: nn.Module, statistics: Mapping[str, Statistics]) -> None:
    """Give layers the running statistics that `statistics_of` gave."""
    modules = dict(model.named_modules())
    for name, values in statistics.items():
        _fill(modules[name], values)


@contextmanager
def without_example_weighting(model: nn.Module) -> Iterator[None]:
    """All layers at the alpha at which they are the original, as in training, which knows nothing of it."""
    layers = list(surgical_layers(model).values())
    alphas = [layer.alpha_values for layer in layers]
    for layer in layers:
        layer.set_alpha(layer.identity_alpha)
    try:
        yield
    finally:
        for layer, alpha in zip(layers, alphas, strict=True):
            layer.set_alpha(alpha)


@dataclass
class _Seen:
    """The statistics that a layer had, and the moments of all values that it has seen since."""

    name: str
    old: Statistics
    all: Statistics | None = None
    values: int = 0
    first: int = field(default=0)
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


def _targets(model: nn.Module, selector: str | None, auxiliary: bool, frozen: bool) -> dict[str, nn.Module]:
    """The layers to estimate by name; an auxiliary branch comes after its layer."""
    layers = {name: module for name, module in model.named_modules() if _can_be_estimated(module, frozen)}
    if not layers:
        raise SurgeonError(
            "The network has no layer whose running statistics could be estimated.",
            "GroupNorm layers get theirs with --collect (in Python: surgeon.collect_statistics).",
        )
    chosen = layers if selector is None else {name: layers[name] for name in select(list(layers), selector)}
    targets: dict[str, nn.Module] = {}
    for name, module in chosen.items():
        targets[name] = module
        if auxiliary and isinstance(module, SurgicalNorm) and module.aux is not None:
            targets[f"{name}.aux" if name else "aux"] = module.aux
    return targets


def _can_be_estimated(module: nn.Module, frozen: bool) -> bool:
    if isinstance(module, SurgicalNorm):
        whole = is_whole_layer(module) and module.whole_rule is None
        return whole and module.has_statistics and (frozen or not module.frozen)
    if (flavour := FLAVOURS.get(type(module))) is not None and flavour.frozen:
        return frozen
    return isinstance(module, BatchNorm) and module.running_mean is not None


def _stored(module: nn.Module) -> Statistics:
    return Statistics(cast("Tensor", module.running_mean).clone(), cast("Tensor", module.running_var).clone())


def _fill(module: nn.Module, statistics: Statistics) -> None:
    cast("Tensor", module.running_mean).copy_(statistics.mean)
    cast("Tensor", module.running_var).copy_(statistics.var)


def _epsilon(module: nn.Module) -> float:
    return module.epsilon if isinstance(module, SurgicalNorm) else float(cast("float", module.eps))


def _in_order(seen: dict[nn.Module, _Seen]) -> list[tuple[nn.Module, _Seen]]:
    return sorted(seen.items(), key=lambda item: item[1].first)


def _go_through(model: nn.Module, images: Tensor, auxiliary: bool) -> int:
    """One batch by every branch that counts; returns its images."""
    split = any(layer.aux is not None for layer in surgical_layers(model).values())
    with branch(model, Branch.MAIN) if split else nullcontext():
        model(images)
    if split and auxiliary and mix_of(model) is None:  # a mixed network has taken both branches by itself
        with branch(model, Branch.AUXILIARY):
            model(images)
    return len(images)


def _check_number(seen: int, expected: int | None) -> None:
    if not seen:
        raise SurgeonError("No images were given to estimate statistics from.")
    if expected is not None and seen != expected:
        raise SurgeonError(
            f"{count(expected, 'image')} were announced, but {seen:,} came, so the weight of their statistics is wrong.",
            "Pass a loader that gives as many images each time it is gone through.",
        )


@contextmanager
def _watching(seen: dict[nn.Module, _Seen], weight: float) -> Iterator[None]:
    """Every layer takes note of its input, and normalises it by the statistics that are stored if there is no more.

    The layers stay in evaluation mode with these for running ones. Training mode would refuse a batch of one value,
    cut it into groups, or wait for other processes.
    """
    reached = 0

    def look(layer: nn.Module, args: tuple[Tensor, ...], keywords: dict[str, Tensor]) -> None:
        nonlocal reached
        x = wide(args[0] if args else next(iter(keywords.values())))
        target = _branch_of(layer)
        if target not in seen or not x.numel():
            return
        moments = seen[target]
        if not moments.values:
            reached += 1
            moments.first = reached
        batch = _moments(x)
        moments.add(batch, x.numel() // x.shape[1])
        _fill(target, moments.mixed(batch, weight))

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
    examples = len(x) if x.is_contiguous() else max(1, VALUES_AT_ONCE * len(x) // values)
    parts = [_moments_at_once(part) for part in x.split(examples)]
    if len(parts) == 1:
        return parts[0]
    sizes = torch.tensor([len(part) for part in x.split(examples)], dtype=torch.float64, device=x.device)
    return pool(Statistics(*(torch.stack(of_parts) for of_parts in zip(*parts, strict=True))), sizes)


def _moments_at_once(x: Tensor) -> Statistics:
    mean, var = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
    F.batch_norm(x, mean, var, None, None, True, 1.0, 1e-5)
    values = x.numel() // x.shape[1]
    return Statistics(mean.double(), var.double() * ((values - 1) / values))  # it keeps the unbiased variance


def images_in(batch: Any) -> Tensor:
    """The images of what a loader gives: a tensor, a pair that begins with one, or a dictionary that holds one."""
    if isinstance(batch, Mapping):
        batch = next((batch[key] for key in ("image", "images", "img", "pixel_values") if key in batch), None)
    elif isinstance(batch, Sequence):
        batch = batch[0] if len(batch) else None
    if not isinstance(batch, Tensor) or batch.dim() == 0:
        raise SurgeonError(
            f"A batch has to be a tensor of images, and this holds a {type(batch).__name__}.",
            'Tensors, pairs (images, labels) and dictionaries with "image" will do.',
        )
    return batch
