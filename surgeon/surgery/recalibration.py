"""Estimate the statistics of a network's normalisation layers anew, from images without labels and without training.

Given n images and a prior of N images, a layer's mean and variance become (N * old + n * new) / (N + n), where
`new` are the moments E[x] and E[x^2] - E[x]^2 of all values of all images (Schneider et al., NeurIPS 2020). What a
layer sees depends on how the layers before it normalise. So while moments are collected, each layer normalises each
batch by the batch's own statistics, mixed into the old ones at the very weight n / (N + n) at which they are stored.
Collecting at one weight and storing at another can destroy a network. Dropout and whatever else differs in training
stay off, and each example's own statistics keep their weight alpha.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, count
from surgeon.core.private import BatchNorm
from surgeon.core.readable import Readable
from surgeon.layers.router import Branch
from surgeon.layers.running import evaluating
from surgeon.layers.statistics import Statistics
from surgeon.layers.surgical import SurgicalNorm, is_whole_layer, surgical_layers
from surgeon.surgery.adapters import FLAVOURS
from surgeon.surgery.branches import branch, mix_of
from surgeon.surgery.entropy import EntropyResult
from surgeon.surgery.moments import LayerMovement, Seen, epsilon_of, fill, stored, watching
from surgeon.surgery.selectors import select

FORGET, KEEP = 0.0, math.inf
"""The priors at which old statistics count for nothing, and at which new ones do."""
NO_IMAGES = "No images were given to estimate statistics from."
DEFAULT_PRIOR = 1024.0
"""It helped on every shift that was measured, and cost least where there was none: docs/recalibrate.md."""


class Reestimation(Readable, BaseModel):
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
    entropy: EntropyResult | None = None
    """What entropy minimisation did afterwards, if that was asked for."""


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
    seen = {module: Seen(name, stored(module)) for name, module in _targets(model, layers, auxiliary, frozen).items()}
    try:
        with evaluating(model), torch.no_grad(), watching(seen, weight):
            number = sum(_go_through(model, batch, auxiliary) for batch in batches)
        _check_number(number, images)
        found = {module: moments for module, moments in _in_order(seen) if moments.values}
        new = {module: moments.new(weight) for module, moments in found.items()}
    except BaseException:
        for module, moments in seen.items():
            fill(module, moments.old)
        raise
    for module, moments in seen.items():
        fill(module, new.get(module, moments.old))
    return Reestimation(
        images=number,
        prior=prior,
        weight=weight,
        layers=tuple(moments.movement(new[module], epsilon_of(module)) for module, moments in found.items()),
        kept=keeps_statistics(model, auxiliary=auxiliary),
    )


def weight_of(prior: float, images: int | None) -> float:
    """The share of new statistics from so many images."""
    if not prior >= 0:
        raise SurgeonError(f"The prior cannot be {prior:g}.", "It is a number of images: 0, more, or inf.")
    if prior in (FORGET, KEEP):
        return 1.0 if prior == FORGET else 0.0
    if images == 0:
        raise SurgeonError(NO_IMAGES)
    if images is None:
        raise SurgeonError("The weight of new statistics depends on the number of images, which is not known.")
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
    return {name: stored(module) for name, module in _targets(model, None, auxiliary=True, frozen=True).items()}


def set_statistics(model: nn.Module, statistics: Mapping[str, Statistics]) -> None:
    """Give layers the running statistics that `statistics_of` gave."""
    modules = dict(model.named_modules())
    for name, values in statistics.items():
        fill(modules[name], values)


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


def _in_order(seen: dict[nn.Module, Seen]) -> list[tuple[nn.Module, Seen]]:
    return sorted(seen.items(), key=lambda item: item[1].first)


def _go_through(model: nn.Module, images: Tensor, auxiliary: bool) -> int:
    """One batch by every branch that counts; returns its images."""
    if not len(images):
        return 0
    split = any(layer.aux is not None for layer in surgical_layers(model).values())
    try:
        with branch(model, Branch.MAIN) if split else nullcontext():
            model(images)
        if split and auxiliary and mix_of(model) is None:  # a mixed network has taken both branches by itself
            with branch(model, Branch.AUXILIARY):
                model(images)
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        shape, told = "x".join(map(str, images.shape)), next(iter(str(error).splitlines()), "").rstrip(".")
        raise SurgeonError(
            f"The network cannot take a batch of {shape}: {told}.", "Give it images as they are preprocessed for it."
        ) from error
    return len(images)


def _check_number(seen: int, expected: int | None) -> None:
    if not seen:
        raise SurgeonError(NO_IMAGES)
    if expected is not None and seen != expected:
        raise SurgeonError(
            f"{count(expected, 'image')} were expected, but the loader gave {seen:,}, so their weight would be wrong.",
            "Pass a loader that gives the same number of images on each pass.",
        )
