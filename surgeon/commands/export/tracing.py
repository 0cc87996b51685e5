"""A network as one graph: what every format but timm's is written from."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from surgeon.core.errors import ExitCode, SurgeonError

INPUT, OUTPUT, BATCH = "images", "logits", "batch"


class WithItsHooks(nn.Module):
    """A network as a part of another, so that hooks of the whole network (temperature, mix) are traced too."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Any:
        return self.network(images)


def trace(network: nn.Module, images: Tensor) -> ExportedProgram:
    """The graph of a network in evaluation, for any number of images at a time."""
    # Of a copy: a network that caches tensors would go on with those of the tracer.
    return _export(WithItsHooks(copy.deepcopy(network)).eval(), images)


def trace_again(graph: torch.fx.GraphModule, images: Tensor) -> ExportedProgram:
    """The graph of a graph that was changed."""
    return _export(graph, images)


def _export(module: nn.Module, images: Tensor) -> ExportedProgram:
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is traced is compared
            return torch.export.export(
                module, (images[:2],), dynamic_shapes=({0: Dim(BATCH, min=1)},), strict=False
            )  # fmt: skip
    except Exception as error:  # it has no base class of its own
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SurgeonError(
            f"torch.export cannot make one graph of this network: {reason}", exit_code=ExitCode.FAILED
        ) from error
