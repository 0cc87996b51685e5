"""Folders of images: one for each class, with or without folders of splits above them, or without any classes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from surgeon.core.errors import SurgeonError, listing
from surgeon.data.imagenet import outputs_of
from surgeon.data.images import ImageFiles, ImageSet
from surgeon.data.named_splits import VALIDATION_NAMES, WHOLE, choose_split

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")


def folder_name(path: Path) -> str:
    """What a folder is called, also if it is given as `.`."""
    return path.resolve().name


def open_folder(root: Path, split: str | None) -> ImageSet:
    """Images in a folder for each class."""
    splits = _split_folders(root) or {WHOLE: root}
    chosen = choose_split(split, splits, folder_name(root))
    # The classes of all splits: one that is missing here must not shift the numbers of the others.
    classes = sorted({name for folder in splits.values() for name in subfolders(folder)})
    if not classes:
        lacking = ", so its images have no labels" if any(image_files(splits[chosen], root)) else ""
        raise SurgeonError(
            f"The folder {str(splits[chosen])!r} holds no class folders and no Parquet files{lacking}.",
            "Put the images of each class into a folder of its own, e.g. test/cat/1.jpg.",
        )
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        of_class = list(image_files(splits[chosen] / name, root))
        paths += of_class
        labels += [label] * len(of_class)
    return ImageSet.over(ImageFiles(root, paths), labels, classes, name=folder_name(root), split=chosen)


def open_some_of_imagenet(root: Path, split: str | None) -> ImageSet:
    """A folder with some of ImageNet's classes, by WordNet number: networks choose among these alone."""
    if not root.is_dir():
        raise SurgeonError(f"There is no folder {str(root)!r}.", "Give the one that holds n01440764 and so on.")
    images = open_folder(root, split)
    return replace(images, outputs=outputs_of(images.class_names, root.name))


def open_unlabelled_folder(root: Path, split: str | None) -> ImageSet:
    """All images below a folder, or below that of a split, whatever the folders between are called."""
    splits = {name: root / name for name in subfolders(root) if name in ("train", "test", *VALIDATION_NAMES)}
    chosen = choose_split(split, splits or {WHOLE: root}, folder_name(root))
    paths = list(image_files(splits.get(chosen, root), root))
    if not paths:
        raise SurgeonError(
            f"The folder {str(splits.get(chosen, root))!r} holds no images.",
            f"Images are files that end in {listing(IMAGE_SUFFIXES, 'or', limit=20)}.",
        )
    labels = [0] * len(paths)
    return ImageSet.over(
        ImageFiles(root, paths), labels, ["0"], name=folder_name(root), split=chosen, names_known=False
    )


def _split_folders(root: Path) -> dict[str, Path]:
    """Folders named like splits that hold class folders."""
    names = [name for name in subfolders(root) if name in ("train", "test", *VALIDATION_NAMES)]
    return {name: root / name for name in names if subfolders(root / name)}


def subfolders(folder: Path) -> list[str]:
    """The names of the folders in a folder, in order."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def image_files(folder: Path, root: Path) -> Iterator[str]:
    """All images below a folder, in order, by their paths below another one."""
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for file in sorted(files):
            if file.lower().endswith(IMAGE_SUFFIXES) and not file.startswith("."):
                yield os.path.relpath(os.path.join(parent, file), root)
