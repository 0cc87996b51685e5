"""What a condition is: something that happens to images before a network sees them, in evaluation.

A condition gets pixels as they were decoded, resized and cropped, before they are normalised, and gives pixels of the
same shape back. What is random depends on a seed, the condition and the index of each image in its data set, and
on nothing else: every network sees the very same images, and so do several processes and a run that is resumed.

This module and all others of this folder import numpy and torch only inside functions, so that `--help` and `ls` can
name every condition without waiting for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict

from surgeon.core.entry import Entry, summary_of
from surgeon.core.errors import SurgeonError, listing
from surgeon.core.media import Medium
from surgeon.core.registry import Registry
from surgeon.core.specs import Options, option, parse_spec

if TYPE_CHECKING:
    import numpy as np
    from torch import Generator, Tensor

__all__ = [
    "Apply",
    "Asked",
    "Condition",
    "ConditionConfig",
    "Family",
    "Seen",
    "as_bytes",
    "ask",
    "check_conditions",
    "check_medium",
    "conditions",
    "option",
    "register",
]


class Family(StrEnum):
    """What conditions have in common; figures are averaged over the members of a family."""

    CLEAN = "clean"
    AUGMENTATION = "augmentation"
    NOISE = "noise"
    BLUR = "blur"
    WEATHER = "weather"
    DIGITAL = "digital"
    EXTRA = "extra"
    """Corruptions that are held out: not among the fifteen."""
    FOURIER = "fourier"
    ATTACK = "attack"
    SOUND = "sound"
    """Of clips of sound, applied to waveforms."""
    SEVERAL = "several"
    """Stands for conditions of several families."""


class ConditionConfig(Options):
    """Options of one condition."""

    model_config = ConfigDict(allow_inf_nan=False)


@dataclass(frozen=True)
class Seen:
    """Images that a condition is applied to.

    Args:
        pixels: (N, C, H, W), float32 from 0 to 1: decoded, resized and cropped, not normalised. Not to be changed.
            Of clips, waveforms (N, 1, 1, samples) from -1 to 1.
        labels: The class number of each image.
        indices: The index of each image in its data set.
        seed: By which everything random is drawn, together with `name` and `indices`.
        name: The condition with the options that differ from their defaults, e.g. `gaussian-noise:severity=3`.
        network: From pixels to logits, with gradients; for conditions that need a network.
        targets: Where labels are mixed, as in training, the share of each class (N, classes).
    """

    pixels: Tensor
    labels: Tensor
    indices: Tensor
    seed: int
    name: str
    network: Callable[[Tensor], Tensor] | None = None
    targets: Tensor | None = None

    def seeds(self) -> list[int]:
        """A seed of 63 bits for each image."""
        return [_seed(self.seed, self.name, index) for index in self.indices.tolist()]

    def generators(self) -> Iterator[np.random.Generator]:
        """One of numpy's generators for each image, always in the same state."""
        import numpy as np

        return (np.random.Generator(np.random.SFC64(seed)) for seed in self.seeds())

    def torch_generators(self) -> Iterator[Generator]:
        """One of torch's generators (on the CPU) for each image, always in the same state."""
        import torch

        return (torch.Generator().manual_seed(seed) for seed in self.seeds())


def as_bytes(pixels: Tensor) -> Tensor:
    """Pixels from 0 to 1 as bytes, on the CPU and of the same shape and memory format."""
    import torch

    return pixels.detach().cpu().mul(255).round_().clamp_(0, 255).to(torch.uint8)


def _seed(seed: int, name: str, index: int) -> int:
    return int.from_bytes(hashlib.sha256(repr((seed, name, index)).encode()).digest()[:8], "big") >> 1


Apply = Callable[[Any, Seen], "Tensor"]
"""From a condition's options and images to their pixels under it, (N, C, H, W), float32 from 0 to 1."""
ApplyToMasks = Callable[[Any, Seen, "Tensor"], "Tensor"]
"""From a condition's options, the images before it and their masks (N, H, W) to the masks under it."""
StandsFor = Callable[[Any], Sequence[str]]
"""From a condition's options to the specs that it stands for; none if it stands for itself."""


def _itself(config: Any) -> tuple[str, ...]:  # noqa: ARG001
    return ()


@dataclass(frozen=True)
class Condition(Entry[Options]):
    """One registered condition, or a name for several."""

    noun = "condition"
    listed = "conditions"

    family: Family
    apply: Apply
    needs_network: bool = False
    """It is made for the network that will see the images, as attacks are."""
    stands_for: StandsFor = _itself
    on: Medium = Medium.IMAGE
    """What it is for."""
    moves: bool = False
    """What images show does not stay in its place."""
    of_masks: ApplyToMasks | None = None
    """Of a condition that moves things, what becomes of masks; without it, images with masks cannot have it."""

    def facts(self) -> dict[str, Any]:
        return {"family": self.family.value}


@dataclass(frozen=True)
class Asked:
    """A condition with its options: one column of a table."""

    condition: Condition
    config: Options

    @property
    def name(self) -> str:
        """Its spec, always in the same form: `gaussian-noise:severity=3`."""
        return self.condition.with_options(self.config)

    @property
    def severity(self) -> int | None:
        """1 to 5 for corruptions, None for what has no severities."""
        severity = getattr(self.config, "severity", None) if self.condition.family in CORRUPTIONS else None
        return severity if isinstance(severity, int) else None

    @property
    def remark(self) -> str:
        """How strong it is, for a picture in which its name stands already."""
        if self.severity is not None:
            return f"severity {self.severity}"
        return self.name.partition(":")[2] if self.condition.on is not Medium.IMAGE else ""

    def apply(
        self,
        pixels: Tensor,
        labels: Tensor,
        indices: Tensor,
        seed: int = 0,
        network: Callable[[Tensor], Tensor] | None = None,
        targets: Tensor | None = None,
    ) -> Tensor:
        """The pixels under the condition."""
        return self.condition.apply(self.config, Seen(pixels, labels, indices, seed, self.name, network, targets))

    def masks(self, pixels: Tensor, masks: Tensor, indices: Tensor, seed: int = 0) -> Tensor:
        """The masks (N, H, W) of images under the condition."""
        if self.condition.needs_network:
            raise SurgeonError(
                f"{self.name} is made for networks that classify images, and these segment them.", "Leave it out."
            )
        if not self.condition.moves:
            return masks
        if self.condition.of_masks is None:
            raise SurgeonError(f"{self.name} may move image content, so masks would no longer match.", "Leave it out.")
        return self.condition.of_masks(self.config, Seen(pixels, masks, indices, seed, self.name), masks)


CORRUPTIONS = (Family.NOISE, Family.BLUR, Family.WEATHER, Family.DIGITAL, Family.EXTRA)

conditions: Registry[Condition] = Registry(Condition.noun, "surgeon.conditions", Condition)


def ask(specs: Iterable[str]) -> list[Asked]:
    """The conditions that specs ask for, each once; what stands for several is replaced by them."""
    found: dict[str, Asked] = {}
    for spec in specs:
        name, options = parse_spec(spec)
        condition = conditions[name]
        config = condition.configure(options)
        several = condition.stands_for(config)
        for asked in ask(several) if several else [Asked(condition, config)]:
            found.setdefault(asked.name, asked)
    return list(found.values())


def check_medium(asked: Asked, medium: Medium) -> None:
    """Refuse a condition that is not for what a network takes."""
    if asked.condition.on is medium or asked.condition.family is Family.CLEAN:
        return
    fitting = [name for name in conditions if conditions[name].on is medium]
    raise SurgeonError(
        f"The condition {asked.name!r} is for {asked.condition.on.samples}, not for {medium.samples}.",
        f"Use {listing(fitting, 'or')}." if medium is not Medium.IMAGE else "See `surgeon ls conditions`.",
    )


def check_conditions(specs: Iterable[str]) -> None:
    """Refuse unknown names and options, before anything heavy is imported."""
    ask(specs)


def register(
    name: str,
    *,
    family: Family,
    config: type[ConditionConfig] = ConditionConfig,
    paper: str = "",
    needs_network: bool = False,
    stands_for: StandsFor = _itself,
    on: Medium = Medium.IMAGE,
) -> Callable[[Apply], Condition]:
    """Register the decorated function, which applies it; the first line of its docstring is the summary.

    Args:
        name: What people type after `--under`.
        family: What it is like.
        config: Its options.
        paper: Where it is from.
        needs_network: Whether `Seen.network` has to be given.
        stands_for: The specs that it stands for, given its options; none if it stands for itself.
        on: What it is for.
    """

    def wrap(apply: Apply) -> Condition:
        summary = summary_of(apply, Condition.noun, name)
        return conditions.register(name)(
            Condition(name, summary, paper, config, family, apply, needs_network, stands_for, on)
        )

    return wrap
