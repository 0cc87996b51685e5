"""The `export` command's whole operation: write, run what was written, compare, and only then leave it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.checkpoint.record import PLAIN_FILES, SURGERY
from surgeon.commands.export import plain
from surgeon.commands.export.description import describe
from surgeon.commands.export.folding import fold
from surgeon.commands.export.formats import Format
from surgeon.commands.export.onnx_file import ONNX
from surgeon.commands.export.torch_export import TORCH_EXPORT
from surgeon.commands.export.tracing import trace
from surgeon.core.atomic import check_destination, check_new_files, staged
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.data.check import check_medium
from surgeon.data.loaders import batches
from surgeon.layers.running import flatten
from surgeon.measuring.preparation import InferenceRequest, open_images
from surgeon.models.history import Exported
from surgeon.models.origin import LoadedModel
from surgeon.models.sources import example_inputs
from surgeon.results import Export, Target
from surgeon.surgery import parity

FORMATS: dict[Target, Format] = {Target.ONNX: ONNX, Target.TORCH_EXPORT: TORCH_EXPORT}
BATCH_SIZES = (1, 2, 5)
"""Of random images."""
REAL_BATCH_SIZES = (1, 7, 64)
"""Of images of a data set."""
TOLERANCE = 1e-4
"""Other programs add up in another order."""

Run = Callable[[Tensor], Any]


def check_request(target: Target, path: Path, *, folding: bool, overwrite: bool) -> None:
    """Refuse what cannot be done, before anything is loaded."""
    if target is not Target.TIMM:
        form = FORMATS[target]
        if path.suffix != form.suffix:
            raise SurgeonError(f"{path} cannot be an export to {target}.", f"Name a file that ends in {form.suffix}.")
        form.check_installed()
        check_new_files(path.parent, _files(path), overwrite)
        return
    if folding:
        raise SurgeonError("Folding goes with onnx and torch-export: timm's networks keep their BatchNorm layers.")
    if (path / SURGERY).exists():
        raise SurgeonError(
            f"{path} is a surgeon checkpoint, which a plain export would break.", "Choose another folder."
        )
    check_destination(path, overwrite)


@dataclass(frozen=True)
class ProbeImages:
    """Images on which what was written is compared with the network, so many at a time."""

    images: Tensor
    batch_sizes: tuple[int, ...]

    @classmethod
    def of(cls, images: Tensor, sizes: tuple[int, ...]) -> ProbeImages:
        """In batches of these sizes, as far as the images go, and all at once."""
        return cls(images, (*(size for size in sizes if size < len(images)), len(images)))


def run_export(
    loaded: LoadedModel,
    target: Target,
    path: Path,
    *,
    folding: bool,
    overwrite: bool,
    data: str | None = None,
    split: str | None = None,
    images: Tensor | None = None,
) -> Export:
    """Write a network for others; what does not compute the same, on images of `data`, is not left there.

    `images` are examples for a network of which it is not known what it takes.
    """
    check_request(target, path, folding=folding, overwrite=overwrite)
    source = plain.check_plain(loaded) if target is Target.TIMM else None
    loaded.model.float().eval()
    images = _random_images(loaded) if images is None else images
    probe = ProbeImages.of(images, BATCH_SIZES) if data is None else _real_images(loaded, data, split)
    notes = _batch_notes(loaded.model, probe)
    if source is not None:
        with staged(path, PLAIN_FILES) as stage:
            notes += plain.write_plain(loaded, source, stage)
            difference = _compare(loaded.model, plain.open_plain(stage), probe, plain.TOLERANCE)
        written, folded = [path / name for name in PLAIN_FILES], None
    else:
        difference, folded = _write_graph(loaded, target, path, images, probe, folding)
        written = [path.parent / name for name in _files(path)]
    return Export(
        model=loaded.name,
        target=target,
        output=str(path),
        files={str(file): file.stat().st_size for file in written},
        preprocessing=loaded.origin.preprocessing,
        folded=folded,
        data=data,
        images=len(probe.images),
        batch_sizes=probe.batch_sizes,
        difference=difference,
        notes=tuple(notes),
    )


def _write_graph(
    loaded: LoadedModel, target: Target, path: Path, images: Tensor, probe: ProbeImages, folding: bool
) -> tuple[float, int | None]:
    form, program, folded = FORMATS[target], trace(loaded.model, images), None
    if folding:
        program, folded = fold(program, images)
    description = describe(loaded, images, Exported(target=target, folded=folded)).model_dump_json(indent=2)
    with staged(path.parent, _files(path), owner=path.name) as stage:
        form.write(program, stage / path.name, description)
        (stage / _files(path)[1]).write_text(f"{description}\n", encoding="utf-8")
        return _compare(loaded.model, form.open(stage / path.name), probe, TOLERANCE), folded


def _files(path: Path) -> tuple[str, str]:
    """The file and the one beside it, which describes it."""
    return path.name, f"{path.name}.json"


def _random_images(loaded: LoadedModel) -> Tensor:
    inputs = example_inputs(loaded.origin, max(BATCH_SIZES))
    if inputs is None or len(inputs) != 1 or not isinstance(inputs[0], Tensor):
        raise SurgeonError(f"{loaded.name} does not take one batch of images, which is what can be exported.")
    return inputs[0]


def _real_images(loaded: LoadedModel, data: str, split: str | None) -> ProbeImages:
    """A few images of a data set, as the network expects them."""
    preprocessing = loaded.origin.preprocessing
    if preprocessing is None:
        raise SurgeonError(f"The preprocessing of {loaded.name} is not known.", "Leave --data out.")
    number = max(REAL_BATCH_SIZES)
    image_set = open_images(InferenceRequest(data=data, split=split, limit=number))
    check_medium(image_set, preprocessing, loaded.name)
    (batch,) = batches(image_set, preprocessing, number)
    return ProbeImages.of(batch.images.contiguous(), REAL_BATCH_SIZES)


def _batch_notes(model: nn.Module, probe: ProbeImages) -> list[str]:
    alone, together = (_outputs(model, probe.images[:size]) for size in (1, len(probe.images)))
    if parity.relative_difference([t[:1] for t in together], alone) <= TOLERANCE:
        return []
    return ["The prediction for an image depends on the others in its batch, as it did before."]


def _compare(model: nn.Module, written: Run, probe: ProbeImages, tolerance: float) -> float:
    """The largest relative difference over all batch sizes, if it is no more than rounding."""
    difference = max(
        parity.relative_difference(_outputs(written, some), _outputs(model, some))
        for size in probe.batch_sizes
        for some in torch.split(probe.images, size)
    )
    if difference > tolerance:
        raise SurgeonError(
            f"The export's outputs differ from the network's by {difference:.2g} (relative), so it was removed.",
            "This is a bug in surgeon or in the exporter: please report it with the model's name.",
            ExitCode.VERIFICATION,
        )
    return difference


def _outputs(run: Run, images: Tensor) -> list[Tensor]:
    with torch.inference_mode():
        return [t.clone() for t in flatten(run(images))]
