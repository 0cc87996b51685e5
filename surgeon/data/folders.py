"""Folders of images or clips: one for each class, with or without folders of splits above, or without any classes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from surgeon.core.errors import SurgeonError, listing
from surgeon.core.media import Medium
from surgeon.data.clips import SoundSet
from surgeon.data.imagenet import outputs_of
from surgeon.data.images import ImageFiles, ImageSet
from surgeon.data.masks import USUAL_VOID, Masks
from surgeon.data.named_splits import VALIDATION_NAMES, WHOLE, choose_split

IMAGES, MASKS = "images", "masks"
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
SUFFIXES = {Medium.IMAGE: IMAGE_SUFFIXES, Medium.SOUND: (".wav", ".flac", ".ogg", ".mp3")}


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
        lacking = ", so its images have no labels" if any(sample_files(splits[chosen], root)) else ""
        raise SurgeonError(
            f"The folder {str(splits[chosen])!r} holds no class folders and no Parquet files{lacking}.",
            "Put the images of each class into a folder of its own, e.g. test/cat/1.jpg.",
        )
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        of_class = list(sample_files(splits[chosen] / name, root))
        paths += of_class
        labels += [label] * len(of_class)
    kind = _kind_of_set(paths, splits[chosen])
    return kind.over(ImageFiles(root, paths), labels, classes, name=folder_name(root), split=chosen)


def _kind_of_set(paths: Sequence[str], folder: Path) -> type[ImageSet]:
    """What a set of these files holds; it cannot hold both."""
    media = {medium: [path for path in paths if is_file_of(medium, path)] for medium in Medium}
    if all(media.values()):
        image, clip = (media[medium][0] for medium in (Medium.IMAGE, Medium.SOUND))
        raise SurgeonError(
            f"The folder {str(folder)!r} holds both images and clips of sound, such as {image} and {clip}.",
            "Put them into folders of their own.",
        )
    return SoundSet if media[Medium.SOUND] else ImageSet


def is_file_of(medium: Medium, path: str) -> bool:
    """Whether a file is of that kind, by its name."""
    return path.lower().endswith(SUFFIXES[medium])


def open_some_of_imagenet(root: Path, split: str | None) -> ImageSet:
    """A folder with some of ImageNet's classes, by WordNet number: networks choose among these alone."""
    if not root.is_dir():
        raise SurgeonError(f"There is no folder {str(root)!r}.", "Give the folder that contains n01440764 and so on.")
    images = open_folder(root, split)
    return replace(images, outputs=outputs_of(images.class_names, root.name))


def holds_masks(root: Path) -> bool:
    """Whether a folder has images/ and masks/, or its splits have."""
    splits = [root / name for name in subfolders(root) if name in ("train", "test", *VALIDATION_NAMES)]
    return any({IMAGES, MASKS} <= set(subfolders(place)) for place in (root, *splits))


def open_masked_folder(root: Path, split: str | None, void: Iterable[int]) -> ImageSet:
    """Images in images/ and their masks, which are called alike, in masks/; splits lie above or below these."""
    places = _masked_splits(root)
    chosen = choose_split(split, places, folder_name(root))
    images, masks = places[chosen]
    paths = list(image_files(images, root))
    by_stem = {_stem(path, masks, root): path for path in image_files(masks, root)}
    stems = [_stem(path, images, root) for path in paths]
    if without := [path for path, stem in zip(paths, stems, strict=True) if stem not in by_stem]:
        raise SurgeonError(
            f"{len(without):,} of {len(paths):,} images in {str(images)!r} have no mask, e.g. {without[0]}.",
            f"Put a mask of the same name into {str(masks)!r}, e.g. {stems[paths.index(without[0])]}.png.",
        )
    if left := sorted(set(by_stem) - set(stems)):
        raise SurgeonError(
            f"{len(left):,} masks in {str(masks)!r} have no image, e.g. {by_stem[left[0]]}.",
            "Remove them, or add their images.",
        )
    found = ImageSet.over(
        ImageFiles(root, paths), [0] * len(paths), (), name=folder_name(root), split=chosen, names_known=False
    )
    encoded = ImageFiles(root, [by_stem[stem] for stem in stems])
    return replace(found, masks=Masks(encoded, void=frozenset({USUAL_VOID, *void})))


def _masked_splits(root: Path) -> dict[str, tuple[Path, Path]]:
    """The folders of images and of masks, by split."""
    names = ("train", "test", *VALIDATION_NAMES)
    above = {name: (root / name / IMAGES, root / name / MASKS) for name in subfolders(root) if name in names}
    if above:
        return above
    below = [name for name in subfolders(root / IMAGES) if name in names]
    if below:
        return {name: (root / IMAGES / name, root / MASKS / name) for name in below}
    return {WHOLE: (root / IMAGES, root / MASKS)}


def _stem(path: str, folder: Path, root: Path) -> str:
    """What an image and its mask have in common: the path below their folder, without the suffix."""
    return os.path.splitext(os.path.relpath(root / path, folder))[0]


def open_unlabelled_folder(root: Path, split: str | None) -> ImageSet:
    """All images below a folder, or below that of a split, whatever the folders between are called."""
    splits = {name: root / name for name in subfolders(root) if name in ("train", "test", *VALIDATION_NAMES)}
    chosen = choose_split(split, splits or {WHOLE: root}, folder_name(root))
    folder = splits.get(chosen, root)
    # What lies in masks/ beside images/ are no images to look at.
    folder = folder / IMAGES if {IMAGES, MASKS} <= set(subfolders(folder)) else folder
    paths = list(sample_files(folder, root))
    if not paths:
        raise SurgeonError(f"The folder {str(folder)!r} holds no images.", hint_on_names(Medium.IMAGE))
    labels = [0] * len(paths)
    kind = _kind_of_set(paths, folder)
    return kind.over(ImageFiles(root, paths), labels, ["0"], name=folder_name(root), split=chosen, names_known=False)


def hint_on_names(medium: Medium) -> str:
    """How files of one kind are told."""
    name = medium.samples
    return f"{name[0].upper()}{name[1:]} are files that end in {listing(SUFFIXES[medium], 'or', limit=20)}."


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
    return sample_files(folder, root, (Medium.IMAGE,))


def sample_files(folder: Path, root: Path, media: Iterable[Medium] = Medium) -> Iterator[str]:
    """All images, clips or both below a folder, in order, by their paths below another one."""
    suffixes = tuple(suffix for medium in media for suffix in SUFFIXES[medium])
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for file in sorted(files):
            if file.lower().endswith(suffixes) and not file.startswith("."):
                yield os.path.relpath(os.path.join(parent, file), root)
