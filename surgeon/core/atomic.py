"""Folders that are written whole or not at all."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from surgeon.core.errors import ExitCode, SurgeonError

UNFINISHED = ".unfinished-"

REPLACE = "Pass --overwrite (in Python overwrite=True) to replace it, or another {}."


def check_destination(folder: Path, overwrite: bool) -> None:
    """Refuse a destination that holds something, before any work is done."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise SurgeonError(f"{place} exists and is not a folder.", "Choose another destination with -o.")
    if folder.is_dir() and not overwrite and any(not _unfinished(entry) for entry in folder.iterdir()):
        raise SurgeonError(f"{folder} already exists.", REPLACE.format("folder"))
    writable = next((parent for parent in (folder, *folder.resolve().parents) if parent.exists()), folder)
    if not os.access(writable, os.W_OK):
        raise SurgeonError(f"{writable} is not writable.", "Choose another destination with -o.", ExitCode.FAILED)


def check_new_files(folder: Path, names: Sequence[str], overwrite: bool) -> None:
    """The same for single files, in a folder that may hold others."""
    check_destination(folder, overwrite=True)
    for path in (folder / name for name in names):
        if path.is_dir():
            raise SurgeonError(f"{path} is a folder.", "Choose another destination with -o.")
        if path.exists() and not overwrite:
            raise SurgeonError(f"{path} already exists.", REPLACE.format("file"))


@contextmanager
def staged(folder: Path, files: Sequence[str], owner: str = "") -> Iterator[Path]:
    """A temporary folder inside the destination; when all is well its files are moved up, in the given order.

    A file may lie in a folder of its own, as `report/page.html`. Whatever fails, the destination is as it was before.
    What an earlier try has left there is removed; in a folder where others may be writing too, `owner` says whose tries
    those are.
    """
    mark = f"{UNFINISHED}{owner}-" if owner else UNFINISHED
    places = [parent for name in files for parent in (folder / name).parents]
    created = sorted({place for place in places if not place.exists()}, key=lambda place: -len(place.parts))
    moved: list[str] = []
    stage = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder, mark)
        stage = Path(tempfile.mkdtemp(prefix=mark, dir=folder))
        yield stage
        for name in files:
            flush(stage / name)
        for name in files:
            (folder / name).parent.mkdir(exist_ok=True)
            _keep_old(folder / name, _old(stage, name))
            moved.append(name)
            os.replace(stage / name, folder / name)
        flush(folder)
    except BaseException as error:
        if stage is not None:
            _restore(folder, stage, moved)
        _remove_unfinished(folder, mark)
        for place in created:
            with suppress(OSError):  # somebody else may have put something there
                place.rmdir()
        if not isinstance(error, OSError):
            raise
        raise SurgeonError(
            f"Could not write {folder}: {error.strerror or error}.", exit_code=ExitCode.FAILED
        ) from error
    _remove_unfinished(folder, mark)


def _keep_old(path: Path, old: Path) -> None:
    if path.exists():
        try:
            os.link(path, old)
        except OSError:  # a file system without hard links
            shutil.copy2(path, old)


def _old(stage: Path, name: str) -> Path:
    """Where a file of the destination is kept until all is well."""
    return (stage / name).with_name(f"old-{Path(name).name}")


def _restore(folder: Path, stage: Path, moved: Sequence[str]) -> None:
    for name in moved:
        old = _old(stage, name)
        if old.exists():
            os.replace(old, folder / name)
        elif not (stage / name).exists():
            (folder / name).unlink(missing_ok=True)


def _unfinished(entry: Path) -> bool:
    """Whether this is what a save that was killed has left."""
    return entry.name.startswith(UNFINISHED)


def _remove_unfinished(folder: Path, mark: str) -> None:
    for entry in folder.glob(f"{glob.escape(mark)}*"):
        shutil.rmtree(entry, ignore_errors=True)


def flush(path: Path) -> None:
    """Make sure that a file, or the list of files in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
