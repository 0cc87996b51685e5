"""The two branches that a network may have: taking one, mixing the predictions of both, and merging them into one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, cast

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, listing
from surgeon.core.private import hooks_of, remove_hooks
from surgeon.layers.router import Branch, Router
from surgeon.layers.statistics import Statistics, share_within_groups
from surgeon.layers.surgical import SurgicalNorm, surgical_layers
from surgeon.models.history import Merged
from surgeon.models.origin import note_on
from surgeon.norms import norms_with
from surgeon.surgery.apply import current_plan
from surgeon.surgery.plan import ResolvedPlan
from surgeon.surgery.temperature import set_temperature, temperature_of


class Mixing(StrEnum):
    """What is averaged over the branches."""

    PROBABILITIES = "probabilities"
    LOGITS = "logits"


def how_to_mix(logits: bool) -> Mixing:
    return Mixing.LOGITS if logits else Mixing.PROBABILITIES


def split_layers(model: nn.Module) -> dict[str, SurgicalNorm]:
    """The layers of a network that have two branches, by name."""
    layers = {name: layer for name, layer in surgical_layers(model).items() if layer.aux is not None}
    if not layers:
        known = norms_with(lambda config: config.branch_augments)
        raise SurgeonError(
            f"The network has no {listing(known, 'or')} layers, so it has only one branch.",
            f"Convert it first: --bn {known[0]}.",
        )
    return layers


@contextmanager
def branch(model: nn.Module, name: str) -> Iterator[None]:
    """Within this block the network takes one branch: `main`, `aux`, or `halves` of each batch.

    Args:
        model: A network with split layers.
        name: `halves` sends the first half of each batch through `main` and the second through `aux`.

    Examples:
        >>> with surgeon.branch(model, "halves"):
        ...     logits = model(torch.cat([weak_images, strong_images]))
    """
    replicas = isinstance(model, nn.DataParallel) and len(model.device_ids) > 1  # each runs in a thread of its own
    with _router(model).taking(Branch(name), everywhere=replicas):
        yield


@contextmanager
def taking_branch(model: nn.Module, name: str | None, share: float | None, mix_logits: bool = False) -> Iterator[None]:
    """The network as `--branch`, `--lambda` and `--mix-logits` ask for it; without them, as it is."""
    if mix_logits and share is None:
        raise SurgeonError("--mix-logits says how to mix both branches: it goes with --lambda.")
    if name not in (None, Branch.MAIN, Branch.AUXILIARY):
        raise SurgeonError(f"--branch cannot be {name!r}.", "Choose main or aux.")
    if name is not None and share is not None:
        raise SurgeonError("--branch takes one branch and --lambda mixes both: pass one of them.")
    if name is None and share is None:
        yield
        return
    split_layers(model)
    mix_branches(model, share, how_to_mix(mix_logits))  # one branch alone is not what the checkpoint may mix
    with branch(model, name or Branch.MAIN):
        yield


def _router(model: nn.Module) -> Router:
    return next(iter(split_layers(model).values())).router


def mixed(main: Tensor, aux: Tensor, share: float, mixing: Mixing) -> Tensor:
    """The prediction that takes `share` of the auxiliary branch, to be used like logits."""
    if share in (0, 1):
        return aux if share else main
    if mixing is Mixing.LOGITS:
        return (1 - share) * main + share * aux
    shares = main.new_tensor([1 - share, share]).log()
    return torch.logaddexp(main.log_softmax(-1) + shares[0], aux.log_softmax(-1) + shares[1])


class MixBranches:
    """A forward hook of the whole network, which goes through it once more by the auxiliary branch."""

    def __init__(self, share: float, mixing: Mixing) -> None:
        self.share = share
        self.mixing = mixing

    def __call__(self, model: nn.Module, inputs: tuple[Any, ...], main: Tensor) -> Tensor:
        router = _router(model)
        if model.training or router.branch is not Branch.MAIN:
            return main
        if not isinstance(main, Tensor) or main.dim() != 2:
            raise SurgeonError("Branches are mixed in networks that classify, and this one is not a classifier.")
        with router.taking(Branch.AUXILIARY):
            return mixed(main, model.forward(*inputs), self.share, self.mixing)


def mix_branches(model: nn.Module, share: float | None, mixing: Mixing | str = Mixing.PROBABILITIES) -> None:
    """Let predictions take a share of the auxiliary branch from now on; None or 0: the main branch alone.

    Args:
        model: A network with split layers.
        share: Of the auxiliary branch, from 0 to 1.
        mixing: What is averaged: `"probabilities"` or `"logits"`.
    """
    if share is not None:
        _check_share(share)
    temperature = temperature_of(model)
    set_temperature(model, None)
    remove_hooks(model, MixBranches)
    if share:
        split_layers(model)
        model.register_forward_hook(MixBranches(share, Mixing(mixing)))
    set_temperature(model, temperature)  # after mixing


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise SurgeonError(f"lambda cannot be {share:g}.", "It lies between 0 (main) and 1 (auxiliary).")


def mix_of(model: nn.Module) -> MixBranches | None:
    """How the network mixes its branches, if it does."""
    return next(iter(hooks_of(model, MixBranches)), None)


def settings_of(model: nn.Module) -> tuple[ResolvedPlan, float | None]:
    """What a sweep may change: the options of rewrites, and the share of the auxiliary branch."""
    mix = mix_of(model)
    return current_plan(model), None if mix is None else mix.share


def prediction_by(model: nn.Module) -> str | None:
    """Which branch a split network predicts by, in words; None for a network that has only one."""
    layer = next((layer for layer in surgical_layers(model).values() if layer.aux is not None), None)
    if layer is None:
        return None
    if (mix := mix_of(model)) is not None:
        what = " of logits" if mix.mixing is Mixing.LOGITS else ""
        return f"both branches, lambda {mix.share:g}{what} (two passes)"
    return f"{layer.router.branch} branch"


def merge_branches(model: nn.Module, share: float) -> nn.Module:
    """Fold both branches into one, in place: its scale and shift lie between those of the two.

    Args:
        model: A network with split layers.
        share: Of the auxiliary branch, from 0 to 1.
    """
    _check_share(share)
    layers = split_layers(model)
    for name, layer in layers.items():
        if layer.weight is None or layer.bias is None:
            raise SurgeonError(f"{name or 'The layer'} has no weight and bias to hold a merged scale and shift.")
    for layer in layers.values():
        _merge_layer(layer, share)
    mix_branches(model, None)
    plan: ResolvedPlan = model.surgery  # type: ignore[assignment]
    for name in norms_with(lambda config: config.branch_augments):
        plan = plan.without(name)
    model.surgery = plan  # type: ignore[assignment]
    note_on(model, Merged(share=share, layers=len(layers)))
    return model


@torch.no_grad()
def _merge_layer(layer: SurgicalNorm, share: float) -> None:
    """Main's running statistics stay; weight and bias make up for the rest."""
    aux = layer.aux
    assert aux is not None
    scale, shift = (torch.lerp(*pair, share) for pair in zip(_affine(layer), _affine(aux), strict=True))
    mean, var = _running(layer)
    cast("Tensor", layer.weight).copy_(scale * (var + layer.epsilon).sqrt())
    cast("Tensor", layer.bias).copy_(shift + mean * scale)
    layer.aux = None
    layer.rewrites = {name: config for name, config in layer.rewrites.items() if not config.branch_augments}


def _affine(layer: SurgicalNorm) -> tuple[Tensor, Tensor]:
    """What a layer in evaluation does to its input: scale and shift of each channel."""
    mean, var = _running(layer)
    scale = cast("Tensor", layer.weight).double() / (var + layer.epsilon).sqrt()
    return scale, cast("Tensor", layer.bias).double() - mean * scale


def _running(layer: SurgicalNorm) -> Statistics:
    """The statistics by which a layer normalises in evaluation; groups of channels may share theirs."""
    mean, var = (cast("Tensor", getattr(layer, name)).double() for name in ("running_mean", "running_var"))
    return share_within_groups(Statistics(mean, var), layer.channel_groups)
