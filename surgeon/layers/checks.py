"""What a layer refuses: inputs that the layer it stands for refuses, and settings that mean nothing."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from surgeon.core.errors import SurgeonError

DIMENSIONS = {
    "BatchNorm1d": (2, 3),
    "BatchNorm2d": (4,),
    "BatchNorm3d": (5,),
    "BatchNormAct2d": (4,),
    "FrozenBatchNorm2d": (4,),
    "FrozenBatchNormAct2d": (4,),
}
"""How many dimensions each class of layers accepts; others accept any from two on."""


def check_dimensions(x: Tensor, accepted: tuple[int, ...] | None) -> None:
    """In the words of torch's BatchNorm."""
    if x.dim() < 2 if accepted is None else x.dim() not in accepted:
        expected = "at least 2D" if accepted is None else " or ".join(f"{number}D" for number in accepted)
        raise ValueError(f"expected {expected} input (got {x.dim()}D input)")


def check_channels(x: Tensor, channels: int) -> None:
    """Neither the kernels nor broadcasting would notice."""
    if x.dim() < 2 or x.shape[1] != channels:
        raise RuntimeError(f"Expected an input of {channels} channels, got one of shape {tuple(x.shape)}")


def check_alpha(alpha: float | Sequence[float], channels: int) -> None:
    """Refuse what is no weight: the variance would be negative, or everything NaN."""
    values = alpha if isinstance(alpha, Sequence) else [alpha]
    try:
        wrong = [value for value in values if not 0 <= value <= 1]  # NaN is neither
    except (TypeError, ValueError, RuntimeError):  # of None, of arrays, of tensors
        raise SurgeonError(
            f"alpha is a number or a list of numbers, one per channel, not {type(alpha).__name__}.",
            "Tensors and arrays become lists with .tolist().",
        ) from None
    if wrong:
        raise SurgeonError(f"alpha is a weight from 0 to 1, not {wrong[0]}.")
    if isinstance(alpha, Sequence) and len(alpha) != channels:
        raise SurgeonError(f"The layer has {channels} channels, but alpha lists {len(alpha)} values.")
