"""Where and how to compute: device and precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Any

import torch

from surgeon.core.errors import SurgeonError


class Precision(StrEnum):
    """In what the network computes."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Engine(StrEnum):
    """What computes the network."""

    TORCH = "torch"
    ONNXRUNTIME = "onnxruntime"


def pick_device(name: str | None = None) -> torch.device:
    """The named device, or the fastest that is there."""
    available = ["cpu"]
    if torch.backends.mps.is_available():
        available.insert(0, "mps")
    if torch.cuda.is_available():
        available.insert(0, "cuda")
    if name is None:
        return torch.device(available[0])
    if name.split(":")[0] not in available:
        raise SurgeonError(f"This machine has no device {name!r}.", f"Choose from: {', '.join(available)}.")
    return torch.device(name)


def usable_precision(precision: Precision, device: torch.device) -> Precision:
    """Half precision only on accelerators: on many CPUs it is emulated, on some it ends the process."""
    return Precision.FLOAT32 if device.type == "cpu" else precision


def computing_in(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Autocast to a precision, or nothing for float32."""
    if precision is Precision.FLOAT32:
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, precision.value))
