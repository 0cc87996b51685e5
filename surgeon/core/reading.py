"""Reading files that somebody else may have made: ordinary files only, and documents of bounded size and depth."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from surgeon.core.errors import SurgeonError

DEEPEST = 64
"""Lists and mappings within each other. Our own records have less than ten levels."""


def check_ordinary(path: Path, kind: str) -> None:
    """Refuse what is no file of bytes: opening a pipe waits for a writer, and a device never ends.

    Args:
        path: What is to be opened.
        kind: What it is called in the message, e.g. `weights file`.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise SurgeonError(f"There is no {kind} {str(path)!r}.", "Check the path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SurgeonError(
            f"The {kind} {str(path)!r} cannot be read: {reason}.", "Check the path and its permissions."
        ) from None
    if not stat.S_ISREG(mode):
        raise SurgeonError(f"{str(path)!r} is {_kind_of(mode)}, not a {kind}.")


def _kind_of(mode: int) -> str:
    kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a named pipe", stat.S_ISSOCK: "a socket"}
    return next((name for is_kind, name in kinds.items() if is_kind(mode)), "a device")


def read_bounded(path: Path, kind: str, most_bytes: int) -> bytes:
    """The content of an ordinary file that is not larger than any of its kind has reason to be.

    Args:
        path: The file.
        kind: What it is called in messages, e.g. `recipe`.
        most_bytes: How large it may be.
    """
    check_ordinary(path, kind)
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise SurgeonError(
            f"The {kind} {str(path)!r} cannot be read: {error.strerror}.", "Check the path and its permissions."
        ) from None
    if len(content) > most_bytes:
        raise SurgeonError(f"The {kind} {str(path)!r} is too large: it has more than {most_bytes:,} bytes.")
    return content


def bounded_lines(path: Path, kind: str, most_bytes: int) -> Iterator[bytes]:
    """Line by line, with the ends of lines: for what is too long to be in memory at once.

    Args:
        path: The file.
        kind: What it is called in messages, e.g. `journal`.
        most_bytes: How long a line may be.
    """
    check_ordinary(path, kind)
    try:
        with path.open("rb") as file:
            while line := file.readline(most_bytes + 1):
                if len(line) > most_bytes:
                    raise SurgeonError(f"The {kind} {str(path)!r} has a line of more than {most_bytes:,} bytes.")
                yield line
    except OSError as error:
        raise SurgeonError(
            f"The {kind} {str(path)!r} cannot be read: {error.strerror}.", "Check the path and its permissions."
        ) from None


def parse_json(text: bytes | str) -> Any:
    """A JSON document, or ValueError: also for what JSON has no word for (NaN), and for what Python's reader lets pass.

    Of a key that appears twice it takes the last value, which another reader need not.
    """
    try:
        document = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_each_key_once)
        check_depth(document)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shortened(twice)} appears twice")
    return content


def check_depth(document: Any) -> None:
    """Refuse, by ValueError, a document that recursive code could not walk through."""
    level = [document]
    for _ in range(DEEPEST):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def shortened(value: object, most: int = 80) -> str:
    """A value as Python writes it, cut where it would fill the terminal."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write out integers of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= most else f"{text[:most]}…"
