"""The `affinity` command's whole operation: how far augmentations lead from the images that a network knows.

R. Gontijo-Lopes, S. Smullin, E. Cubuk and E. Dyer, Tradeoffs in Data Augmentation: An Empirical Study, ICLR 2021:
the accuracy of a network that was trained without the augmentation, on augmented minus on clean images.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import one_hot, pad

from surgeon.augment.apply import augment_singly, augment_together
from surgeon.augment.base import augments
from surgeon.augment.geometry import evaluation_geometry
from surgeon.augment.pipeline import Augmentation, build
from surgeon.core.errors import SurgeonError
from surgeon.data.images import UnreadableImageError
from surgeon.data.loaders import usable_cores
from surgeon.measuring.choosing import images_to_choose_on
from surgeon.measuring.setup import Request, Task, prepare
from surgeon.metrics import compare
from surgeon.metrics.imagined import RIGHT
from surgeon.models.sources import LoadedModel, Preprocessing
from surgeon.results import Affinity, AugmentAffinity

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the number of images done and the number of all."""


@dataclass(frozen=True)
class _Pictures:
    """Decoded pictures of one batch, and their indices."""

    images: list[Image.Image]
    indices: list[int]


@dataclass(frozen=True)
class _Batch:
    """Pictures, and what the network sees of them when nothing is done to them."""

    pictures: _Pictures
    clean: Tensor
    targets: Tensor
    seed: int

    @classmethod
    def of(cls, pictures: _Pictures, task: Task, seed: int) -> _Batch:
        plain = build([], task.preprocessing)
        clean = augment_singly(plain, pictures.images, pictures.indices, task.preprocessing, seed)
        labels = torch.from_numpy(task.image_set.labels)[pictures.indices]
        return cls(pictures, clean, one_hot(labels, len(task.image_set.class_names)).float(), seed)

    def augmented(self, augmentation: Augmentation, preprocessing: Preprocessing) -> tuple[Tensor, Tensor]:
        images, indices = self.clean, self.pictures.indices
        if augmentation.image or augmentation.geometry is not evaluation_geometry(preprocessing):
            images = augment_singly(augmentation, self.pictures.images, indices, preprocessing, self.seed)
        return augment_together(augmentation, images, indices, self.targets, self.seed)


@dataclass
class _Seen:
    """For each image, the weight that its label gives to the predicted class, and the largest weight in it."""

    hits: list[Tensor] = field(default_factory=list)
    largest: list[Tensor] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, task: Task, batch: _Batch, augmentation: Augmentation | None) -> None:
        """Predict a batch, augmented or clean."""
        start = time.perf_counter()
        images, targets = batch.clean, batch.targets
        if augmentation is not None:
            images, targets = batch.augmented(augmentation, task.preprocessing)
        (logits,) = task.manner.logits(lambda images: [task.model(images)], images)
        # A network may know more classes than the data have. Logits that are not numbers predict nothing.
        weights = pad(targets, (0, logits.shape[1] - targets.shape[1]))
        hits = weights.gather(1, logits.argmax(dim=1, keepdim=True)).squeeze(1)
        self.hits.append(hits.masked_fill(logits.isnan().any(dim=1), 0).double())
        self.largest.append(targets.amax(dim=1).double())
        self.seconds += time.perf_counter() - start

    def values(self) -> npt.NDArray[np.float64]:
        return torch.cat(self.hits).numpy()


def run_affinity(
    loaded: LoadedModel, request: Request, specs: Sequence[str], seed: int, progress: Progress
) -> Affinity:
    """Predict every image clean and in each augmentation; without specs, in all that can be applied."""
    start = time.perf_counter()
    choosing = images_to_choose_on(request)
    task = prepare(loaded, request, choosing.images)
    chosen, left_out = _build(specs, task)
    clean, seen = _Seen(), {spec: _Seen() for spec in chosen}
    bad: list[str] = []
    done = 0
    with task.manner.applied_to(task.model):
        for pictures in _decoded(task, bad):
            batch = _Batch.of(pictures, task, seed)
            clean.add(task, batch, None)
            for spec, augmentation in chosen.items():
                seen[spec].add(task, batch, augmentation)
            done += task.batch_size
            progress("predicting", min(done, len(task.image_set)), len(task.image_set))
    if not clean.hits:
        raise SurgeonError(f"None of the images of {request.data!r} can be read.")
    rows = [_row(spec, one, clean) for spec, one in seen.items()]
    return Affinity(
        model=loaded.name,
        data=request.data,
        split=task.image_set.split,
        warnings=choosing.warnings,
        preprocessing=task.preprocessing,
        seed=seed,
        images=len(clean.values()),
        clean_accuracy=float(clean.values().mean()),
        augments=tuple(sorted(rows, key=lambda row: -row.difference)),
        left_out=left_out,
        bad_images=tuple(bad),
        seconds=time.perf_counter() - start,
    )


def _build(specs: Sequence[str], task: Task) -> tuple[dict[str, Augmentation], dict[str, str]]:
    """What is to be measured; of all augmentations only those that fit, and why the others do not."""
    chosen: dict[str, Augmentation] = {}
    left_out: dict[str, str] = {}
    for spec in specs or augments:
        try:
            chosen[spec] = build([spec], task.preprocessing)
        except SurgeonError as error:
            if specs:
                raise
            left_out[spec] = error.message
    return chosen, left_out


def _decoded(task: Task, bad: list[str]) -> Iterator[_Pictures]:
    """Batches of pictures, each decoded once, while the network is busy with the one before."""
    under_way: deque[list[tuple[int, Future[Image.Image]]]] = deque()
    pool = ThreadPoolExecutor(task.request.workers or usable_cores(), thread_name_prefix="decode")
    try:
        for indices in _cut(len(task.image_set), task.batch_size):
            under_way.append([(index, pool.submit(task.image_set.image, index)) for index in indices])
            if len(under_way) > 1:
                yield from _readable(under_way.popleft(), task, bad)
        yield from _readable(under_way.popleft(), task, bad)
    finally:  # also when somebody interrupts
        pool.shutdown(wait=True, cancel_futures=True)


def _cut(images: int, batch_size: int) -> Iterator[range]:
    """The indices of each batch; a single one that is left over joins the last batch, because it could not be mixed."""
    starts = range(0, images - 1 if batch_size > 1 < images else images, batch_size)
    for start, end in zip(starts, [*starts[1:], images], strict=True):
        yield range(start, end)


def _readable(batch: list[tuple[int, Future[Image.Image]]], task: Task, bad: list[str]) -> Iterator[_Pictures]:
    pictures = _Pictures([], [])
    for index, decoding in batch:
        try:
            pictures.images.append(decoding.result())
            pictures.indices.append(index)
        except UnreadableImageError as error:
            if not task.request.skip_bad:
                raise
            bad.append(error.identity)
    if pictures.images:
        yield pictures


def _row(spec: str, seen: _Seen, clean: _Seen) -> AugmentAffinity:
    # A hit may be in part, but where there is none to tell the two apart the interval has to reckon with whole ones.
    compared = compare(seen.values(), clean.values(), higher_is_better=True, imagined=(RIGHT[0], RIGHT[1]))
    return AugmentAffinity(
        augment=spec,
        accuracy=float(seen.values().mean()),
        ceiling=float(torch.cat(seen.largest).mean()),
        difference=compared.difference,
        low=compared.low,
        high=compared.high,
        seconds=seen.seconds,
    )
