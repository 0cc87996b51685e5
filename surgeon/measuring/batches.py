"""What people's loaders and networks give, as images, class numbers and logits, or what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.data.loaders import Batch
from surgeon.data.masks import USUAL_VOID, VOID
from surgeon.layers.wrapped import INPUT_KEYS, input_of
from surgeon.problems import CLASSIFICATION, SEGMENTATION, Problem
from surgeon.problems.answers import kind, type_of

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


def with_problem(batches: Iterator[Batch]) -> tuple[Iterator[Batch], Problem]:
    """The same batches, and the problem that their labels tell."""
    first = next(batches, None)
    if first is None:
        return iter(()), CLASSIFICATION
    return chain([first], batches), SEGMENTATION if first.labels.dim() == 3 else CLASSIFICATION


def as_samples(given: Iterable[Any]) -> Iterator[Batch]:
    """Batches for a score of the user's own: what the network takes, a tensor or a list, and targets of any kind."""
    seen = 0
    for item in checked_loader(given):
        inputs, target = _parts(item)
        if not isinstance(inputs, list):
            inputs = _images(inputs)
        elif not all(isinstance(one, Tensor) for one in inputs):
            raise SurgeonError(f"The inputs of a batch are {kind(inputs)}.", "Give a tensor, or a list of tensors.")
        target = torch.as_tensor(target) if _is_array(target) else target
        if isinstance(target, Tensor | list | tuple) and (not _length(target) or len(target) != len(inputs)):
            raise SurgeonError(
                f"A batch has {count(len(inputs), 'sample')} and {count(_length(target), 'target')}.",
                "Give one target per sample.",
            )
        if len(inputs):
            # A batch of this project holds tensors; here both go on to the network and to the score as they are.
            yield Batch(cast("Tensor", inputs), cast("Tensor", target), torch.arange(seen, seen + len(inputs)))
        seen += len(inputs)


def _length(target: Any) -> int:
    return 0 if isinstance(target, Tensor) and target.dim() == 0 else len(target)


def checked_loader(given: Any) -> Iterable[Any]:
    """Something that gives batches one after the other."""
    if not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        what = kind(given)
        raise SurgeonError(
            f"{what[0].upper()}{what[1:]} gives no batches.", "Pass a DataLoader, or a list of (images, labels)."
        )
    loader: Iterable[Any] = given
    return loader


def _as_batch(item: Any, first: int) -> Batch:
    images, labels = _parts(item)
    images, labels = _images(images), _labels(labels)
    if len(images) != len(labels):
        raise SurgeonError(
            f"A batch has {count(len(images), 'image')} and {count(len(labels), 'label')}.", "Give one label per image."
        )
    return Batch(images, labels, torch.arange(first, first + len(labels)))


def _parts(item: Any) -> tuple[Any, Any]:
    """Images and labels from a pair, or from a dictionary with the names that Hugging Face's data sets use."""
    if isinstance(item, Mapping):
        keys = [next((key for key in known if key in item), None) for known in (INPUT_KEYS, LABEL_KEYS)]
        parts = [item[key] for key in keys if key is not None]
        found = f"a dictionary of {listing(map(str, item))}"
    else:
        parts = list(item[:2]) if isinstance(item, Sequence) and not isinstance(item, str | bytes) else []
        found = kind(item)
    if len(parts) < 2:
        raise SurgeonError(f"Batches have to be (images, labels), and this one is {found}.", PAIRS)
    return parts[0], parts[1]


def images_in(batch: Any) -> Tensor:
    """The images of a batch that may have no labels: alone, first in a pair, or in a dictionary."""
    if isinstance(batch, Batch):
        return batch.images
    if isinstance(batch, Mapping):
        return _images(input_of(batch))
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes) and len(batch):
        return _images(batch[0])
    if not isinstance(batch, Tensor) and not _is_array(batch):
        raise SurgeonError(f"A batch has to be a tensor of images, and this one is {kind(batch)}.", UNLABELLED)
    return _images(batch)


def _images(given: Any) -> Tensor:
    images = torch.from_numpy(given) if _is_array(given) else given
    if not isinstance(images, Tensor):
        raise SurgeonError(
            f"The images of a batch have to be one tensor, and these are {kind(given)}.",
            "Stack images of one size with torch.stack; with score=, evaluate and sweep also take lists.",
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
            f"The labels of a batch have to be one class number per image, and these are {kind(given)}.",
            _hint_about_labels(given),
        )
    if labels.dim() == 0:
        raise SurgeonError(
            "The label of a batch is a single number.", "Batches come from a DataLoader: wrap the data set in one."
        )
    if labels.dim() == 2 and _is_one_hot(labels):
        return labels.argmax(1)
    if labels.dim() == 3 and not (labels.is_floating_point() or labels.is_complex()):
        return _masks(labels)
    if labels.dim() > 1:
        shape = "x".join(map(str, labels.shape))
        raise SurgeonError(
            f"Labels have to be one class number per image, and these have the shape {shape}.",
            _hint_about_shape(labels),
        )
    if labels.is_floating_point() or labels.is_complex():
        raise SurgeonError(
            f"Labels have to be class numbers, and these are {type_of(labels)}.",
            "Convert them with labels.long(), or measure targets of another kind with score=.",
        )
    return labels.long()


def _masks(labels: Tensor) -> Tensor:
    """One class number per pixel; 255 and negative numbers stand for none."""
    masks = labels.long()
    return masks.masked_fill((masks == USUAL_VOID) | (masks < 0), VOID)


def _hint_about_labels(given: Any) -> str:
    if isinstance(given, int):
        return "Batches come from a DataLoader: wrap the data set in one."
    first = given[0] if isinstance(given, list | tuple) and given else given
    if isinstance(first, Mapping):
        return "Boxes, masks and several labels per image are measured with score=; else give the class numbers alone."
    if isinstance(first, str | bytes):
        return "Replace names by the numbers that the network has for them."
    return "Pass a tensor of whole numbers."


def _hint_about_shape(labels: Tensor) -> str:
    if labels.dim() == 2 and labels.shape[1] == 1:  # argmax would make all of them class 0
        return "Drop the second dimension: labels[:, 0]."
    if labels.dim() == 2:
        return (
            "Several labels per image are measured with score=; mixed ones become class numbers with labels.argmax(1)."
        )
    return "Masks are whole numbers (N, height, width); boxes are measured with score=."


def _is_one_hot(labels: Tensor) -> bool:
    """Whether every row has a single 1 among several classes, and zeros."""
    binary = bool(((labels == 0) | (labels == 1)).all())
    return labels.shape[1] > 1 and binary and bool((labels.sum(1) == 1).all())


def checked_network(model: Any) -> nn.Module:
    """A network, not its name or a function."""
    if not isinstance(model, nn.Module):
        raise SurgeonError(
            f"The network has to be an nn.Module, and this is {kind(model)}.",
            "surgeon.load opens a checkpoint folder, timm.create_model a name.",
        )
    return model


@contextmanager
def refusing_failures(inputs: Any) -> Iterator[None]:
    """Networks fail on numbers of another type or shape, and their errors name neither the images nor what to do."""
    images = inputs[0] if isinstance(inputs, list) else inputs
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        if images.is_floating_point() and not OTHER_TYPE.search(str(error)):
            raise SurgeonError(
                f"The network cannot take {_shape_of(inputs)}: {reason}.",
                "Give it images as they are preprocessed for it. One that takes several tensors needs a module around "
                "it that takes one.",
            ) from error
        raise SurgeonError(
            f"The network cannot take images of {type_of(images)}: {reason}.",
            "Convert them to the type of its weights (images.float() for float32)."
            if images.is_floating_point()
            else "Convert them to float32 and normalise them as the network expects.",
        ) from error


def _shape_of(inputs: Any) -> str:
    if isinstance(inputs, list):
        return f"a list of {count(len(inputs), 'tensor')}"
    return f"a batch of {'x'.join(map(str, inputs.shape))}"


def _is_array(given: Any) -> bool:
    return isinstance(given, np.ndarray) and given.dtype.kind in "biuf"
