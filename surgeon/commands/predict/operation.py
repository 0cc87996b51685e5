"""The `predict` command's whole operation: predict images as the checkpoint stores it, and keep their top classes."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from surgeon.commands.predict.files import as_image_set
from surgeon.commands.predict.masks import write_masks
from surgeon.core.atomic import check_destination, staged
from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.images import ImageSet, UnreadableImageError
from surgeon.measuring.engine import measure
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork, prepare
from surgeon.models.class_names import output_names
from surgeon.models.origin import LoadedModel
from surgeon.problems import CLASSIFICATION
from surgeon.results.prediction import ClassProbability, PredictedImage, Prediction
from surgeon.surgery.apply import current_plan
from surgeon.surgery.branches import prediction_by
from surgeon.surgery.temperature import temperature_of

PREDICTED = "predicted"
MASKS = "masks"
"""Where masks go if nobody says."""
COLUMNS = ("image", "rank", "class", "output", "probability")


@dataclass
class TopClasses:
    """The most probable classes of each image, a few numbers for each whatever the number of classes."""

    top: int
    outputs: int = 0
    _batches: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]] = field(default_factory=list)

    def update(self, logits: Tensor, labels: Tensor, indices: Any) -> None:  # noqa: ARG002
        """Take in the predictions of a batch."""
        self.outputs = logits.shape[1]
        # Sorted, not topk: of equally probable classes the one with the lower number comes first.
        probabilities, places = logits.double().softmax(1).sort(dim=1, descending=True, stable=True)
        few = min(self.top, self.outputs)
        # Copies: a view of a part would keep all of the sorted numbers in memory.
        kept = places[:, :few].int().numpy().copy(), probabilities[:, :few].numpy().copy()
        self._batches.append((np.asarray(indices, dtype=np.int64), *kept))

    def merge(self, other: TopClasses) -> TopClasses:
        """Both, as if one process had seen all images."""
        return TopClasses(self.top, self.outputs or other.outputs, [*self._batches, *other._batches])

    def __len__(self) -> int:
        return sum(len(indices) for indices, _, _ in self._batches)

    def in_order(self) -> Iterator[tuple[int, list[int], list[float]]]:
        """Of each image its index, its classes and their probabilities, in the order of the images."""
        indices, places, probabilities = map(np.concatenate, zip(*self._batches, strict=True))
        for row in np.argsort(indices).tolist():
            yield int(indices[row]), places[row].tolist(), probabilities[row].tolist()


def run_prediction(
    loaded: LoadedModel,
    images: Sequence[str | Image.Image],
    request: InferenceRequest,
    progress: Progress,
    *,
    top: int = 5,
    csv_file: Path | None = None,
    folder: Path | None = None,
) -> Prediction:
    """Predict images in the order given; alpha, branches and temperature are those that the network has.

    Args:
        loaded: The network.
        images: Paths of files, and pictures.
        request: How to prepare and predict them.
        progress: Told how many images are done.
        top: How many classes to tell of each image.
        csv_file: Where to write them as a table.
        folder: Where masks go, if the network segments.
    """
    start = time.perf_counter()
    processes = Processes.launched()
    image_set = as_image_set(images, loaded.medium)
    prepared = prepare(loaded, request, image_set)
    if prepared.problem is not CLASSIFICATION:
        return _masks(loaded, prepared, folder, processes, progress, start, csv_file)
    if folder is not None:
        raise SurgeonError(f"-o is for masks, and {loaded.name} classifies images.", "Leave it out, or use --csv.")
    measured = measure(
        {PREDICTED: prepared.variant},
        prepared.batches(),
        lambda _: TopClasses(top),
        processes=processes,
        progress=progress,
    )
    kept = measured.kept[PREDICTED]
    named = output_names(loaded, kept.outputs)
    predicted = {
        index: PredictedImage(
            # What of a file's name is no text cannot be written as JSON.
            image=image_set.identity(index).encode("utf-8", "backslashreplace").decode(),
            classes=tuple(
                ClassProbability(name=named.names[place], output=place, probability=probability)
                for place, probability in zip(places, probabilities, strict=True)
            )
            if not np.isnan(probabilities).any()
            else (),
        )
        for index, places, probabilities in kept.in_order()
    }
    result = Prediction(
        model=loaded.name,
        rewrites=current_plan(prepared.model).summary(),
        prediction_by=prediction_by(prepared.model),
        temperature=temperature_of(prepared.model),
        outputs=kept.outputs,
        class_names_from=named.source,
        preprocessing=prepared.preprocessing,
        device=str(prepared.device),
        precision=prepared.precision,
        tta=request.tta,
        views=prepared.view_count,
        images=tuple(predicted.values()),
        bad_images=tuple(_reason(image_set, index) for index in range(len(image_set)) if index not in predicted),
        remarks=prepared.remarks,
        seconds=time.perf_counter() - start,
        csv_file=None if csv_file is None else str(csv_file),
    )
    if csv_file is not None:
        processes.only_first(lambda: _write_csv(result, csv_file))
    return result


def _masks(
    loaded: LoadedModel,
    prepared: PreparedNetwork,
    folder: Path | None,
    processes: Processes,
    progress: Progress,
    start: float,
    csv_file: Path | None,
) -> Prediction:
    """The masks of a network that segments, written into a folder."""
    if csv_file is not None:
        raise SurgeonError("--csv lists classes of images, and this network predicts masks.", "Leave it out.")
    if folder is None:
        folder = Path(MASKS)
        check_destination(folder, overwrite=False)
    named = output_names(loaded, prepared.classes)
    found = write_masks(prepared, named.names, folder, processes, progress)
    images = prepared.image_set
    return Prediction(
        model=loaded.name,
        rewrites=current_plan(prepared.model).summary(),
        prediction_by=prediction_by(prepared.model),
        temperature=temperature_of(prepared.model),
        outputs=prepared.classes,
        class_names_from=named.source,
        preprocessing=prepared.preprocessing,
        device=str(prepared.device),
        precision=prepared.precision,
        tta=prepared.request.tta,
        views=prepared.view_count,
        images=(),
        masks=tuple(found.values()),
        bad_images=tuple(_reason(images, index) for index in range(len(images)) if index not in found),
        seconds=time.perf_counter() - start,
    )


def _reason(image_set: ImageSet, index: int) -> str:
    """Why an image could not be read, by trying once more."""
    try:
        image_set.image(index)
    except UnreadableImageError as error:
        return error.message
    return f"The {image_set.medium.noun} {image_set.identity(index)} could not be read at first."


def _write_csv(result: Prediction, path: Path) -> None:
    with (
        staged(path.parent, [path.name], owner=path.name) as stage,
        (stage / path.name).open("w", encoding="utf-8", newline="") as file,
    ):
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for image in result.images:
            for rank, one in enumerate(image.classes, 1):
                rows.writerow((image.image, rank, one.name, one.output, f"{one.probability:.6g}"))
