"""Tables of the `datasets` library as image sets: which columns hold images and labels, and what classes they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.data.arrow import ArrowImages
from surgeon.data.clips import SoundSet
from surgeon.data.images import ImageSet
from surgeon.data.masks import USUAL_VOID, Masks
from surgeon.data.stratified import Indices

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from datasets import Dataset, Features  # type: ignore[import-untyped]

CLASSIFICATION, SEGMENTATION = "classification", "segmentation"
"""What labels may be: one class for each image, or one for each of its pixels."""
IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp")
AUDIO_NAMES = ("audio", "sound", "clip", "wav", "flac", "mp3", "ogg")
MOST_CLASSES = 1_000_000
"""Class numbers go up to the largest label, and every class has a name and an output."""
MASK_NAMES = ("mask", "masks", "annotation", "segmentation", "segmentation_mask", "semantic_mask", "label")
LABEL_NAMES = ("label", "labels", "fine_label", "class", "target", "cls")
FACTS = ("corruption", "severity", "index")
LABEL_FACT = "label"
"""Columns that say what was done to an image, and to which."""

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Columns:
    """The columns a user asked for; those left out are found by type and name."""

    image: str | None
    label: str | None
    labelled: bool = True
    """Whether labels are wanted; without them every image has class 0, and whatever labels there are is but a fact."""
    where: tuple[str, ...] = ()
    """COLUMN=VALUE: only rows in which all of these hold."""
    problem: str | None = None
    """What the labels are to be, if that is not to be found out: masks for `segmentation`."""
    void: tuple[int, ...] = ()
    """Values of masks that stand for no class, besides the usual one."""


def image_set(
    table: Dataset, columns: Columns, every_label: Callable[[str], Iterable[Values]], *, name: str, split: str
) -> ImageSet:
    """The images of a table. `every_label` gives a column's values in all splits, so that all have the same classes."""
    masks = _mask_column(table.features, columns, name)
    image = _image_column(table.features, columns.image, name, masks)
    kind = SoundSet if _holds_sound(table.features, image) else ImageSet
    files = [str(file["filename"]) for file in table.cache_files]
    rows = _rows_where(table, columns.where, name)
    if not columns.labelled:
        nothing = np.zeros(len(table), dtype=np.int64)
        unlabelled = kind.over(ArrowImages(files, image), nothing, ["0"], name=name, split=split, names_known=False)
        unlabelled = replace(unlabelled, facts=_ignored_labels(table, columns.label))
        return unlabelled if rows is None else unlabelled.subset(rows)
    if masks is not None:
        nothing = np.zeros(len(table), dtype=np.int64)
        found = Masks(ArrowImages(files, masks), void=frozenset({USUAL_VOID, *columns.void}))
        masked = ImageSet.over(ArrowImages(files, image), nothing, (), name=name, split=split, names_known=False)
        masked = replace(masked, masks=found)
        return masked if rows is None else masked.subset(rows)
    label = _label_column(table.features, columns.label, name)
    values = column_values(table, label)
    class_names = getattr(table.features[label], "names", None)
    names_known = class_names is not None or values.dtype.kind not in "iu"
    if class_names is None:
        values, class_names = _number_classes(values, np.unique(np.concatenate([*every_label(label), values])))
    _refuse_unlabelled(values if rows is None else values[rows], name, split)
    labelled = kind.over(
        ArrowImages(files, image), values, class_names, name=name, split=split, names_known=names_known
    )
    labelled = replace(labelled, facts={fact: _facts(table, fact) for fact in FACTS if fact in table.features})
    return labelled if rows is None else labelled.subset(rows)


def _ignored_labels(table: Dataset, wanted: str | None) -> dict[str, Values]:
    """The labels of a table whose images are taken without them, as a fact, if it is plain where they are."""
    names = [name for name in ((wanted,) if wanted is not None else LABEL_NAMES) if name in table.features]
    if len(names) != 1 or not _is_integer_or_string(table.features[names[0]]):
        return {}
    found = table.data.column(names[0]).to_pylist()
    # Where labels are held back, -1 or nothing stands in their place.
    return {} if any(value is None or value == -1 for value in found) else {LABEL_FACT: np.asarray(found)}


def _facts(table: Dataset, column: str) -> Values:
    names = getattr(table.features[column], "names", None) or ()
    found = table.data.column(column).to_pylist()
    return np.asarray([names[value] for value in found] if names else found)


def _rows_where(table: Dataset, conditions: Sequence[str], name: str) -> Indices | None:
    """The rows in which all conditions hold; None if there are none to hold."""
    if not conditions:
        return None
    holds = np.ones(len(table), dtype=np.bool_)
    for condition in conditions:
        column, wanted, negated = split_condition(condition)
        if column not in table.features:
            columns = f"Its columns: {_describe(table.features)}."
            raise SurgeonError(f"--where {condition}: {name!r} has no column {column!r}.", columns)
        found = table.data.column(column).to_pylist()
        names = getattr(table.features[column], "names", None) or ()
        texts = np.asarray([_as_text(value, names) for value in found])
        numbers = np.asarray([_as_text(value, ()) for value in found])
        matching = _like(texts, wanted) | _like(numbers, wanted)
        matching = ~matching if negated else matching
        if not matching.any():
            raise SurgeonError(
                f"--where {condition}: no row of {name!r} has that value.", f"It has {listing(np.unique(texts))}."
            )
        holds &= matching
    if not holds.any():
        raise SurgeonError(f"No image of {name!r} has {' and '.join(conditions)} at once.")
    return np.flatnonzero(holds).astype(np.int64)


def split_condition(condition: str) -> tuple[str, str, bool]:
    """The column and the value of a condition as it is written, and whether it is negated."""
    column, equals, wanted = (part.strip() for part in condition.partition("="))
    negated = column.endswith("!")
    column = column.removesuffix("!").strip()
    if not column or not equals or not wanted:
        raise SurgeonError(
            f"--where cannot be {condition!r}.", "Write COLUMN=VALUE, e.g. --where severity=5 or 'name=0001*'."
        )
    return column, wanted, negated


def _like(texts: Values, wanted: str) -> Values:
    """Which texts are the wanted one; in it, * stands for anything."""
    if "*" not in wanted:
        return np.asarray(texts == wanted)
    pattern = re.compile(".*".join(map(re.escape, wanted.split("*"))), re.DOTALL)
    return np.asarray([pattern.fullmatch(text) is not None for text in texts.tolist()])


def _as_text(value: Any, names: Sequence[str]) -> str:
    """A cell as people write it: a class by its name, 5.0 as 5."""
    if names and isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def column_values(table: Dataset, column: str) -> Values:
    """All values of one column, integers or strings."""
    return _to_numpy(table.data.column(column), column)


def parquet_values(file: str, column: str) -> Values:
    """All values of one column of a file, without reading the others."""
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    return _to_numpy(parquet.read_table(file, columns=[column]).column(column), column)


def _to_numpy(values: pa.ChunkedArray, column: str) -> Values:
    import pyarrow as pa

    if values.null_count:
        raise SurgeonError(f"The column {column!r} has {count(values.null_count, 'row')} without a label.")
    plain = values.to_numpy() if pa.types.is_integer(values.type) else values.to_pylist()
    return np.asarray(plain, dtype=None if pa.types.is_integer(values.type) else str)


def _number_classes(values: Values, occurring: Values) -> tuple[Indices, list[str]]:
    """Integers are class numbers as they are; strings are numbered in sorted order."""
    if values.dtype.kind in "iu":
        largest = int(occurring.max(initial=-1))
        if largest >= MOST_CLASSES:
            raise SurgeonError(
                f"The label {largest} is not a class number: there can be at most {MOST_CLASSES:,} classes.",
                "Name another column with --label-column.",
            )
        return values, [str(number) for number in range(largest + 1)]
    return np.searchsorted(occurring, values), [str(value) for value in occurring]


def _refuse_unlabelled(labels: Values, name: str, split: str) -> None:
    if unlabelled := int((labels < 0).sum()):
        raise SurgeonError(
            f"{unlabelled:,} of {count(len(labels), 'image')} in the split {split!r} of {name!r} have no label "
            f"(a negative one).",
            "Choose another split with --split.",
        )


def _mask_column(features: Features, columns: Columns, name: str) -> str | None:
    """The column of masks, if the labels are masks: the one that is named, or the only one that is called so."""
    from datasets import Image

    if columns.problem == CLASSIFICATION or not columns.labelled:
        return None
    images = [column for column, kind in features.items() if isinstance(kind, Image) or _holds_bytes(kind)]
    if columns.label is not None:
        return columns.label if columns.label in images else None
    named = [column for column in images if column in MASK_NAMES and column != columns.image]
    plain = any(_is_label(column, kind) for column, kind in features.items())
    if columns.problem != SEGMENTATION and (plain or not named):
        return None
    return _only_one("label", named, MASK_NAMES, features, name)


def _holds_bytes(kind: Any) -> bool:
    return isinstance(kind, dict) and "bytes" in kind


def _is_label(column: str, kind: Any) -> bool:
    from datasets import ClassLabel

    return isinstance(kind, ClassLabel) or (column in LABEL_NAMES and _is_integer_or_string(kind))


def _image_column(features: Features, wanted: str | None, name: str, masks: str | None) -> str:
    from datasets import Audio, Image

    images = [column for column, kind in features.items() if isinstance(kind, Image | Audio) and column != masks]
    structs = [column for column, kind in features.items() if _holds_bytes(kind) and column != masks]
    binaries = [column for column, kind in features.items() if getattr(kind, "dtype", "") in ("binary", "large_binary")]
    if wanted is not None:
        return _asked_for(wanted, "image", [*images, *structs, *binaries], features, name)
    return _only_one("image", images or structs or binaries, (*IMAGE_NAMES, *AUDIO_NAMES), features, name)


def _holds_sound(features: Features, column: str) -> bool:
    """Whether a column is declared as sound, or is called so and not declared as anything else."""
    from datasets import Audio, Image

    kind = features[column]
    return isinstance(kind, Audio) or (column.lower() in AUDIO_NAMES and not isinstance(kind, Image))


def _label_column(features: Features, wanted: str | None, name: str) -> str:
    from datasets import ClassLabel

    classes = [column for column, kind in features.items() if isinstance(kind, ClassLabel)]
    plain = [column for column, kind in features.items() if _is_integer_or_string(kind)]
    if wanted is not None:
        return _asked_for(wanted, "label", [*classes, *plain], features, name)
    return _only_one(
        "label", classes or [column for column in plain if column in LABEL_NAMES], LABEL_NAMES, features, name
    )


def _is_integer_or_string(kind: Any) -> bool:
    return str(getattr(kind, "dtype", "")).startswith(("int", "uint", "string", "large_string"))


def _asked_for(wanted: str, role: str, fitting: Sequence[str], features: Features, name: str) -> str:
    if wanted in fitting:
        return wanted
    problem = f"holds no {role}s" if wanted in features else "does not exist"
    raise SurgeonError(f"The column {wanted!r} of {name!r} {problem}.", f"Its columns: {_describe(features)}.")


def _only_one(role: str, candidates: Sequence[str], usual: Sequence[str], features: Features, name: str) -> str:
    """The only candidate, or else the only one with a usual name."""
    for group in (candidates, [column for column in candidates if column in usual]):
        if len(group) == 1:
            return group[0]
    problem = f"{name!r} has {'several' if candidates else 'no recognised'} {role} columns."
    raise SurgeonError(problem, f"Pass --{role}-column with one of its columns: {_describe(features)}.")


def _describe(features: Features) -> str:
    kinds = (getattr(kind, "dtype", None) if type(kind).__name__ == "Value" else None for kind in features.values())
    named = zip(features.items(), kinds, strict=True)
    return listing(f"{column} ({dtype or type(kind).__name__})" for (column, kind), dtype in named)
