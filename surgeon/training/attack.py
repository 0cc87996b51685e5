"""Adversarial copies of training batches: the attacks of the robustness lab, on the network as it is at this step.

The network is attacked in evaluation mode, through the branch that the copies will take, and is then as it was: its
mode, its gradients and its running statistics. It is trained on what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from surgeon.conditions.attacks.network import attacked
from surgeon.conditions.base import Asked
from surgeon.layers.router import Branch
from surgeon.measuring.conditions import pixels_of, renormalise
from surgeon.models.origin import Preprocessing
from surgeon.surgery.branches import branch


@dataclass(frozen=True)
class TrainingAttack:
    """Makes adversarial copies.

    Args:
        asked: The attack.
        model: The network, not wrapped for several processes.
        preprocessing: Of its images.
        auxiliary: Whether the copies take the auxiliary branch.
        predictions: Move images away from what the network says of them, not from their labels.
    """

    asked: Asked
    model: nn.Module
    preprocessing: Preprocessing
    auxiliary: bool = False
    predictions: bool = False

    def __call__(self, images: Tensor, targets: Tensor, indices: Tensor, seed: int) -> Tensor:
        """Normalised images (N, C, H, W), attacked.

        What is random follows from seed and indices. Targets are class numbers (N,) or shares (N, classes).
        """
        pixels = pixels_of(images, self.preprocessing)
        with (
            attacked(self.model, self.preprocessing, images.device) as network,
            branch(self.model, Branch.AUXILIARY) if self.auxiliary else nullcontext(),
            _wide_enough(self.model, images.device),
        ):
            if self.predictions:
                with torch.no_grad():
                    targets = network(pixels).float().softmax(1)
            labels, shares = (targets, None) if targets.dim() == 1 else (targets.argmax(1), targets)
            found = self.asked.apply(pixels, labels, indices, seed, network, shares)
        return renormalise(found, self.preprocessing)


@contextmanager
def _wide_enough(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Gradients with respect to images would underflow in float16, where no scaler looks after them.

    accelerate puts an autocast of its own around the forward of a network that it has prepared, and keeps the original.
    """
    if not (torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) is torch.float16):
        yield
        return
    prepared, original = (vars(model).get(name) for name in ("forward", "_original_forward"))
    try:
        if original is not None:
            model.forward = original
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        if original is not None:
            model.forward = prepared  # type: ignore[assignment]
