"""Folders that are written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from surgeon.errors import ExitCode, SurgeonError

UNFINISHED = ".unfinished-"


def check_destination(folder: Path, overwrite: bool) -> None:
    """Refuse a destination that holds something, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise SurgeonError(f"{folder} exists and is not a folder.", "Choose another destination with -o.")
    if folder.is_dir() and not overwrite and any(not _unfinished(entry) for entry in folder.iterdir()):
        raise SurgeonError(f"{folder} already exists.", "Pass --overwrite to replace it, or another folder with -o.")
    writable = next((parent for parent in (folder, *folder.resolve().parents) if parent.exists()), folder)
    if not os.access(writable, os.W_OK):
        raise SurgeonError(f"{writable} is not writable.", "Choose another destination with -o.", ExitCode.FAILED)


@contextmanager
def staged(folder: Path, files: Sequence[str]) -> Iterator[Path]:
    """A temporary folder inside the destination; when all is well its files are moved up, in the given order."""
    created = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder)
        stage = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder))
        yield stage
        for name in files:
            _flush(stage / name)
            os.replace(stage / name, folder / name)
        stage.rmdir()
        _flush(folder)
    except BaseException as error:
        _remove_unfinished(folder)
        for place in created:
            with suppress(OSError):  # somebody else may have put something there
                place.rmdir()
        if not isinstance(error, OSError):
            raise
        reason = error.strerror or error
        raise SurgeonError(f"Could not write {folder}: {reason}.", exit_code=ExitCode.FAILED) from error


def _unfinished(entry: Path) -> bool:
    """Whether this is what a save that was killed has left."""
    return entry.name.startswith(UNFINISHED)


def _remove_unfinished(folder: Path) -> None:
    for entry in filter(_unfinished, folder.iterdir() if folder.is_dir() else ()):
        shutil.rmtree(entry, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
