"""What people's loaders give to a network, and what the network answers, whatever both are wrapped in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from surgeon.core.errors import SurgeonError, listing

INPUT_KEYS = ("image", "images", "img", "pixel_values", "input", "inputs")
"""Under which a batch that is a dictionary holds what the network takes."""
MAIN_HEAD = "out"
"""Under which torchvision's networks with several heads answer with their main one."""


def input_of(batch: Any) -> Any:
    """The input in a batch: the batch itself, the first of a tuple or list, or the images of a dictionary."""
    if isinstance(batch, Mapping):
        key = next((key for key in INPUT_KEYS if key in batch), None)
        if key is None:
            raise SurgeonError(
                f"A batch is a dictionary of {listing(map(str, batch))}, without images.",
                f"They are looked for under {listing(INPUT_KEYS, 'or')}.",
            )
        return batch[key]
    return batch[0] if isinstance(batch, tuple | list) and len(batch) else batch


def logits_in(answer: Any, images: int) -> Any:
    """The logits in what a network answers: its `.logits`, or the tensor that has one row per image.

    Several tensors of the same shape in a tuple are taken for a main and auxiliary heads, of which the first counts; in
    a dictionary `out` is the main one, as in torchvision, and without it they are refused, as are those of
    different shapes. An answer without any is given back as it is.

    Args:
        answer: A tensor, a Hugging Face output, a dictionary, a tuple or a list.
        images: How many were predicted.
    """
    if isinstance(answer, Tensor):
        return answer
    named = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    if isinstance(named, Tensor):
        return named
    parts: dict[str, Any] = {}
    if isinstance(answer, Mapping):
        parts = {str(name): part for name, part in answer.items()}
    elif isinstance(answer, Sequence) and not isinstance(answer, str):
        parts = {f"number {place}": part for place, part in enumerate(answer)}
    rows = {name: part for name, part in parts.items() if _has_rows(part, images)}
    unordered = isinstance(answer, Mapping) and len(rows) > 1
    if unordered and MAIN_HEAD in rows:
        return rows[MAIN_HEAD]
    if unordered or len({tuple(part.shape) for part in rows.values()}) > 1:
        shapes = (f"{name} ({'x'.join(map(str, part.shape))})" for name, part in rows.items())
        raise SurgeonError(
            f"The network returns several tensors that may be logits: {listing(shapes)}.",
            "Wrap it in a module that gives the logits alone, or pass score=.",
        )
    return next(iter(rows.values()), answer)


def _has_rows(part: Any, images: int) -> bool:
    return isinstance(part, Tensor) and part.dim() == 2 and len(part) == images


def moved(content: Any, device: torch.device) -> Any:
    """Tensors on a device, also those in dictionaries, lists and tuples; anything else as it is."""
    if isinstance(content, Tensor):
        return content.to(device, non_blocking=True)
    if isinstance(content, Mapping):
        parts = {name: moved(part, device) for name, part in content.items()}
        try:
            return type(content)(**parts)  # a Hugging Face output stays one
        except TypeError:
            return parts
    if isinstance(content, list | tuple):
        together = [moved(part, device) for part in content]
        try:
            return type(content)(together)
        except TypeError:  # a named tuple takes its fields one by one
            return type(content)(*together)
    return content


def copied(inputs: Any) -> Any:
    """What a network may write into without changing what it was given: a tensor, or a list of them."""
    return [one.clone() for one in inputs] if isinstance(inputs, list) else inputs.clone()
