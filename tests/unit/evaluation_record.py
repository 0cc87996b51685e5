"""The record of an evaluation, with every kind of content: views, confusions, names that HTML could stumble over."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from surgeon.core.devices import Precision
from surgeon.data.images import ImageSet
from surgeon.measuring.comparison import gain_over
from surgeon.measuring.error_analysis import break_down
from surgeon.metrics import Scores, intervals, metrics, summarise
from surgeon.models.origin import Preprocessing
from surgeon.results import AgainstOneView, Evaluation

IMAGES, CLASSES = 300, 6
NAMES = ("cat", "dog", "<b>bird</b>", "a class with a long name, as ImageNet has many of them", "fish", "mouse & rat")


class Photographs:
    """Encoded images that nobody looks at."""

    def read(self, position: int) -> bytes:
        raise AssertionError(f"the image {position} was read")

    def identity(self, position: int) -> str:
        return f"pets/{position:04}.jpg"


def labels() -> Tensor:
    return torch.arange(IMAGES) % CLASSES


def scores(sharpness: float, seed: int = 0) -> Scores:
    """Predictions that are right for the most part."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(IMAGES, CLASSES, generator=generator)
    logits[torch.arange(IMAGES), labels()] += 2
    found = Scores()
    found.update(sharpness * logits, labels(), torch.arange(IMAGES))
    return found


def images() -> ImageSet:
    return ImageSet.over(Photographs(), labels().numpy(), NAMES, name="pets", split="test")


def evaluation(**changes: Any) -> Evaluation:
    several, one = scores(1.5), scores(1.0, seed=1)
    gains = tuple(gain_over(one, several, metrics[name]) for name in ("accuracy", "cross-entropy"))
    record = Evaluation(
        model="resnet50.a1_in1k",
        data="pets",
        split="test",
        rewrites="example-weighted:alpha=0.05",
        preprocessing=Preprocessing(input_size=(3, 224, 224), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
        device="cpu",
        precision=Precision.FLOAT32,
        tta="flip",
        views=2,
        against_one_view=AgainstOneView(metrics=summarise(one), gains=gains, times_the_time=2.1),
        metrics=summarise(several),
        intervals=dict(intervals(several)),
        breakdown=break_down(several.images(), images(), None),
        bad_images=(),
        seconds=12.0,
        images_per_second=25.0,
    )
    return record.model_copy(update=changes)
