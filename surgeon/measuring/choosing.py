"""Which images a setting is chosen on. One rule for every command that chooses.

Figures on images that a setting was chosen on are too good. So what chooses (`sweep`, `ensemble --greedy`,
a temperature to store, `affinity`) takes the validation images. Where there are none, half of the test images
choose and the other half reports; where there are only training images, the tenth that `finetune` holds back
chooses. All of the test images choose only where `--split test` says so, and then there is a warning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surgeon.core.errors import SurgeonError
from surgeon.data.images import ImageSet
from surgeon.data.named_splits import VALIDATION_NAMES, MissingSplitError
from surgeon.data.presets import PRESETS, HeldOut
from surgeon.data.stratified import halves, limit, rest
from surgeon.measuring.preparation import InferenceRequest, open_images

TRAIN, VALIDATION, TEST = "train", "validation", "test"
HELD_BACK = 0.1


@dataclass(frozen=True)
class Choosing:
    """Images to choose on, others that take no part in it if they were halved, and what to beware of."""

    images: ImageSet
    held_back: ImageSet | None = None
    warnings: tuple[str, ...] = ()


def images_to_choose_on(request: InferenceRequest, *, confirm: bool = False, reserved: str | None = None) -> Choosing:
    """Open the images that the rule names.

    Args:
        request: Which data; a split that it names is taken as it is.
        confirm: Hold one half back in any case.
        reserved: A split that reports, so that its images do not choose unless the request names it.
    """
    if request.split is not None:
        images = open_images(request)
        return _parted(images, confirm, _warnings_of_named(images, confirm))
    if reserved not in VALIDATION_NAMES and (validation := open_split(request, VALIDATION)) is not None:
        return _parted(validation, confirm, _warnings_of_preset(request.data))
    if reserved != TEST and (test := open_split(request, TEST)) is not None:
        return _parted(
            test,
            True,
            (
                f"{test.name!r} has no validation images: settings are chosen on half of its test images, and the "
                "other half is held out.",
            ),
        )
    if (train := open_split(replace(request, limit=None), TRAIN)) is not None:
        _, images = hold_back(train)
        few = images if request.limit is None else images.subset(limit(images.labels, request.limit))
        return _parted(
            few,
            confirm,
            (
                f"{train.name!r} has no validation images: settings are chosen on a tenth of its training images, the "
                "one that `surgeon finetune` holds back. If the network was trained on them, the choice means nothing.",
            ),
        )
    images = open_images(request)
    return _parted(
        images,
        True,
        (
            f"{images.name!r} has no splits: settings are chosen on half of its images, and the other half is held "
            "out. If the network was trained on them, their figures mean nothing.",
        ),
    )


def _parted(images: ImageSet, halve: bool, warnings: tuple[str, ...]) -> Choosing:
    if not halve:
        return Choosing(images, None, warnings)
    choosing, held_back = halves(images.labels)
    return Choosing(images.subset(choosing), images.subset(held_back), warnings)


def _warnings_of_named(images: ImageSet, confirm: bool) -> tuple[str, ...]:
    if images.split == TEST and confirm:
        return ("Settings are chosen on half of the test images: only the other half is untouched.",)
    if images.split == TEST:
        return ("Settings are chosen on test images: figures on them are optimistic from now on.",)
    if images.split == TRAIN:
        return (
            "Settings are chosen on training images: if the network was trained on them, the choice means nothing.",
        )
    return ()


def _warnings_of_preset(data: str) -> tuple[str, ...]:
    """Public weights were trained on all published training images, also on those that a preset keeps apart."""
    preset = PRESETS.get(data)
    if preset is None or not isinstance(preset.rule, HeldOut):
        return ()
    return (
        f"The validation images of {data} are a part of its published training images. For a network that was "
        "trained on all of those, choose with --split test --confirm.",
    )


def hold_back(images: ImageSet) -> tuple[ImageSet, ImageSet]:
    """Divide training images into those to train on and a tenth to choose on; every class keeps one to train on."""
    numbers = np.bincount(images.labels)
    eligible = np.flatnonzero(numbers[images.labels] > 1)
    if len(eligible) == 0:
        raise SurgeonError(
            f"{images.name!r} has one image per class, so none can be held back for validation.",
            "Give it a validation split, or more images.",
        )
    wanted = max(1, round(HELD_BACK * len(eligible)))
    chosen = eligible[limit(images.labels[eligible], wanted)]
    return images.subset(rest(len(images), chosen)), images.subset(chosen)


def open_split(request: InferenceRequest, split: str) -> ImageSet | None:
    """The images of a split, or nothing if the data have no such split."""
    try:
        return open_images(replace(request, split=split))
    except MissingSplitError:
        return None
