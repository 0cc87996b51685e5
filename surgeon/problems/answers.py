"""What networks answer with: described where it is refused."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from surgeon.core.errors import SurgeonError, count


def check_logits(logits: Any, images: int) -> None:
    """Refuse what is not one row of class scores per image."""
    if not isinstance(logits, Tensor):
        raise SurgeonError(
            f"The network returns {kind(logits)}, not one tensor of logits.",
            "Wrap it in a module that gives the logits alone, or pass score=.",
        )
    if logits.dim() != 2 or len(logits) != images or logits.shape[1] == 0 or logits.is_complex():
        shape = "x".join(map(str, logits.shape)) or "of a single number"
        raise SurgeonError(
            f"For {count(images, 'image')} the network returns {type_of(logits)} of the shape {shape}, not one "
            "row of logits per image.",
            "Wrap it in a module that gives images x classes.",
        )


def type_of(tensor: Tensor) -> str:
    """Of its numbers."""
    return str(tensor.dtype).removeprefix("torch.")


def kind(given: Any) -> str:
    """What something is, and what it holds if it is a list: `a list of Tensor`."""
    name = type(given).__name__
    article = "an" if name[0] in "aeiouAEIOU" else "a"
    content = f" of {type(given[0]).__name__}" if isinstance(given, list | tuple) and given else ""
    return f"{article} {name}{content}"
