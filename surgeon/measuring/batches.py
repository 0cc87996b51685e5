"""What people's loaders and networks give, as images, class numbers and logits, or what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.data.loaders import Batch

IMAGE_KEYS = ("image", "images", "img", "pixel_values")
LABEL_KEYS = ("label", "labels", "target", "targets")
OTHER_TYPE = re.compile(r"\bd?types?\b")
"""What torch says where images and weights are not of one type: "Input type (double) and bias type (float)…"."""
PAIRS = 'Pairs will do, and dictionaries with "image" and "label".'
UNLABELLED = 'Tensors, pairs (images, labels) and dictionaries with "image" will do.'


def as_batches(given: Iterable[Any]) -> Iterator[Batch]:
    """Batches that hold images, from anything that gives (images, labels)."""
    seen = 0
    for item in checked_loader(given):
        batch = item if isinstance(item, Batch) else _as_batch(item, seen)
        seen += len(batch.labels)
        if len(batch.labels):
            yield batch


def checked_loader(given: Any) -> Iterable[Any]:
    """Something that gives batches one after the other."""
    if not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        kind = _kind(given)
        raise SurgeonError(
            f"{kind[0].upper()}{kind[1:]} gives no batches.", "Pass a DataLoader, or a list of (images, labels)."
        )
    loader: Iterable[Any] = given
    return loader


def _as_batch(item: Any, first: int) -> Batch:
    """From a pair, or from a dictionary with the names that Hugging Face's data sets use."""
    if isinstance(item, Mapping):
        keys = [next((key for key in known if key in item), None) for known in (IMAGE_KEYS, LABEL_KEYS)]
        parts = [item[key] for key in keys if key is not None]
        found = f"a dictionary of {listing(map(str, item))}"
    else:
        parts = list(item[:2]) if isinstance(item, Sequence) and not isinstance(item, str | bytes) else []
        found = _kind(item)
    if len(parts) < 2:
        raise SurgeonError(f"Batches have to be (images, labels), and this one is {found}.", PAIRS)
    images, labels = _images(parts[0]), _labels(parts[1])
    if len(images) != len(labels):
        raise SurgeonError(
            f"A batch has {count(len(images), 'image')} and {count(len(labels), 'label')}.", "Give one label per image."
        )
    return Batch(images, labels, torch.arange(first, first + len(labels)))


def images_in(batch: Any) -> Tensor:
    """The images of a batch that may have no labels: alone, first in a pair, or in a dictionary."""
    if isinstance(batch, Batch):
        return batch.images
    if isinstance(batch, Mapping):
        key = next((key for key in IMAGE_KEYS if key in batch), None)
        if key is None:
            raise SurgeonError(f"A batch is a dictionary of {listing(map(str, batch))}, without images.", UNLABELLED)
        return _images(batch[key])
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes) and len(batch):
        return _images(batch[0])
    if not isinstance(batch, Tensor) and not _is_array(batch):
        raise SurgeonError(f"A batch has to be a tensor of images, and this one is {_kind(batch)}.", UNLABELLED)
    return _images(batch)


def _images(given: Any) -> Tensor:
    images = torch.from_numpy(given) if _is_array(given) else given
    if not isinstance(images, Tensor):
        raise SurgeonError(
            f"The images of a batch have to be one tensor, and these are {_kind(given)}.",
            "Stack images of one size with torch.stack. Detection networks, which take lists, cannot be measured here.",
        )
    if images.dim() == 0:
        raise SurgeonError("The images of a batch are a single number.", "Their first dimension counts them.")
    return images


def _labels(given: Any) -> Tensor:
    """One whole number per image."""
    labels = given
    numbers = isinstance(given, list | tuple) and all(isinstance(one, int | np.integer) for one in given)
    if numbers or _is_array(given):
        labels = torch.as_tensor(given)
    if not isinstance(labels, Tensor):
        raise SurgeonError(
            f"The labels of a batch have to be one class number per image, and these are {_kind(given)}.",
            _hint_about_labels(given),
        )
    if labels.dim() == 0:
        raise SurgeonError(
            "The label of a batch is a single number.", "Batches come from a DataLoader: wrap the data set in one."
        )
    if labels.dim() > 1:
        shape = "x".join(map(str, labels.shape))
        raise SurgeonError(
            f"Labels have to be one class number per image, and these have the shape {shape}.",
            _hint_about_shape(labels),
        )
    if labels.is_floating_point() or labels.is_complex():
        raise SurgeonError(
            f"Labels have to be class numbers, and these are {_type(labels)}.", "Convert them with labels.long()."
        )
    return labels.long()


def _hint_about_labels(given: Any) -> str:
    if isinstance(given, int):
        return "Batches come from a DataLoader: wrap the data set in one."
    first = given[0] if isinstance(given, list | tuple) and given else given
    if isinstance(first, Mapping):
        return "Boxes, masks and several labels per image cannot be measured here: give the class numbers alone."
    if isinstance(first, str | bytes):
        return "Replace names by the numbers that the network has for them."
    return "Pass a tensor of whole numbers."


def _hint_about_shape(labels: Tensor) -> str:
    if labels.dim() == 2 and labels.shape[1] == 1:  # argmax would make all of them class 0
        return "Drop the second dimension: labels[:, 0]."
    if labels.dim() == 2:
        return "One-hot and mixed labels become class numbers with labels.argmax(1)."
    return "Masks and boxes cannot be measured here."


def checked_network(model: Any) -> nn.Module:
    """A network, not its name or a function."""
    if not isinstance(model, nn.Module):
        raise SurgeonError(
            f"The network has to be an nn.Module, and this is {_kind(model)}.",
            "surgeon.load opens a checkpoint folder, timm.create_model a name.",
        )
    return model


def check_logits(logits: Any, images: int) -> None:
    """Refuse what is not one row of class scores per image."""
    if not isinstance(logits, Tensor):
        raise SurgeonError(
            f"The network answers with {_kind(logits)}, not with one tensor of logits.",
            "Wrap it in a module that gives the logits alone.",
        )
    if logits.dim() != 2 or len(logits) != images or logits.shape[1] == 0 or logits.is_complex():
        shape = "x".join(map(str, logits.shape)) or "of a single number"
        raise SurgeonError(
            f"For {count(images, 'image')} the network answers with {_type(logits)} of the shape {shape}, not with one "
            "row of logits per image.",
            "Wrap it in a module that gives images x classes.",
        )


@contextmanager
def refusing_other_types(images: Tensor) -> Iterator[None]:
    """Most networks fail on numbers of another type, and their errors name neither the images nor what to do."""
    try:
        yield
    except (RuntimeError, TypeError) as error:
        if images.is_floating_point() and not OTHER_TYPE.search(str(error)):
            raise
        reason = next(iter(str(error).splitlines()), "").rstrip(".")
        raise SurgeonError(
            f"The network cannot take images of {_type(images)}: {reason}.",
            "Convert them to the type of its weights (images.float() for float32)."
            if images.is_floating_point()
            else "Convert them to float32 and normalise them as the network expects.",
        ) from error


def _is_array(given: Any) -> bool:
    return isinstance(given, np.ndarray) and given.dtype.kind in "biuf"


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _kind(given: Any) -> str:
    """What something is, and what it holds if it is a list: `a list of Tensor`."""
    name = type(given).__name__
    article = "an" if name[0] in "aeiouAEIOU" else "a"
    content = f" of {type(given[0]).__name__}" if isinstance(given, list | tuple) and given else ""
    return f"{article} {name}{content}"
