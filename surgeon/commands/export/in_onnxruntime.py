"""A network that onnxruntime computes, in the place of the one that torch computes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from surgeon.commands.export.onnx_file import ONNX
from surgeon.commands.export.tracing import trace
from surgeon.core.devices import Engine, Precision
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.layers.running import evaluating
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork
from surgeon.surgery.branches import prediction_by
from surgeon.surgery.parity import relative_difference

TOLERANCE = 1e-4
"""How far its logits may be from torch's: other programs add up in another order."""


class InOnnxruntime(nn.Module):
    """The same function of images, written as ONNX. What it answers first is compared with torch."""

    def __init__(self, network: nn.Module, images: Tensor) -> None:
        super().__init__()
        self.difference: float | None = None
        """The largest between its logits and torch's on the first batch, once that has been seen."""
        self._network = [network]  # in a list: not a part of this one
        program = trace(network, images)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"network{ONNX.suffix}")
            ONNX.write(program, path, "")
            self._run = ONNX.open(path)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor
        (logits,) = self._run(images)
        if self.difference is None:
            self.difference = self._checked(logits, images)
        return logits

    def _checked(self, logits: Tensor, images: Tensor) -> float:
        with evaluating(self._network[0]):
            expected = self._network[0](images)
        gap = torch.where((logits == expected) | (logits.isnan() & expected.isnan()), 0.0, (logits - expected).abs())
        difference = float(gap.max())
        if not difference <= TOLERANCE:
            raise SurgeonError(
                f"Logits of onnxruntime differ from torch's by {difference:.2g}, more than {TOLERANCE:g}.",
                f"Leave --engine {Engine.ONNXRUNTIME} out.",
                ExitCode.VERIFICATION,
            )
        return difference


def check_request(request: InferenceRequest) -> None:
    """Refuse what cannot be done, before anything is loaded."""
    ONNX.check_installed(f"--engine {Engine.ONNXRUNTIME}")
    if request.device not in (None, "cpu"):
        raise SurgeonError(
            f"--engine {Engine.ONNXRUNTIME} computes on the CPU, not on {request.device}.", "Leave --device out."
        )
    if request.precision is not Precision.FLOAT32:
        raise SurgeonError(f"--engine {Engine.ONNXRUNTIME} computes in float32.", "Leave --precision out.")


def in_onnxruntime(prepared: PreparedNetwork) -> InOnnxruntime:
    """The network for onnxruntime, if it answers alike whenever and with whatever images it is asked."""
    if prediction_by(prepared.model) is not None:
        raise _refusal("it has two branches")
    if prepared.image_set.masks is not None:
        raise _refusal("it segments")
    images = torch.randn(4, *prepared.network_preprocessing.input_size, generator=torch.Generator().manual_seed(0))
    with evaluating(prepared.model), torch.no_grad():
        answer, again, alone = (prepared.model(some) for some in (images, images, images[:1]))
    if not isinstance(answer, Tensor):
        raise _refusal(f"it returns a {type(answer).__name__}, not a tensor of logits")
    if not torch.equal(answer, again):
        raise _refusal("its outputs for the same images differ from call to call")
    if relative_difference(answer[:1], alone) > TOLERANCE:
        raise _refusal("its prediction for an image depends on the others in the batch")
    try:
        return InOnnxruntime(prepared.model, images)
    except Exception as error:  # of exporter or onnxruntime, which have no base class of their own
        raise _refusal(_first_line(error)) from error


def _refusal(reason: str) -> SurgeonError:
    return SurgeonError(
        f"onnxruntime cannot compute this network: {reason}.", f"Leave --engine {Engine.ONNXRUNTIME} out."
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
