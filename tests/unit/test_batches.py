"""What people's loaders and networks give: what can be measured is, and all else is told in a sentence."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import surgeon
from surgeon.core.errors import SurgeonError

CLASSES = 3
IMAGES = torch.randn(6, 2, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


class Network(nn.Module):
    """Answers as it is told, with the logits of a small BatchNorm network."""

    def __init__(self, answer: Callable[[Tensor], Any] = lambda logits: logits) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, CLASSES)
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(self.head(self.norm(self.conv(x)).mean((2, 3))))


def network(answer: Callable[[Tensor], Any] = lambda logits: logits) -> Network:
    torch.manual_seed(1)
    return Network(answer).eval()


def evaluate(model: Any, loader: Any) -> Any:
    return surgeon.evaluate(model, loader)


def sweep(model: Any, loader: Any) -> Any:
    return surgeon.sweep(model, loader, alphas=[0, 0.1])


def confirm(model: Any, loader: Any) -> Any:
    return surgeon.sweep(model, [(IMAGES, LABELS)], alphas=[0, 0.1], confirm_on=loader)


BOTH = pytest.mark.parametrize("measure", [evaluate, sweep])
BOXES = [{"boxes": torch.zeros(1, 4), "labels": torch.tensor([1])}] * 6


@pytest.mark.parametrize(
    "batch",
    [
        (IMAGES, LABELS.tolist()),
        (IMAGES, tuple(LABELS.numpy())),
        (IMAGES.numpy(), LABELS.numpy()),
        [IMAGES, LABELS.to(torch.uint8), "what else a data set gives"],
        {"img": IMAGES, "target": LABELS.int()},
        UserDict(pixel_values=IMAGES, labels=LABELS),
        {"input": IMAGES, "targets": LABELS},
        (IMAGES, torch.eye(CLASSES)[LABELS]),
        (IMAGES, torch.eye(CLASSES, dtype=torch.long)[LABELS].numpy()),
    ],
    ids=["list", "numpy numbers", "numpy", "three parts", "dictionary", "transformers", "input", "one-hot", "whole"],
)
def test_forms_of_the_same_batch_give_the_same_figures(batch: Any) -> None:
    assert surgeon.evaluate(network(), [batch]) == surgeon.evaluate(network(), [(IMAGES, LABELS)])


@pytest.mark.parametrize("measure", [evaluate, sweep, confirm])
@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ((list(IMAGES), BOXES), "images of a batch have to be one tensor, and these are a list of Tensor"),
        ((IMAGES, BOXES), "these are a list of dict. Boxes, masks and several labels"),
        ((IMAGES, {"boxes": IMAGES, "labels": LABELS}), "these are a dict"),
        ((IMAGES, torch.ones(6, 3)), r"shape 6x3. Several labels per image are measured with score="),
        ((IMAGES, LABELS[:, None]), r"shape 6x1. Drop the second dimension: labels\[:, 0\]"),
        ((IMAGES, torch.zeros(6, 8, 8)), "shape 6x8x8. Masks are whole numbers"),
        ((IMAGES, torch.zeros(6, 8, 8, dtype=torch.long)), "scores of every class for each pixel|do not fit 6 labels"),
        ((IMAGES, LABELS.float()), r"these are float32. Convert them with labels.long\(\)"),
        ((IMAGES, LABELS.numpy().astype(float)), "these are float64"),
        ((IMAGES, [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]), "a list of float"),
        ((IMAGES, ["cat"] * 6), "a list of str. Replace names by the numbers"),
        ((IMAGES, None), "these are a NoneType. Pass a tensor of whole numbers"),
        ((IMAGES, list(LABELS)), "a list of Tensor. Pass a tensor of whole numbers"),
        ((IMAGES[0], 1), "these are an int. Batches come from a DataLoader"),
        ((IMAGES[0], torch.tensor(1)), "single number. Batches come from a DataLoader"),
        ((torch.tensor(1.0), LABELS), "images of a batch are a single number"),
        ((IMAGES, LABELS[:4]), "6 images and 4 labels"),
        ((IMAGES, LABELS - 1), "Labels from -1 to 1 do not fit a network of 3 classes"),
        ((IMAGES, LABELS + 1), "Labels from 1 to 3 do not fit"),
        (([object()] * 6, LABELS), "a list of object"),
        ((np.array(["a"] * 6), LABELS), "these are a ndarray"),
        ({"image": IMAGES}, "this one is a dictionary of image"),
        ({1: IMAGES, 2: LABELS}, "this one is a dictionary of 1 and 2"),
        ((IMAGES,), "this one is a tuple of Tensor"),
        ("image", "this one is a str"),
        (None, "this one is a NoneType"),
        (3, "this one is an int"),
        (SimpleNamespace(images=IMAGES), "this one is a SimpleNamespace"),
    ],
)
def test_batches_that_cannot_be_measured_are_told(measure: Callable[..., Any], batch: Any, told: str) -> None:
    with pytest.raises(SurgeonError, match=told):
        measure(network(), [batch])


@BOTH
def test_whole_numbers_that_the_network_cannot_take(measure: Callable[..., Any]) -> None:
    batch = ((IMAGES * 100).to(torch.uint8), LABELS)
    with pytest.raises(SurgeonError, match=r"cannot take images of uint8: .* Convert them to float32"):
        measure(network(), [batch])


@BOTH
@pytest.mark.parametrize(
    ("images", "weights", "told"),
    [
        (torch.float64, torch.float32, "cannot take images of float64"),
        (torch.float16, torch.float32, "cannot take images of float16"),
        (torch.float32, torch.float64, "cannot take images of float32"),
    ],
)
def test_numbers_of_another_type_than_the_weights(
    measure: Callable[..., Any], images: torch.dtype, weights: torch.dtype, told: str
) -> None:
    """NumPy's arrays are float64 unless they are told otherwise."""
    with pytest.raises(SurgeonError, match=rf"{told}: .*type.* Convert them to the type of its weights"):
        measure(network().to(weights), [(IMAGES.to(images), LABELS)])


@BOTH
@pytest.mark.parametrize(
    ("loader", "told"),
    [
        (None, "A NoneType gives no batches"),
        (7, "An int gives no batches"),
        (nn.ReLU(), "A ReLU gives no batches"),
        ({"image": IMAGES, "label": LABELS}, "this one is a str"),
        (IMAGES, "this one is a Tensor"),
        (TensorDataset(IMAGES, LABELS), "single number. Batches come from a DataLoader"),
        (DataLoader(TensorDataset(IMAGES), batch_size=2), "this one is a list of Tensor"),
    ],
)
def test_what_is_no_loader_is_told(measure: Callable[..., Any], loader: Any, told: str) -> None:
    with pytest.raises(SurgeonError, match=told):
        measure(network(), loader)


@BOTH
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda logits: (logits, logits[:, :2]), r"several .* number 0 \(6x3\) and number 1 \(6x2\)"),
        (lambda logits: {"a": logits, "b": logits[:, :2]}, r"may be logits: a \(6x3\) and b \(6x2\)"),
        (lambda logits: (logits[0], "text"), "a tuple of Tensor, not one tensor"),
        (lambda logits: [{"boxes": one} for one in logits], "a list of dict"),
        (lambda logits: {"boxes": logits[0]}, "a dict"),
        (lambda logits: SimpleNamespace(scores=logits), "a SimpleNamespace"),
        (lambda logits: None, "a NoneType"),  # noqa: ARG005
        (lambda logits: logits.argmax(1), "For 6 images the network returns int64 of the shape 6, not"),
        (lambda logits: logits[:, :, None, None].expand(-1, -1, 8, 8), "shape 6x3x8x8"),
        (lambda logits: logits.sum(), "shape of a single number"),
        (lambda logits: logits[:2], "shape 2x3"),
        (lambda logits: logits[:, :0], "shape 6x0"),
        (lambda logits: logits.to(torch.complex64), "complex64"),
        (lambda logits: logits[:, :1], "do not fit a network of 1 class"),
    ],
)
def test_answers_that_are_no_logits_are_told(measure: Callable[..., Any], answer: Any, told: str) -> None:
    with pytest.raises(SurgeonError, match=told):
        measure(network(answer), [(IMAGES, LABELS)])


@BOTH
@pytest.mark.parametrize("model", ["resnet18", None, lambda images: images.mean((2, 3)), nn.Linear])
def test_what_is_no_network_is_told(measure: Callable[..., Any], model: Any) -> None:
    with pytest.raises(SurgeonError, match=r"has to be an nn\.Module"):
        measure(model, [(IMAGES, LABELS)])


def test_images_that_the_network_cannot_take_are_told_with_what_it_says_of_them() -> None:
    with pytest.raises(SurgeonError, match=r"cannot take a batch of .*: .*expected input") as refused:
        surgeon.evaluate(network(), [(IMAGES[:, :1], LABELS)])
    assert isinstance(refused.value.__cause__, RuntimeError)


def test_other_errors_of_the_network_itself_stay_what_they_are() -> None:
    with pytest.raises(KeyError):
        surgeon.evaluate(network(lambda logits: {}[len(logits)]), [(IMAGES, LABELS)])
