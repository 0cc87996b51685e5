"""Segmentation: one class for each pixel, one score of each class for each.

torchvision's networks answer with a dictionary: `out`, and `aux` for an auxiliary head; those of
segmentation-models-pytorch with one tensor; those of transformers with `logits` of a quarter of the size.
Whole images are resized to the input size, and figures are of that size: no pixel is cropped away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, count
from surgeon.data.images import ImageSet
from surgeon.data.masks import VOID
from surgeon.data.transforms import WholeImage
from surgeon.layers.units import TrainingUnit, training_units
from surgeon.metrics.accumulator import Scores
from surgeon.metrics.mask_scores import MaskScores
from surgeon.models.origin import LoadedModel, Preprocessing
from surgeon.problems.answers import kind
from surgeon.problems.base import Problem

OUT, AUXILIARY, LOGITS = "out", "aux", "logits"
AUXILIARY_WEIGHT = 0.5
"""Of the loss of an auxiliary head, as in torchvision's training."""
PIXELS_AT_ONCE, MOST_AT_ONCE = 1 << 20, 16
STRIDE = 8
"""Sides are multiples of it."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WHOLE_ANSWER = "Wrap it in a module that gives images x classes x height x width."


class Segmentation(Problem):
    """One class for each pixel."""

    name = "segmentation"
    task = "image-segmentation"
    transform = WholeImage
    default_metric = "iou"

    def scores(self) -> Scores:
        return MaskScores()

    def logits(self, answer: Any, images: Tensor) -> Tensor:
        return upsampled(main_output(answer, len(images)), images)

    def preprocessing(self, stated: Preprocessing | None, images: ImageSet | None, most: int) -> Preprocessing | None:
        if stated is not None or images is None:
            return stated
        width, height = images.image(0).size
        plain = Preprocessing(input_size=(3, height, width), mean=MEAN, std=STD)
        return self.resized(plain, min(height, width, most))

    def resized(self, preprocessing: Preprocessing, side: int) -> Preprocessing:
        """The shorter side has this length, and proportions stay, but for what is no multiple of 8."""
        channels, height, width = preprocessing.input_size
        shorter = min(height, width)
        sides = (
            side if length == shorter else round(length * side / shorter / STRIDE) * STRIDE
            for length in (height, width)
        )
        return preprocessing.model_copy(update={"input_size": (channels, *sides), "crop_pct": 1.0})

    def side(self, preprocessing: Preprocessing) -> int | None:
        return min(preprocessing.input_size[1:])

    def images_at_once(self, size: Sequence[int]) -> int:
        """Every pixel has a score for each class, so fewer of them than of images to classify."""
        return max(1, min(MOST_AT_ONCE, PIXELS_AT_ONCE // (size[-1] * size[-2])))

    def fitted(self, images: ImageSet, outputs: int, names: Sequence[str] | None) -> ImageSet:
        if images.masks is None:
            return images
        if not images.names_known:
            known = names is not None and len(names) == outputs
            return images.with_classes(names if known and names else [str(n) for n in range(outputs)], known=known)
        if len(images.class_names) != outputs:
            raise SurgeonError(
                f"{images.name!r} has {len(images.class_names):,} classes, but the network has "
                f"{count(outputs, 'output')} for each pixel.",
                "Use the data the network was trained for, or fine-tune it on this data first.",
            )
        if names is not None and len(names) == outputs and tuple(names) != images.class_names:
            other = next((a, b) for a, b in zip(names, images.class_names, strict=True) if a != b)
            raise SurgeonError(
                f"The network calls a class {other[0]!r} that {images.name!r} calls {other[1]!r}.",
                "Masks are compared by number: bring the classes of the data into the network's order.",
            )
        return images

    def heads(self, model: nn.Module) -> list[nn.Module] | None:
        from torchvision.models.segmentation import FCN, LRASPP, DeepLabV3

        of_torchvision = isinstance(model, DeepLabV3 | FCN | LRASPP)
        names = ("classifier", "aux_classifier") if of_torchvision else ("segmentation_head",)
        found = [getattr(model, name, None) for name in names]
        return [head for head in found if isinstance(head, nn.Module)] or None

    def check_network(self, loaded: LoadedModel) -> None:
        mixing = [type(unit).__name__ for unit in training_units(loaded.model) if _mixes_targets(unit)]
        if mixing:
            raise SurgeonError(
                f"{mixing[0]} mixes the labels of images, and masks cannot be mixed.", "Leave that insert out."
            )


def _mixes_targets(unit: TrainingUnit) -> bool:
    return type(unit).mix_targets is not TrainingUnit.mix_targets


def main_output(answer: Any, images: int) -> Tensor:
    """The scores of every class (N, classes, h, w), whatever they are wrapped in."""
    found = answer
    if isinstance(answer, Mapping):
        found = next((answer[key] for key in (OUT, LOGITS) if key in answer), answer)
    elif not isinstance(answer, Tensor):
        found = getattr(answer, LOGITS, answer[0] if isinstance(answer, list | tuple) and answer else answer)
    if not isinstance(found, Tensor):
        raise SurgeonError(f"The network returns {kind(found)}, not a tensor of masks.", WHOLE_ANSWER)
    if found.dim() != 4 or len(found) != images or found.shape[1] == 0 or found.is_complex():
        shape = "x".join(map(str, found.shape)) or "of a single number"
        raise SurgeonError(
            f"For {count(images, 'image')} the network returns the shape {shape}, not scores of every class for "
            "each pixel.",
            "Is it a network that classifies? " + WHOLE_ANSWER,
        )
    return found


def auxiliary_outputs(answer: Any) -> list[Tensor]:
    """The scores of auxiliary heads, which only take part in training."""
    found = answer.get(AUXILIARY) if isinstance(answer, Mapping) else None
    return [found] if isinstance(found, Tensor) else []


def upsampled(logits: Tensor, images: Tensor) -> Tensor:
    """Logits of the size of the images."""
    if logits.shape[2:] == images.shape[2:]:
        return logits
    size = list(images.shape[2:])
    return F.interpolate(logits, size=size, mode="bilinear", align_corners=False)


def labelled_pixels(logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """The pixels that have a class, as rows: logits and targets, both (pixels, classes)."""
    known = masks != VOID
    rows = logits.permute(0, 2, 3, 1)[known]
    return rows, F.one_hot(masks[known], logits.shape[1]).to(rows.dtype)


SEGMENTATION = Segmentation()
