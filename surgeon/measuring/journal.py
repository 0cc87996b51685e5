"""What a sweep has finished so far, line by line, so that a killed one goes on where it was.

The first line says what is swept. Each further line holds the scores of one block of images, or what
was learned, with a checksum; it is on the disk before the next block begins. A last line that was
torn by a crash is dropped; anything else that does not fit is refused.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from surgeon.core.atomic import flush
from surgeon.core.errors import ExitCode, Interrupted, SurgeonError, listing
from surgeon.core.reading import bounded_lines

VERSION = 1
MOST_BYTES_PER_LINE = 1 << 31
AFRESH = "Choose another folder with -o, or pass --overwrite to start over."


class OtherSweepError(SurgeonError):
    """A folder holds what another sweep has finished."""


class Journal:
    """An append-only file of JSON lines."""

    def __init__(self, path: Path, identity: Mapping[str, Any], overwrite: bool, of: str = "sweep") -> None:
        self.path = path
        self._of = of
        self._size = 0
        self._lines = 0
        header = {"journal": VERSION, **identity}
        if path.exists() and not overwrite:
            self._read(header)
        if self._size == 0:
            self.append(header)

    @property
    def is_begun(self) -> bool:
        """Whether there is anything to go on from."""
        return self._lines > 1

    def records(self) -> Iterator[dict[str, Any]]:
        """What is written down, one after the other; it is read from the file, for scores of many images are large."""
        if not self.is_begun:
            return
        for line in islice(bounded_lines(self.path, "journal", MOST_BYTES_PER_LINE), 1, self._lines):
            record = _parsed(line)
            if record is None:
                raise SurgeonError(f"{self.path} was changed by another program.", AFRESH)
            yield record

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line; it is on the disk when this returns, or not in the file at all."""
        text = _line(record)
        try:
            with self.path.open("ab") as file:
                file.truncate(self._size)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if self._size == 0:
                flush(self.path.parent)  # the file itself is new
        except OSError as error:
            self._cut()
            raise SurgeonError(
                f"Could not write {self.path}: {error.strerror or error}.",
                "Finished work is kept: run the same command to continue.",
                ExitCode.FAILED,
            ) from error
        self._size += len(text)
        self._lines += 1

    def _cut(self) -> None:
        """Take back what was half-written."""
        with suppress(OSError):  # the line is torn then, and will be dropped when it is read
            os.truncate(self.path, self._size)

    def _read(self, header: Mapping[str, Any]) -> None:
        for line in bounded_lines(self.path, "journal", MOST_BYTES_PER_LINE):
            record = _parsed(line)
            if record is None:
                is_last = self._size + len(line) == self.path.stat().st_size
                if is_last and (self._lines or _may_be_torn_header(line)):
                    break  # torn by a crash
                raise SurgeonError(f"{self.path} is damaged in line {self._lines + 1}.", AFRESH)
            if self._lines == 0:
                self._check(record, json.loads(json.dumps(header)))
            self._lines += 1
            self._size += len(line)

    def _check(self, found: Mapping[str, Any], header: Mapping[str, Any]) -> None:
        if found.get("journal") != VERSION:
            raise SurgeonError(f"{self.path} is not a journal that this surgeon can continue.", AFRESH)
        different = [name for name in header if found.get(name) != header[name]]
        if different:
            raise OtherSweepError(
                f"{self.path.parent} holds a {self._of} with other settings: {listing(different)}.",
                AFRESH,
            )


def _may_be_torn_header(line: bytes) -> bool:
    """Whether this could be the beginning of a first line, or somebody else's file."""
    checksum, body = line[:8], line[8:]
    start = b' {"journal":'
    return (
        not line.endswith(b"\n")
        and not checksum.strip(b"0123456789abcdef")
        and (body.startswith(start) or start.startswith(body))
    )


@contextmanager
def going_on(journal: Journal | None) -> Iterator[None]:
    """Work that somebody may stop, and that the same command then goes on with."""
    try:
        yield
    except KeyboardInterrupt:
        if journal is None or not journal.is_begun:
            raise
        raise Interrupted(f"{journal.path.parent} has what was measured so far") from None


def _line(record: Mapping[str, Any]) -> bytes:
    body = json.dumps(record, separators=(",", ":"))
    return f"{zlib.crc32(body.encode()):08x} {body}\n".encode()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The record of a line, or nothing if it is torn or damaged."""
    checksum, _, body = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != f"{zlib.crc32(body):08x}".encode():
        return None
    try:
        record = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
