"""Run a network for a moment, whatever its output is wrapped in, and leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def flatten(output: Any) -> Iterator[Tensor]:
    """The tensors in a network's output, whatever it is wrapped in."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from flatten(value)
    elif isinstance(output, Sequence) and not isinstance(output, str):
        for value in output:
            yield from flatten(value)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Evaluation mode for a while; afterwards every module is as before."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield model
    finally:
        for module in training:
            module.training = True


def evaluate_once(model: nn.Module, inputs: tuple[Any, ...]) -> list[Tensor]:
    """The tensors of one evaluation."""
    with evaluating(model), torch.inference_mode():
        return [t.clone() for t in flatten(model(*inputs))]
