"""Where images come from: bundled digits, folders, Parquet files, saved `datasets`, the hub, known sets."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from surgeon.core.errors import SurgeonError, did_you_mean, listing
from surgeon.data.descriptions import check_descriptions, check_tables
from surgeon.data.digits import SPLITS as DIGITS_SPLITS
from surgeon.data.digits import digit_pixels
from surgeon.data.fetching import fetch, quiet_datasets
from surgeon.data.folders import (
    folder_name,
    holds_masks,
    open_folder,
    open_masked_folder,
    open_some_of_imagenet,
    open_unlabelled_folder,
    subfolders,
)
from surgeon.data.images import ImageSet, PixelArrays
from surgeon.data.masks import with_names_beside
from surgeon.data.named_splits import VALIDATION_NAMES, WHOLE, choose_split
from surgeon.data.presets import PRESETS, Preset
from surgeon.data.tables import CLASSIFICATION, SEGMENTATION, Columns, column_values, image_set, parquet_values
from surgeon.data.union import UNION, parts_of, union_of, unlabelled_union_of

if TYPE_CHECKING:
    from datasets import Dataset, Features  # type: ignore[import-untyped]

IMAGENET_A, IMAGENET_C, LABELS_FILE = "imagenet-a:", "imagenet-c:", "labels.npy"

_SHARD = re.compile(r"(\w+(?:[.-]\w+)*)-\d{5}-of-\d{5}\.\w+")
"""A file of a split, as the hub names them: photo-00000-of-00002.parquet."""


def open_data(
    spec: str,
    split: str | None = None,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    labelled: bool = True,
    where: Sequence[str] = (),
    problem: str | None = None,
    void: Sequence[int] = (),
) -> ImageSet:
    """Open one split of a data set; without a split, its test images, else its validation images.

    Args:
        spec: A DATA of the command line.
        split: Which part of it.
        image_column: Of a table, if it cannot be told.
        label_column: Of a table, if it cannot be told.
        labelled: Whether labels are wanted. Without them images need none, and all of them have class 0.
        where: COLUMN=VALUE: only the rows of a table in which all of these hold.
        problem: `classification` or `segmentation`, if it cannot be told.
        void: Values of masks that stand for no class, besides 255.
    """
    columns = Columns(image_column, label_column, labelled, tuple(where), problem, tuple(void))
    images = _open(spec, split, columns)
    if problem == SEGMENTATION and labelled and images.masks is None:
        raise SurgeonError(
            f"{spec!r} has no masks.",
            "Put them into a column (--label-column) or into masks/ beside images/.",
        )
    if void and labelled and images.masks is None:
        raise SurgeonError(f"--void {void[0]} is for masks, and {spec!r} has one label per image.")
    return images


def _open(spec: str, split: str | None, columns: Columns) -> ImageSet:
    where, labelled = columns.where, columns.labelled
    if spec.startswith(UNION):
        return _open_union(spec, split, columns)
    if spec == "digits":
        _refuse_conditions(where, spec)
        return _open_digits(split).without_labels() if not labelled else _open_digits(split)
    if spec in PRESETS:
        _refuse_conditions(where, spec)  # whose splits are made of all rows
        images = _open_preset(PRESETS[spec], split, replace(columns, labelled=True))
        return images if labelled else images.without_labels()
    if spec.startswith("hf:"):
        repository, _, config = spec.removeprefix("hf:").partition(":")
        return _open_hub(repository, config or None, split, columns)
    if spec.startswith(IMAGENET_A):
        _refuse_conditions(where, spec)
        return open_some_of_imagenet(Path(spec.removeprefix(IMAGENET_A)).expanduser(), split)
    if spec.startswith(IMAGENET_C) or (Path(spec).expanduser() / LABELS_FILE).is_file():
        raise SurgeonError(
            f"{spec!r} holds images under several corruptions.", "`surgeon robustness` measures networks on them."
        )
    return _open_path(Path(spec).expanduser(), split, columns)


def _open_union(spec: str, split: str | None, columns: Columns) -> ImageSet:
    parts = [
        open_data(
            part,
            split,
            image_column=columns.image,
            label_column=columns.label,
            labelled=columns.labelled,
            where=columns.where,
        )
        for part in parts_of(spec)
    ]
    return union_of(parts) if columns.labelled else unlabelled_union_of(parts)


def check_data(spec: str) -> None:
    """Refuse a DATA that names nothing, before anything is downloaded or opened."""
    if spec.startswith(UNION):
        for part in parts_of(spec):
            check_data(part)
        return
    elsewhere = is_known(spec) or spec.startswith((IMAGENET_A, IMAGENET_C))
    if not elsewhere and not Path(spec).expanduser().exists():
        raise _no_such_data(spec)


def _no_such_data(spec: str) -> SurgeonError:
    known = ["digits", *PRESETS]
    return SurgeonError(
        f"There is no data {spec!r}: no such file or folder, and no known data set of that name.",
        did_you_mean(spec, known) or f"Known: {listing(known, limit=len(known))}; hf:owner/name for the hub.",
    )


def _refuse_conditions(where: Sequence[str], name: str) -> None:
    if where:
        raise SurgeonError(
            f"--where {where[0]}: {name!r} is not a table with columns.", "Leave --where out, or give Parquet files."
        )


def is_known(spec: str) -> bool:
    """Whether this names data that others have too, and not a file or folder."""
    if spec.startswith(UNION):
        return all(map(is_known, parts_of(spec)))
    return spec == "digits" or spec in PRESETS or spec.startswith("hf:")


def _open_path(path: Path, split: str | None, columns: Columns) -> ImageSet:
    if path.is_file() and path.suffix == ".parquet":
        return with_names_beside(_open_parquet_file(path, split, columns), path.parent)
    if path.is_file():
        raise SurgeonError(f"The file {str(path)!r} is not a Parquet file.", "Give a .parquet file or a folder.")
    if not path.is_dir():
        raise _no_such_data(str(path))
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return with_names_beside(_open_saved(path, split, columns), path)
    if _holds_parquet(path):
        return with_names_beside(_open_layout(path, None, folder_name(path), split, columns), path)
    _refuse_conditions(columns.where, str(path))
    if columns.labelled and columns.problem != CLASSIFICATION and holds_masks(path):
        return with_names_beside(open_masked_folder(path, split, columns.void), path)
    return open_folder(path, split) if columns.labelled else open_unlabelled_folder(path, split)


# Digits -----------------------------------------------------------------------------


def _open_digits(split: str | None) -> ImageSet:
    chosen = choose_split(split, DIGITS_SPLITS, "digits")
    pixels, labels = digit_pixels(chosen)  # type: ignore[arg-type]
    return ImageSet.over(PixelArrays(pixels), labels, [str(digit) for digit in range(10)], name="digits", split=chosen)


# Parquet files, saved sets, the hub -------------------------------------------------------------


def _holds_parquet(folder: Path) -> bool:
    """Whether a folder is in the hub's layout: Parquet files in it, in `data/`, or in a folder per configuration."""
    return any(_starts_with_parquet(place) for place in (folder, *(folder / name for name in subfolders(folder))))


def _starts_with_parquet(folder: Path, looked_at: int = 100) -> bool:
    """Looks at a few files only: a class folder may hold thousands of images."""
    with os.scandir(folder) as entries:
        return any(entry.name.endswith(".parquet") for entry in islice(entries, looked_at))


def _open_parquet_file(path: Path, split: str | None, columns: Columns) -> ImageSet:
    named = re.match(rf"(train|test|{'|'.join(VALIDATION_NAMES)})\b", path.stem)
    chosen = choose_split(split, [named[1] if named else WHOLE], path.name)
    with quiet_datasets(path.name):
        table = _load_files("parquet", [str(path)])
    return image_set(table, columns, lambda column: [column_values(table, column)], name=path.stem, split=chosen)


def _open_saved(path: Path, split: str | None, columns: Columns) -> ImageSet:
    import datasets

    name = folder_name(path)
    check_descriptions(path)
    check_tables([str(file) for file in path.rglob("*.arrow")])
    with quiet_datasets(name):
        saved = datasets.load_from_disk(str(path))
    tables = dict(saved) if isinstance(saved, datasets.DatasetDict) else {str(saved.split or WHOLE): saved}
    chosen = choose_split(split, tables, name)
    return image_set(
        tables[chosen],
        columns,
        lambda column: [column_values(table, column) for table in tables.values()],
        name=name,
        split=chosen,
    )


def _open_layout(
    folder: Path,
    config: str | None,
    name: str,
    split: str | None,
    columns: Columns,
    pooled: tuple[str, ...] = (),
) -> ImageSet:
    """Open one split, or several pooled ones, of a folder in the hub's layout."""
    import datasets

    check_descriptions(folder)
    with quiet_datasets(name):
        builder = datasets.load_dataset_builder(str(folder), config)
        files = {str(key): [str(file) for file in of_split] for key, of_split in builder.config.data_files.items()}
    files = _by_their_names(files)
    check_tables([file for of_split in files.values() for file in of_split])
    chosen = [choose_split(part, files, name) for part in pooled or (split,)]
    with quiet_datasets(name):
        table = _load_files(builder.name, [file for part in chosen for file in files[part]], builder.info.features)
        everything = [file for of_split in files.values() for file in of_split if file.endswith(".parquet")]
        return image_set(
            table,
            columns,
            lambda column: [parquet_values(file, column) for file in everything],
            name=name,
            split="+".join(chosen),
        )


def _by_their_names(files: dict[str, list[str]]) -> dict[str, list[str]]:
    """The splits that files are named for, where `datasets`, which knows only the usual names, sees just one split."""
    named: dict[str, list[str]] = {}
    for file in (file for of_split in files.values() for file in of_split):
        found = _SHARD.fullmatch(Path(file).name)
        named.setdefault(found[1] if found else "", []).append(file)
    return named if len(files) == 1 and "" not in named else files


def _load_files(module: str, files: list[str], features: Features | None = None) -> Dataset:
    """Only the files of one split are converted to Arrow, once; `datasets` itself converts all splits."""
    import datasets

    return datasets.load_dataset(module, data_files={"train": files}, split="train", features=features)


def _open_hub(
    repository: str, config: str | None, split: str | None, columns: Columns, pooled: tuple[str, ...] = ()
) -> ImageSet:
    folder = fetch(repository, config, pooled or (split,))
    return _open_layout(folder, config, repository, split, columns, pooled)


def _open_preset(preset: Preset, split: str | None, columns: Columns) -> ImageSet:
    chosen = choose_split(split or preset.default_split, preset.rule.splits, preset.name)
    columns = Columns(columns.image or preset.image_column, columns.label or preset.label_column)
    pool = _open_hub(preset.hub, preset.config, None, columns, preset.rule.sources(chosen))
    indices = preset.rule.choose(pool.labels, chosen)
    images = pool if indices is None else pool.subset(indices)
    return replace(images, name=preset.name, split=chosen)
