"""Images inside the Arrow files of a `datasets` set, read where they lie."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surgeon.core.reading import shortened
from surgeon.data.images import MOST_IMAGE_BYTES, TOO_LARGE, read_file, refuse_special_file
from surgeon.data.stratified import Indices

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


class _OpenFile:
    """A file that is open while somebody has it; several threads may read it at once."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def read(self, start: int, length: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), length, start)
        with open(self._file.name, "rb", buffering=0) as file:  # Windows can only read from where it is
            file.seek(start)
            return file.read(length)


_NO_FILE = (-1, None)


class ArrowImages:
    """Images inside the Arrow files of a `datasets` set, each read by itself.

    Only the place of every image is kept. Reading through the library's memory maps would be
    simpler, but then the resident memory grows with the data that was seen, and every access
    costs about as much Python under the GIL as decoding a small image.
    """

    def __init__(self, files: Sequence[str], column: str) -> None:
        self.files = list(files)
        places = [_Places.within(file, column) for file in self.files]
        self._ends = np.cumsum([len(place.starts) for place in places])
        self._places = places
        self._current: tuple[int, _OpenFile | None] = _NO_FILE

    def read(self, position: int) -> bytes:
        number, row = self._locate(position)
        places = self._places[number]
        if (path := places.paths.get(row)) is not None:
            return _read_elsewhere(path)
        if places.lengths[row] < 0:
            raise ValueError("the row is empty")
        return self._file(number).read(int(places.starts[row]), int(places.lengths[row]))

    def _file(self, number: int) -> _OpenFile:
        """One of the files, which stays open until another one is read: opening takes longer than reading."""
        current, file = self._current
        if current != number or file is None:
            file = _OpenFile(self.files[number])
            self._current = number, file
        return file

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_current": _NO_FILE}

    def identity(self, position: int) -> str:
        return f"number {position}"

    def _locate(self, position: int) -> tuple[int, int]:
        number = int(np.searchsorted(self._ends, position, side="right"))
        return number, position - (int(self._ends[number - 1]) if number else 0)


@dataclass(frozen=True)
class _Places:
    """Where the images of one Arrow file lie: in it, or (with length -1) in a file of their own."""

    starts: Indices
    lengths: Indices
    paths: dict[int, str]

    @classmethod
    def within(cls, file: str, column: str) -> _Places:
        import pyarrow as pa

        starts, lengths, paths, rows = [], [], {}, 0
        with pa.memory_map(file) as source:
            base = source.read_buffer(1).address
            source.seek(0)
            for batch in pa.ipc.open_stream(source):
                first, length = _places_in_batch(batch.column(column), base)
                starts.append(first)
                lengths.append(length)
                for row in np.flatnonzero(length < 0):
                    if path := _path_of(batch.column(column)[int(row)].as_py()):
                        paths[rows + int(row)] = path
                rows += batch.num_rows
        empty = np.empty(0, dtype=np.int64)
        return cls(np.concatenate([empty, *starts]), np.concatenate([empty, *lengths]), paths)


def _places_in_batch(column: pa.Array, base: int) -> tuple[Indices, Indices]:
    import pyarrow as pa

    values: Any = column.field("bytes") if pa.types.is_struct(column.type) else column
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    lengths = np.diff(offsets)
    lengths[values.is_null().to_numpy(zero_copy_only=False) | column.is_null().to_numpy(zero_copy_only=False)] = -1
    return (data.address - base if data else 0) + offsets[:-1], lengths


def _path_of(cell: Any) -> str | None:
    return cell.get("path") if isinstance(cell, dict) else None


def _read_elsewhere(path: str) -> bytes:
    """A file, or a member of an archive: zip://a.jpg::archive.zip."""
    from datasets.utils.file_utils import xopen  # type: ignore[import-untyped]

    if "://" not in path and "::" not in path:
        return read_file(Path(path))
    member, _, archive = path.partition("::")
    if not member.startswith("zip://") or "://" in archive or "::" in archive:
        raise ValueError(f"its table refers to a remote file ({shortened(path)}), which is not fetched")
    refuse_special_file(Path(archive), of_any_size=True)
    with xopen(path, "rb") as file:
        content = bytes(file.read(MOST_IMAGE_BYTES + 1))  # which may be compressed
    if len(content) > MOST_IMAGE_BYTES:
        raise ValueError(TOO_LARGE)
    return content
