"""Classification: one class for each image, one row of logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from surgeon.data.images import ImageSet
from surgeon.data.transforms import transform_for
from surgeon.layers.wrapped import logits_in
from surgeon.metrics.accumulator import Scores
from surgeon.models.origin import LoadedModel, Preprocessing
from surgeon.problems.answers import check_logits
from surgeon.problems.base import Problem

LARGEST_SMALL_IMAGE = 64 * 64
SMALL_IMAGES_AT_ONCE, LARGE_IMAGES_AT_ONCE = 128, 32


class Classification(Problem):
    """One class for each image."""

    name = "classification"
    task = "image-classification"
    transform = staticmethod(transform_for)
    default_metric = "accuracy"

    def scores(self) -> Scores:
        return Scores()

    def logits(self, answer: Any, images: Tensor) -> Tensor:
        found = logits_in(answer, len(images))
        check_logits(found, len(images))
        logits: Tensor = found
        return logits

    def preprocessing(self, stated: Preprocessing | None, images: ImageSet | None, most: int) -> Preprocessing | None:  # noqa: ARG002
        return stated

    def resized(self, preprocessing: Preprocessing, side: int) -> Preprocessing:
        return preprocessing.model_copy(update={"input_size": (preprocessing.input_size[0], side, side)})

    def side(self, preprocessing: Preprocessing) -> int | None:
        _, height, width = preprocessing.input_size
        return height if height == width else None

    def images_at_once(self, size: Sequence[int]) -> int:
        """More of them make nothing faster, and each needs memory."""
        return SMALL_IMAGES_AT_ONCE if size[-1] * size[-2] <= LARGEST_SMALL_IMAGE else LARGE_IMAGES_AT_ONCE

    def fitted(self, images: ImageSet, outputs: int, names: Sequence[str] | None) -> ImageSet:  # noqa: ARG002
        return images

    def heads(self, model: nn.Module) -> list[nn.Module] | None:  # noqa: ARG002
        return None

    def check_network(self, loaded: LoadedModel) -> None:
        """Any network may be one that classifies."""


CLASSIFICATION = Classification()
