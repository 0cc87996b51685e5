"""Alpha of every layer or channel, fitted by gradient while the weights stay as they are.

The loss is the cross-entropy. Unless the plain cross-entropy is what the user asked for, a temperature
is fitted along with alpha: otherwise most of what alpha would learn is to be less sure, which one
number after the network does as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.data.loaders import Batch
from surgeon.layers.running import evaluating
from surgeon.layers.surgical import SurgicalNorm
from surgeon.layers.wrapped import logits_in
from surgeon.results import Learning

STEPS = 80
FEWEST_EPOCHS = 2
RATE = 0.03


class RepeatableBatches(Protocol):
    """RepeatableBatches that can be gone through several times."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int: ...


def epochs_for(batches: int) -> int:
    """How often to go through the images: enough steps on few of them, twice through many."""
    return max(math.ceil(STEPS / batches), FEWEST_EPOCHS)


def learn_alphas(
    model: nn.Module,
    layers: Mapping[str, SurgicalNorm],
    batches: RepeatableBatches,
    epochs: int,
    kind: Learning,
    start: float,
    with_temperature: bool,
    outputs: tuple[int, ...] | None,
    progress: Callable[[int, int], None],
) -> dict[str, float | tuple[float, ...]]:
    """The fitted alphas by layer name; `outputs` are those that labels count, if not all in their order."""
    alphas = {name: _start(layer, kind, start) for name, layer in layers.items()}
    device = next(iter(alphas.values())).device
    log_temperature = torch.zeros((), device=device, requires_grad=True)
    optimiser = torch.optim.Adam([*alphas.values(), log_temperature], lr=RATE, betas=(0.9, 0.99))
    steps = len(batches)
    with evaluating(model), _frozen(model), torch.enable_grad():
        for number in range(epochs):
            for done, batch in enumerate(batches, 1):
                if not len(batch.labels):
                    continue
                for name, layer in layers.items():
                    layer.compute_with(alphas[name].expand(layer.num_features))
                logits = logits_in(model(batch.images.to(device)), len(batch.labels))
                if outputs is not None:
                    logits = logits[:, list(outputs)]
                loss = F.cross_entropy(
                    logits / log_temperature.exp() if with_temperature else logits, batch.labels.to(device)
                )
                _step(optimiser, loss, rate=RATE * _cosine((number + done / steps) / epochs))
                for alpha in alphas.values():
                    alpha.data.clamp_(0, 1)
                progress(number * steps + done, epochs * steps)
    return {name: _plain(alpha) for name, alpha in alphas.items()}


def _start(layer: SurgicalNorm, kind: Learning, value: float) -> Tensor:
    numbers = 1 if kind is Learning.PER_LAYER else layer.num_features
    return torch.full((numbers,), value, device=layer.alpha.device, requires_grad=True)


def _step(optimiser: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    if not torch.isfinite(loss):
        raise SurgeonError("The network gives NaN logits, so alpha cannot be fitted.")
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def _cosine(done: float) -> float:
    """A rate that falls from 1 to 0."""
    return (1 + math.cos(math.pi * done)) / 2


def _plain(alpha: Tensor) -> float | tuple[float, ...]:
    values = tuple(round(value, 6) for value in alpha.detach().cpu().tolist())
    return values[0] if len(values) == 1 else values


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """No gradients for the weights, which stay as they are."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
