"""Images that others have corrupted: ImageNet-C, CIFAR-10-C, and tables with the columns corruption and severity.

Each holds the same images under every corruption and severity. They are put into the same order under each, so that
an image has the same index everywhere and networks are compared image by image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.data.folders import image_files, subfolders
from surgeon.data.imagenet import outputs_of, wordnet_numbers
from surgeon.data.images import ImageFiles, ImageSet, PixelArrays
from surgeon.data.opening import IMAGENET_C, LABELS_FILE
from surgeon.data.stratified import limit

SEVERITIES = 5
FORM = "CORRUPTION.npy holds images x height x width x 3 bytes, one fifth of them for each severity."

Key = tuple[str, int]


@dataclass(frozen=True)
class CorruptedImages:
    """The same images under each corruption (by the name of a condition) and severity."""

    parts: Mapping[Key, ImageSet]
    ready: bool = False
    """Whether they have the size that networks see: they are neither enlarged nor cropped."""

    def limited(self, images: int | None) -> CorruptedImages:
        """A stratified subset of the images, the same under all corruptions."""
        if images is None:
            return self
        chosen = limit(next(iter(self.parts.values())).labels, images)
        return replace(self, parts={key: part.subset(chosen) for key, part in self.parts.items()})


def is_corrupted_folder(spec: str) -> bool:
    """Whether DATA is ImageNet-C or a folder of CIFAR-10-C."""
    return spec.startswith(IMAGENET_C) or (Path(spec).expanduser() / LABELS_FILE).is_file()


def open_corrupted_folder(spec: str) -> CorruptedImages:
    """ImageNet-C, or CIFAR-10-C as it is published."""
    if spec.startswith(IMAGENET_C):
        return _open_imagenet_c(Path(spec.removeprefix(IMAGENET_C)).expanduser())
    return _open_arrays(Path(spec).expanduser())


def _condition_name(corruption: str) -> str:
    return corruption.strip().lower().replace("_", "-").replace(" ", "-")


def _open_imagenet_c(root: Path) -> CorruptedImages:
    if not root.is_dir():
        raise SurgeonError(
            f"There is no folder {str(root)!r}.", "Give the folder that contains gaussian_noise/1/n01440764."
        )
    parts: dict[Key, ImageSet] = {}
    files_of_first: list[str] | None = None
    for corruption in subfolders(root):
        for severity in subfolders(root / corruption):
            if not severity.isdecimal() or not 1 <= int(severity) <= SEVERITIES:
                raise SurgeonError(
                    f"The folder {corruption}/{severity} of {root.name!r} is not a severity.",
                    "The folders are CORRUPTION/SEVERITY/CLASS, e.g. fog/3/n01440764.",
                )
            folder = root / corruption / severity
            classes = subfolders(folder)
            labels, files = [], []
            for name, label in zip(classes, outputs_of(classes, f"{corruption}/{severity}"), strict=True):
                of_class = list(image_files(folder / name, folder))
                files += of_class
                labels += [label] * len(of_class)
            stems = [file.rpartition(".")[0] for file in files]
            if files_of_first is None:
                files_of_first = stems
            if stems != files_of_first:
                odd = listing(sorted(set(stems) ^ set(files_of_first)), limit=3)
                raise SurgeonError(
                    f"{corruption}/{severity} of {root.name!r} does not hold the same images as the others: {odd}.",
                    "Every corruption and severity has to hold all of them.",
                )
            parts[_condition_name(corruption), int(severity)] = ImageSet.over(
                ImageFiles(folder, files), labels, wordnet_numbers(), name=root.name, split=f"{corruption}/{severity}"
            )
    if not parts:
        raise SurgeonError(
            f"The folder {str(root)!r} holds no corruptions.", "The folders are CORRUPTION/SEVERITY/CLASS."
        )
    return CorruptedImages(parts, ready=True)


def _open_arrays(root: Path) -> CorruptedImages:
    labels = _mapped(root / LABELS_FILE)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0 or len(labels) % SEVERITIES:
        raise SurgeonError(
            f"{LABELS_FILE} in {str(root)!r} holds {_shape(labels)} of {labels.dtype}, not one class number per image "
            "for each of five severities.",
            FORM,
        )
    number = len(labels) // SEVERITIES
    blocks = np.asarray(labels, dtype=np.int64).reshape(SEVERITIES, number)
    if (blocks != blocks[0]).any():
        raise SurgeonError(f"The labels in {str(root)!r} differ between severities.", FORM)
    names = [str(label) for label in range(int(blocks.max()) + 1)]
    parts: dict[Key, ImageSet] = {}
    for file in sorted(root.glob("*.npy")):
        if file.name == LABELS_FILE:
            continue
        pixels = _mapped(file)
        if pixels.ndim != 4 or pixels.dtype != np.uint8 or pixels.shape[-1] != 3 or len(pixels) != len(labels):
            raise SurgeonError(
                f"{file.name} in {str(root)!r} holds {_shape(pixels)} of {pixels.dtype}, but {LABELS_FILE} is of "
                f"{count(len(labels), 'image')}.",
                FORM,
            )
        for severity in range(1, SEVERITIES + 1):
            places = np.arange((severity - 1) * number, severity * number)
            whole = ImageSet.over(
                PixelArrays(cast("NDArray[np.uint8]", pixels)),
                np.asarray(labels, dtype=np.int64),
                names,
                name=root.resolve().name,
                split=f"{file.stem}/{severity}",
                names_known=False,
            )
            parts[_condition_name(file.stem), severity] = whole.subset(places)
    if not parts:
        raise SurgeonError(f"The folder {str(root)!r} holds {LABELS_FILE}, but no corruptions.", FORM)
    return CorruptedImages(parts)


def _mapped(file: Path) -> NDArray[np.generic]:
    """A file in memory only where it is looked at."""
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (OSError, ValueError, EOFError) as error:
        reason = next(iter(str(error).splitlines()), "").rstrip(".")
        raise SurgeonError(f"{str(file)!r} cannot be read as an array: {reason}.", FORM) from error


def _shape(array: NDArray[np.generic]) -> str:
    return "x".join(map(str, array.shape)) or "a single number"


def corrupted_table(images: ImageSet) -> CorruptedImages | None:
    """The images of a table by corruption and severity; None if it has no such columns."""
    if not {"corruption", "severity"} <= set(images.facts):
        return None
    corruptions, severities = (images.facts[name][images.positions] for name in ("corruption", "severity"))
    originals = images.facts["index"][images.positions] if "index" in images.facts else None
    parts: dict[Key, ImageSet] = {}
    first: tuple[str, list[object], list[int]] | None = None
    for corruption, severity in sorted(
        {(str(name), int(level)) for name, level in zip(corruptions, severities, strict=True)}
    ):
        rows = np.flatnonzero((corruptions == corruption) & (severities == severity))
        if originals is not None:
            rows = rows[np.argsort(originals[rows], kind="stable")]
        numbers = list(originals[rows]) if originals is not None else list(range(len(rows)))
        part = replace(images.subset(rows), split=f"{corruption}/{severity}")
        if first is None:
            first = f"{corruption}/{severity}", numbers, part.labels.tolist()
        elif (numbers, part.labels.tolist()) != first[1:]:
            raise SurgeonError(
                f"{images.name!r} does not hold the same images under {corruption}/{severity} as under {first[0]}.",
                "Every corruption and severity has to hold all of them, matched by the column index.",
            )
        parts[_condition_name(corruption), severity] = part
    return CorruptedImages(parts)
