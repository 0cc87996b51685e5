"""Make a network surer of unlabelled images: minimise the mean entropy of its predictions over gamma and beta.

D. Wang, E. Shelhamer, S. Liu, B. Olshausen and T. Darrell, Tent: Fully Test-Time Adaptation by Entropy Minimization,
ICLR 2021; here offline. The running statistics stay as they are (re-estimate them first), Adam goes a few times over
the same images, and what is left is a plain network with other numbers. Entropy is also minimal where every image is
given to one class: predictions are counted after every epoch, and where they concentrate on fewer classes than at the
start, the epoch is undone and the work ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.core.progress import Progress, say_nothing
from surgeon.layers.running import evaluating
from surgeon.layers.wrapped import input_of, logits_in
from surgeon.surgery.adapters import batch_norm_layers
from surgeon.surgery.branches import mix_of, prediction_by

EPOCHS, RATE = 5, 1e-3
DIVERSITY_KEPT = 0.8
"""Of the classes predicted at the start, in their effective number; with fewer, predictions have collapsed."""


class Certainty(BaseModel):
    """What a network predicts for the images, without knowing their labels."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    entropy: float
    """Mean over images, in nats."""
    confidence: float
    """Mean over images of the largest probability."""
    classes: float
    """Effective number of predicted classes: the exponential of the entropy of their shares."""


class EntropyResult(BaseModel):
    """What entropy minimisation did to a network."""

    model_config = ConfigDict(frozen=True)

    images: int
    layers: int
    parameters: int
    lr: float
    epochs: int
    """Whose result the network holds; fewer than were asked for if predictions collapsed."""
    before: Certainty
    after: Certainty
    trace: tuple[Certainty, ...]
    """After every epoch, that of a collapse included."""
    changed: float
    """Share of images that are now given to another class."""
    collapsed: bool
    notes: tuple[str, ...] = ()
    """What else to know about it, in sentences."""


def mean_entropy(logits: Tensor) -> Tensor:
    """The entropy of each row's softmax, in nats, averaged over rows."""
    logs = logits.log_softmax(-1)
    return -(logs.exp() * logs).sum(-1).mean()


def minimise_entropy(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    epochs: int = EPOCHS,
    lr: float = RATE,
    progress: Progress = say_nothing,
) -> EntropyResult:
    """Adapt the gamma and beta of a network's BatchNorm layers to unlabelled images, in place.

    Everything else stays, running statistics included. Each batch is one step, in the order given: batches should be
    of all classes, so shuffle what is sorted. If it fails, the network is as before.

    Args:
        model: A classifier; a split network's main branch is adapted.
        batches: Of images, labels not needed: each the network's input, or a tuple or list that starts with it.
        epochs: How often to go through them.
        lr: Learning rate of Adam.
        progress: Told of every epoch.
    """
    _check(model, epochs, lr)
    if isinstance(batches, Iterator):
        batches = list(batches)  # each epoch needs them again
    parameters, layers = _affine(model)
    start = _values(parameters)
    try:
        with evaluating(model), _only_learning(model, parameters):
            outcome = _descend(model, parameters, batches, epochs, lr, progress)
    except BaseException:
        _fill(parameters, start)
        raise
    first, last = outcome.seen[0], outcome.seen[outcome.kept]
    return EntropyResult(
        images=len(first.labels),
        layers=layers,
        parameters=sum(parameter.numel() for parameter in parameters),
        lr=lr,
        epochs=outcome.kept,
        before=first.certainty,
        after=last.certainty,
        trace=tuple(one.certainty for one in outcome.seen[1:]),
        changed=float((first.labels != last.labels).double().mean()),
        collapsed=outcome.kept < len(outcome.seen) - 1,
        notes=_notes(model),
    )


def _check(model: nn.Module, epochs: int, lr: float) -> None:
    if epochs < 1:
        raise SurgeonError(f"Entropy cannot be minimised in {epochs} epochs.", "Take 1 or more.")
    if not (math.isfinite(lr) and lr > 0):
        raise SurgeonError(f"The learning rate cannot be {lr:g}.", f"The usual one is {RATE:g}.")
    if mix_of(model) is not None:
        raise SurgeonError(
            "The network predicts by both of its branches, and entropy minimisation adapts one.",
            "Merge them first (surgeon merge), or let it predict by the main branch alone.",
        )


def _notes(model: nn.Module) -> tuple[str, ...]:
    if prediction_by(model) is None:
        return ()
    return ("Only the main branch was adapted; the auxiliary branch keeps its gamma and beta.",)


def _affine(model: nn.Module) -> tuple[list[nn.Parameter], int]:
    """Gamma and beta of every BatchNorm that has them as parameters, and of how many layers."""
    found: dict[nn.Parameter, None] = {}
    layers = 0
    for layer in batch_norm_layers(model):
        values = (getattr(layer.module, name, None) for name in ("weight", "bias"))
        own = [value for value in values if isinstance(value, nn.Parameter)]
        found |= dict.fromkeys(own)
        layers += bool(own)
    if not found:
        raise SurgeonError("The network has no BatchNorm layer with a gamma and beta that could be adapted.")
    return list(found), layers


class _Seen(NamedTuple):
    certainty: Certainty
    labels: Tensor


class _Outcome(NamedTuple):
    seen: list[_Seen]
    """At the start and after every epoch."""
    kept: int
    """Which of them the network is left at."""


def _descend(
    model: nn.Module,
    parameters: list[nn.Parameter],
    batches: Iterable[Any],
    epochs: int,
    lr: float,
    progress: Progress,
) -> _Outcome:
    seen = [_look(model, batches)]
    if not math.isfinite(seen[0].certainty.entropy):
        raise SurgeonError("The network predicts NaN for some of the images, so their entropy cannot be minimised.")
    optimiser = torch.optim.Adam(parameters, lr=lr)
    for epoch in range(1, epochs + 1):
        good = _values(parameters)
        for images in _inputs(model, batches):
            optimiser.zero_grad(set_to_none=True)
            mean_entropy(_logits(model, images)).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        seen.append(_look(model, batches))
        progress("epochs", epoch, epochs)
        if _collapsed(seen[0].certainty, seen[-1].certainty):
            _fill(parameters, good)
            return _Outcome(seen, epoch - 1)
    return _Outcome(seen, epochs)


def _collapsed(start: Certainty, now: Certainty) -> bool:
    return not math.isfinite(now.entropy) or now.classes < DIVERSITY_KEPT * start.classes


@torch.no_grad()
def _look(model: nn.Module, batches: Iterable[Any]) -> _Seen:
    """What the network predicts for all images; sums are of float64."""
    logs = [_logits(model, images).double().log_softmax(-1).cpu() for images in _inputs(model, batches)]
    if not logs:
        raise SurgeonError("The loader gave no batches to minimise the entropy of.")
    rows = torch.cat(logs)
    if rows.dim() != 2 or rows.shape[1] < 2:
        raise SurgeonError(f"Outputs of shape {tuple(rows.shape)} are not those of a classifier with several classes.")
    probabilities, labels = rows.exp(), rows.argmax(1)
    shares = labels.bincount().double() / len(labels)
    certainty = Certainty(
        entropy=float(torch.special.entr(probabilities).sum(1).mean()),
        confidence=float(probabilities.amax(1).mean()),
        classes=float(torch.special.entr(shares).sum().exp()),
    )
    return _Seen(certainty, labels)


def _logits(model: nn.Module, images: Tensor) -> Tensor:
    answer = logits_in(model(images), len(images))
    if not isinstance(answer, Tensor):
        raise SurgeonError(f"The network returns a {type(answer).__name__}, which contains no logits.")
    return answer


def _inputs(model: nn.Module, batches: Iterable[Any]) -> Iterator[Tensor]:
    device = next(model.parameters()).device
    for batch in batches:
        images: Tensor = input_of(batch)
        if len(images):
            yield images.to(device)


@contextmanager
def _only_learning(model: nn.Module, parameters: list[nn.Parameter]) -> Iterator[None]:
    """Gradients for these parameters alone; afterwards every parameter is as it was, without a gradient of ours."""
    before = {parameter: (parameter.requires_grad, parameter.grad) for parameter in model.parameters()}
    for parameter in before:
        parameter.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        with torch.enable_grad():
            yield
    finally:
        for parameter, (wanted, gradient) in before.items():
            parameter.requires_grad_(wanted)
            parameter.grad = gradient


def _values(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


@torch.no_grad()
def _fill(parameters: list[nn.Parameter], values: list[Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.copy_(value)
