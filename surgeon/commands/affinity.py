"""The `affinity` command's whole operation: how far augmentations lead from the images that a network knows.

R. Gontijo-Lopes, S. Smullin, E. Cubuk and E. Dyer, Tradeoffs in Data Augmentation: An Empirical Study, ICLR 2021:
the accuracy of a network that was trained without the augmentation, on augmented minus on clean images.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot, pad

from surgeon.augment.apply import augment_singly, augment_together
from surgeon.augment.base import augments
from surgeon.augment.geometry import evaluation_geometry
from surgeon.augment.pipeline import Augmentation, build_augmentation
from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.loaders import Batch
from surgeon.measuring.choosing import images_to_choose_on
from surgeon.measuring.engine import measure
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork, batches_for, prepare
from surgeon.metrics import compare
from surgeon.metrics.imagined import RIGHT
from surgeon.models.origin import LoadedModel, Preprocessing
from surgeon.problems import CLASSIFICATION
from surgeon.results import Affinity, AugmentAffinity

CLEAN = ""
FEWEST_TO_MIX = 2


@dataclass(frozen=True)
class SoftHits:
    """For each image, the weight that its label gives to the predicted class, and the largest weight in it."""

    of_images: dict[int, tuple[float, float]]

    def update(self, logits: Tensor, labels: Tensor, indices: Any) -> None:
        # A network may know more classes than the data have. Logits that are not numbers predict nothing.
        weights = pad(labels, (0, logits.shape[1] - labels.shape[1]))
        hits = weights.gather(1, logits.argmax(dim=1, keepdim=True)).squeeze(1)
        hits = hits.masked_fill(logits.isnan().any(dim=1), 0)
        pairs = zip(hits.double().tolist(), labels.amax(dim=1).double().tolist(), strict=True)
        self.of_images.update(zip(indices.tolist(), pairs, strict=True))

    def merge(self, other: SoftHits) -> SoftHits:
        return SoftHits(self.of_images | other.of_images)

    def __len__(self) -> int:
        return len(self.of_images)

    def in_order(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both numbers of all images, in the order of the data."""
        hits, largest = np.array([self.of_images[index] for index in sorted(self.of_images)]).T
        return hits, largest


def _soft(batch: Batch, classes: int) -> Batch:
    """The condition of clean images: labels as weights, all of it on one class."""
    return replace(batch, labels=one_hot(batch.labels, classes).float())


def _augmented(
    batch: Batch, augmentation: Augmentation, preprocessing: Preprocessing, classes: int, seed: int
) -> Batch:
    """The condition of augmented images, which depend on nothing but the seed and their indices."""
    images, indices = batch.images, batch.indices.tolist()
    if augmentation.image or augmentation.geometry is not evaluation_geometry(preprocessing):
        images = augment_singly(augmentation, batch.pictures, indices, preprocessing, seed)
    targets = _soft(batch, classes).labels
    images, targets = augment_together(augmentation, images, indices, targets, seed)
    return replace(batch, images=images, labels=targets)


def run_affinity(
    loaded: LoadedModel, request: InferenceRequest, specs: Sequence[str], seed: int, progress: Progress
) -> Affinity:
    """Predict every image clean and in each augmentation; without specs, in all that can be applied."""
    start = time.perf_counter()
    choosing = images_to_choose_on(request)
    prepared = prepare(loaded, request, choosing.images)
    if prepared.problem is not CLASSIFICATION:
        raise SurgeonError("Affinity is measured by classes of images, not by masks.")
    chosen, left_out = _build(specs, prepared)
    classes = len(prepared.image_set.class_names)
    conditions = {CLEAN: partial(_soft, classes=classes)} | {
        spec: partial(
            _augmented, augmentation=augmentation, preprocessing=prepared.preprocessing, classes=classes, seed=seed
        )
        for spec, augmentation in chosen.items()
    }
    measured = measure(
        {name: replace(prepared.variant, condition=condition) for name, condition in conditions.items()},
        # A single image that is left over could not be mixed.
        batches_for([prepared], prepared.image_set, keep_pictures=True, fewest=FEWEST_TO_MIX),
        lambda _: SoftHits({}),
        processes=Processes.launched(),
        progress=progress,
    )
    clean, _ = measured.kept[CLEAN].in_order()
    rows = [_row(spec, measured.kept[spec], clean, measured.seconds[spec]) for spec in chosen]
    return Affinity(
        model=loaded.name,
        data=request.data,
        split=prepared.image_set.split,
        warnings=choosing.warnings,
        preprocessing=prepared.preprocessing,
        seed=seed,
        images=len(clean),
        clean_accuracy=float(clean.mean()),
        augments=tuple(sorted(rows, key=lambda row: -row.difference)),
        left_out=left_out,
        matched_classes=prepared.matched_classes,
        bad_images=tuple(measured.bad),
        seconds=time.perf_counter() - start,
    )


def _build(specs: Sequence[str], prepared: PreparedNetwork) -> tuple[dict[str, Augmentation], dict[str, str]]:
    """What is to be measured; of all augmentations only those that fit, and why the others do not."""
    chosen: dict[str, Augmentation] = {}
    left_out: dict[str, str] = {}
    for spec in specs or _for_medium(prepared):
        try:
            chosen[spec] = build_augmentation([spec], prepared.preprocessing)
        except SurgeonError as error:
            if specs:
                raise
            left_out[spec] = error.message
    return chosen, left_out


def _for_medium(prepared: PreparedNetwork) -> list[str]:
    return [name for name in augments if prepared.preprocessing.medium in augments[name].media]


def _row(spec: str, kept: SoftHits, clean: NDArray[np.float64], seconds: float) -> AugmentAffinity:
    hits, largest = kept.in_order()
    # A hit may be in part, but where there is none to tell the two apart the interval has to reckon with whole ones.
    compared = compare(hits, clean, higher_is_better=True, imagined=(RIGHT[0], RIGHT[1]))
    return AugmentAffinity(
        augment=spec,
        accuracy=float(hits.mean()),
        ceiling=float(largest.mean()),
        difference=compared.difference,
        low=compared.low,
        high=compared.high,
        seconds=seconds,
    )
