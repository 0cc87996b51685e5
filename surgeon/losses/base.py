"""What a term of the loss is: a number that training lowers, computed from predictions for copies of a batch.

A step may show the network several copies of the same images: as they are, augmented twice, attacked. A term says
which of them it needs, and gets the logits and the targets of those. What training minimises is the sum of all terms.

This module and all others of this folder import torch only inside functions, so that `--help` and `ls` can name every
term without waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, ConfigDict

from surgeon.core.entry import Entry, summary_of
from surgeon.core.errors import SurgeonError, listing
from surgeon.core.registry import Registry
from surgeon.core.specs import Options, option, parse_spec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "UNLABELLED",
    "Asked",
    "Copies",
    "Copy",
    "Loss",
    "LossConfig",
    "OnCopies",
    "Predicted",
    "Predictions",
    "ask",
    "ask_with_unlabelled",
    "check_losses",
    "expectation",
    "losses",
    "option",
    "register",
    "wide",
]


class Copy(StrEnum):
    """A copy of the images of a batch."""

    CLEAN = "clean"
    """Cropped, and nothing else."""
    WEAK = "weak"
    """Augmented as `augment` says."""
    SECOND = "second"
    """Augmented as `augment` says, drawn once more."""
    STRONG = "strong"
    """Augmented as `strong` says; takes the auxiliary branch of a split network."""
    ADVERSARIAL = "adversarial"
    """The weak copy, attacked as `attack` says; as `strong` says, it takes the auxiliary branch."""
    UNLABELLED_WEAK = "unlabelled-weak"
    """Of images without labels: cropped as `augment` says, and nothing else."""
    UNLABELLED_STRONG = "unlabelled-strong"
    """Of the same images: augmented as `strong` says; takes the auxiliary branch of a split network."""


UNLABELLED = (Copy.UNLABELLED_WEAK, Copy.UNLABELLED_STRONG)
"""Copies of other images than all the others, as many as there are of those: both or neither are there."""


@dataclass(frozen=True)
class Predicted:
    """What the network made of one copy, or of several one after the other.

    Args:
        logits: (N, classes), float32 or wider.
        targets: (N, classes), which sum to 1: mixed, where examples were mixed. Zeros of images without labels.
    """

    logits: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Predictions:
    """What the network made of every copy that it has seen.

    Args:
        copies: By copy, in the order in which the network saw them.
        labelled: The copies whose labels count.
        label_loss: The sum of the terms that compare predictions with labels, without gradient; while these
            themselves are computed, None.
    """

    copies: Mapping[Copy, Predicted]
    labelled: Sequence[Copy]
    label_loss: Tensor | None = None

    def __getitem__(self, copy: Copy) -> Predicted:
        return self.copies[copy]

    def over(self, copies: Sequence[Copy]) -> Predicted:
        """Several copies, one after the other."""
        import torch

        found = [self.copies[copy] for copy in copies]
        if len(found) == 1:
            return found[0]
        return Predicted(torch.cat([one.logits for one in found]), torch.cat([one.targets for one in found]))


def wide(logits: Tensor) -> Tensor:
    """In float32, unless they are wider: sums of half-precision numbers are of little worth."""
    return logits.float() if logits.dtype.itemsize < 4 else logits


def expectation(shares: Tensor, values: Tensor) -> Tensor:
    """Of values (N, classes) under shares (N, classes), averaged over images; what has no share takes no part.

    The logarithm of a probability of 0 is infinite, and 0 times infinity is NaN in floating point, but 0 in the limit.
    """
    import torch

    return (shares * torch.where(shares > 0, values, 0)).sum() / len(shares)


class LossConfig(Options):
    """Options of one term."""

    model_config = ConfigDict(allow_inf_nan=False)

    def named_copies(self) -> tuple[Copy, ...]:
        """The copies that its options name."""
        return ()


def _known_copies(text: str) -> str:
    known = [copy.value for copy in Copy if copy not in UNLABELLED]
    for name in text.split("+"):
        if name in list(UNLABELLED):
            raise ValueError(f"{name!r} copies have no labels: name {listing(known, 'or')}")
        if name not in known:
            raise ValueError(f"there is no copy {name!r}: name {listing(known, 'or')}, several as weak+adversarial")
    return text


Copies = Annotated[str, AfterValidator(_known_copies)]
"""Names of copies, joined by +."""


def copies_in(text: str | None) -> tuple[Copy, ...]:
    """The copies that an option names."""
    return tuple(dict.fromkeys(map(Copy, text.split("+")))) if text else ()


class OnCopies(LossConfig):
    """Options of a term that can be computed on any copies."""

    def named_copies(self) -> tuple[Copy, ...]:
        return copies_in(getattr(self, "on", None))


Compute = Callable[[Any, Predictions], "Tensor"]
"""From a term's options and predictions to its value, a scalar."""
Observe = Callable[[Any, Predictions], Mapping[str, "Tensor"]]
"""From the same to shares by name, each one between 0 and 1, which are told beside the loss."""
StandsFor = Callable[[Any], Sequence[str]]
"""From a term's options to the specs that it stands for; none if it stands for itself."""


def _itself(config: Any) -> tuple[str, ...]:  # noqa: ARG001
    return ()


def _nothing(config: Any, predictions: Predictions) -> dict[str, Tensor]:  # noqa: ARG001
    return {}


@dataclass(frozen=True)
class Loss(Entry[LossConfig]):
    """One registered term, or a name for several."""

    noun = "loss"
    listed = "losses"

    compute: Compute
    copies: tuple[Copy, ...] = ()
    """Those that it needs."""
    on_labels: bool = False
    """It compares predictions with labels."""
    labels_on: Copy | None = None
    """The copy whose labels count where this term is used, unless `on` says otherwise."""
    attacks_predictions: bool = False
    """Attacks move images away from what the network says of them, not from their labels."""
    stands_for: StandsFor = _itself
    observe: Observe = _nothing
    """What is worth telling of a batch besides the value of the term."""

    def facts(self) -> dict[str, Any]:
        return {"copies": " + ".join(self.copies) or "any"}


@dataclass(frozen=True)
class Asked:
    """A term with its options."""

    loss: Loss
    config: LossConfig

    @property
    def name(self) -> str:
        """Its spec, always in the same form: `cross-entropy:smoothing=0.1`."""
        return self.loss.with_options(self.config)

    @property
    def copies(self) -> tuple[Copy, ...]:
        """All that it needs for certain: its own, and those that its options name."""
        return tuple(dict.fromkeys((*self.loss.copies, *self.config.named_copies())))

    def compute(self, predictions: Predictions) -> Tensor:
        """Its value."""
        return self.loss.compute(self.config, predictions)

    def observe(self, predictions: Predictions) -> Mapping[str, Tensor]:
        """Shares of the batch that tell how the term fares."""
        return self.loss.observe(self.config, predictions)


losses: Registry[Loss] = Registry(Loss.noun, "surgeon.losses", Loss)
LABELS = "cross-entropy"
"""What is added where no term compares predictions with labels."""
WITHOUT_LABELS = "pseudo-label"
"""What is added where there are unlabelled images, and no term looks at them."""


def ask(specs: Iterable[str]) -> list[Asked]:
    """The terms that specs ask for; cross-entropy comes first where none of them looks at the labels."""
    found = list(_asked(specs))
    names = [term.loss.name for term in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SurgeonError(f"The loss has the term {listing(twice)} more than once.", "Name each term once.")
    if not any(term.loss.on_labels for term in found):
        found = [*_asked([LABELS]), *found]
    return found


def ask_with_unlabelled(specs: Iterable[str]) -> list[Asked]:
    """The terms that specs ask for where there are unlabelled images, at which one of them has to look."""
    found = ask(specs)
    if not any(copy in UNLABELLED for term in found for copy in term.copies):
        found = [*found, *_asked([WITHOUT_LABELS])]
    return found


def _asked(specs: Iterable[str]) -> Iterable[Asked]:
    for spec in specs:
        name, options = parse_spec(spec)
        loss = losses[name]
        config = loss.configure(options)
        if several := loss.stands_for(config):
            yield from _asked(several)
        else:
            yield Asked(loss, config)


def check_losses(specs: Iterable[str]) -> None:
    """Refuse unknown names and options, before anything heavy is imported."""
    ask(specs)


def register(
    name: str,
    *,
    paper: str,
    config: type[LossConfig] = LossConfig,
    copies: tuple[Copy, ...] = (),
    on_labels: bool = False,
    labels_on: Copy | None = None,
    attacks_predictions: bool = False,
    observe: Observe = _nothing,
) -> Callable[[Compute], Loss]:
    """Register the decorated function, which computes the term; the first line of its docstring is the summary.

    Args:
        name: What people type after `--loss`.
        paper: Where it is from.
        config: Its options.
        copies: The copies of a batch that it needs.
        on_labels: Whether it compares predictions with labels.
        labels_on: The copy whose labels count where this term is used.
        attacks_predictions: Whether attacks move images away from what the network says of them.
        observe: From options and predictions to shares of the batch by name, which training tells of every epoch.
    """

    def wrap(compute: Compute) -> Loss:
        summary = summary_of(compute, Loss.noun, name)
        return losses.register(name)(
            Loss(
                name, summary, paper, config, compute, copies, on_labels, labels_on, attacks_predictions,
                observe=observe,
            )
        )  # fmt: skip

    return wrap
