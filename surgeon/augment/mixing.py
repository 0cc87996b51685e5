"""What a mix is: each example of a batch is mixed with another one, and so are their labels.

The examples of a batch stand in a circle of random order, and each takes a part of the next one: no
example is its own partner, and each is taken from once. Shares are drawn for each example on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from surgeon.augment.base import Augment, AugmentConfig, Kind, option, register
from surgeon.augment.draws import Draws
from surgeon.core.errors import SurgeonError

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from surgeon.models.origin import Preprocessing

SUMMERS = "Summers and Dinneen, WACV 2019"


class MixConfig(AugmentConfig):
    p: float = option(1.0, "Probability that an example is mixed.", ge=0, le=1)


class ShareConfig(MixConfig):
    alpha: float = option(1.0, "Shares are drawn from Beta(alpha, alpha); 1 is uniform.", gt=0)


class Mixed(NamedTuple):
    """Example i kept the share kept[i] of its label and took the rest from example permutation[i]."""

    images: Tensor
    permutation: Tensor
    kept: Tensor


@dataclass(frozen=True)
class Pairs:
    """Images (N, C, H, W), the index of each one's partner, and what else is to be drawn for them."""

    images: Tensor
    partner: Tensor
    draws: Draws
    alpha: float = 1.0

    def lam(self) -> Tensor:
        """A share (N,) for each example; drawn anew each time."""
        return self.draws.lam(len(self.images), self.alpha)


Rule = Callable[[Pairs, Any], "tuple[Tensor, Tensor]"]
"""From pairs and options to the mixed images and the share (N,) of the own label."""


@dataclass(frozen=True)
class Mix:
    """The operation of a mix, for batches with soft targets. `mixed` also says what it did, for losses of one's own."""

    name: str
    rule: Rule
    config: MixConfig
    averages: bool
    """Whether pixels are averaged: integers cannot be."""

    def __call__(self, images: Tensor, targets: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        images, targets, _ = self.with_partners(images, targets, generator)
        return images, targets

    def with_partners(
        self, images: Tensor, targets: Tensor, generator: Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mixed images and targets, and the index of each example's partner."""
        import torch

        if targets.dim() != 2 or not targets.is_floating_point():
            raise SurgeonError(
                f"{self.name} mixes labels, so it needs one share for each class, not targets of shape "
                f"{tuple(targets.shape)} and type {targets.dtype}.",
                "surgeon.augment.mixing.soft(labels, classes) makes them of class numbers.",
            )
        images, permutation, kept = self.mixed(images, generator)
        kept = kept.to(targets.device, targets.dtype)
        others = targets.index_select(0, permutation.to(targets.device))
        return images, torch.lerp(others, targets, kept[:, None]), permutation

    def mixed(self, images: Tensor, generator: Generator | None = None) -> Mixed:
        """Mix images alone."""
        self._check(images)
        draws = Draws(generator, images.device)
        pairs = Pairs(images, draws.cycle(len(images)), draws, getattr(self.config, "alpha", 1.0))
        made, kept = self.rule(pairs, self.config)
        if self.config.p < 1:
            left_alone = draws.uniform(len(images)) >= self.config.p
            made[left_alone] = images[left_alone]
            kept = kept.masked_fill(left_alone, 1)
        return Mixed(made, pairs.partner, kept)

    def _check(self, images: Tensor) -> None:
        if images.dim() != 4:
            raise SurgeonError(f"{self.name} needs images of shape (N, C, H, W), not {tuple(images.shape)}.")
        if len(images) < 2:
            raise SurgeonError(
                f"{self.name} needs at least two images to mix, and the batch has {len(images)}.",
                "Use larger batches, or drop an incomplete last batch.",
            )
        if self.averages and not images.is_floating_point():
            raise SurgeonError(
                f"{self.name} averages pixels, and {images.dtype} images would be rounded.",
                "Convert them with images.float() first.",
            )


def mix(
    name: str, *, paper: str = SUMMERS, config: type[MixConfig] = ShareConfig, averages: bool = False
) -> Callable[[Rule], Augment]:
    """Register the decorated rule as a mix; its docstring's first line is the summary."""

    def wrap(rule: Rule) -> Augment:
        def build(config: Any, preprocessing: Preprocessing) -> Mix:  # noqa: ARG001
            return Mix(name, rule, config, averages)

        build.__doc__ = rule.__doc__
        return register(name, kind=Kind.MIX, paper=paper, config=config)(build)

    return wrap


def soft(targets: Tensor, classes: int) -> Tensor:
    """Class numbers (N,) as shares (N, classes); shares are handed back as they are."""
    import torch

    if targets.is_floating_point():
        if targets.dim() != 2 or targets.shape[1] != classes:
            raise SurgeonError(f"Soft targets for {classes} classes are (N, {classes}), not {tuple(targets.shape)}.")
        return targets
    if targets.dim() != 1:
        raise SurgeonError(f"Class numbers are of shape (N,), not {tuple(targets.shape)}.")
    shares = torch.zeros(len(targets), classes, device=targets.device)
    return shares.scatter_(1, targets.long()[:, None], 1)
