"""A network as what an attack sees of it: logits as a differentiable function of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from surgeon.conditions.attacks.ascent import Logits
from surgeon.layers.running import evaluating
from surgeon.models.origin import Preprocessing


@contextmanager
def attacked(model: nn.Module, preprocessing: Preprocessing, device: torch.device) -> Iterator[Logits]:
    """The logits of a network in evaluation mode, as a function of pixels between 0 and 1.

    Gradients are computed with respect to images only. Afterwards the network is as before: its mode, the
    gradients of its parameters and whether they want any, its buffers, and the generators that it may draw from.
    """

    def logits(pixels: Tensor) -> Tensor:
        # Made here, because what is made in inference mode cannot take part in a backward pass.
        mean, std = (
            torch.tensor(values, dtype=pixels.dtype, device=pixels.device).view(-1, 1, 1)
            for values in (preprocessing.mean, preprocessing.std)
        )
        found: Tensor = model((pixels - mean) / std)
        return found

    drawing_from = [device] if device.type == "cuda" else []
    with (
        torch.inference_mode(False),
        torch.random.fork_rng(drawing_from),
        evaluating(model),
        _without_parameter_gradients(model),
        _ordinary_buffers(model),
    ):
        yield logits


@contextmanager
def _without_parameter_gradients(model: nn.Module) -> Iterator[None]:
    """Also makes it impossible that a backward pass of somebody else's attack adds to them."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)


@contextmanager
def _ordinary_buffers(model: nn.Module) -> Iterator[None]:
    """What was set in inference mode, as the value of a swept option is, cannot take part in a backward pass."""
    special = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if buffer.is_inference()
    ]
    for module, name, buffer in special:
        setattr(module, name, buffer.clone())
    try:
        yield
    finally:
        for module, name, buffer in special:
            setattr(module, name, buffer)
