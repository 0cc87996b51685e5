"""What `inspect --data` asks of images: are they shifted for this network, and which modes of its gates do they use?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.core.progress import Progress
from surgeon.data.loaders import Batches
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork, prepare
from surgeon.models.origin import LoadedModel
from surgeon.report.folder import write_report
from surgeon.report.shift import shift_page, shift_picture
from surgeon.results import DataShift
from surgeon.surgery.gates import gate_usage, has_gates
from surgeon.surgery.shift import has_stored_statistics, measure_shift

PICTURE = "shift.png"
SURE = 50
"""Statistics of fewer images are so noisy that only large shifts are found."""


def inspect_data(
    loaded: LoadedModel, request: InferenceRequest, progress: Progress, output: Path | None = None
) -> DataShift:
    """Compare the network's stored statistics with those of images; labels are not looked at.

    Args:
        loaded: The network.
        request: Which images.
        progress: Told of every batch.
        output: A folder for the report, if one is wanted.
    """
    with_statistics, with_gates = has_stored_statistics(loaded.model), has_gates(loaded.model)
    if not (with_statistics or with_gates):
        raise SurgeonError(
            f"{loaded.name} has no BatchNorm layer with running statistics and no gates: there is nothing to compare "
            "images with.",
            "Leave out --data.",
        )
    if output is not None and not with_statistics:
        raise SurgeonError("Nothing to draw: the network has gates, but stores no statistics.", "Leave out -o.")
    prepared = prepare(loaded, request)
    batches = prepared.batches()
    shift = measure_shift(prepared.model, _images(prepared, batches, progress, "shift")) if with_statistics else None
    gates = gate_usage(prepared.model, _images(prepared, prepared.batches(), progress, "gates")) if with_gates else {}
    result = DataShift(
        model=loaded.name,
        data=request.data,
        split=prepared.image_set.split,
        images=len(prepared.image_set) - len(batches.bad) if shift is None else shift.images,
        preprocessing=prepared.preprocessing,
        shift=shift,
        gates=gates,
        bad_images=tuple(batches.bad),
        warnings=(*_warnings(shift.images if shift else None), *prepared.remarks),
    )
    if output is not None:
        write_report(result, output, PICTURE, shift_picture, shift_page)
    return result


def _images(prepared: PreparedNetwork, batches: Batches, progress: Progress, doing: str) -> Iterator[Tensor]:
    done = 0
    for batch in batches:
        if len(batch.images):  # not all of them unreadable
            yield batch.images
        done += len(batch.images)
        progress(doing, done, len(prepared.image_set))


def _warnings(images: int | None) -> tuple[str, ...]:
    if images is None or images >= SURE:
        return ()
    return (f"Only {images} images: a small shift cannot be told from sampling noise.",)
