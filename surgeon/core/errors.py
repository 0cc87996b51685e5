"""The one exception users see: what is wrong, with what value, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    VERIFICATION = 3
    INTERRUPTED = 130


class SurgeonError(Exception):
    """Wrong input or a failed operation, told in one sentence with a hint at the next step."""

    def __init__(self, message: str, hint: str = "", exit_code: ExitCode = ExitCode.USAGE) -> None:
        message, hint = printable(message), printable(hint)
        super().__init__(f"{message} {hint}".strip())
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes an error keeps its parts; special kinds arrive as this one."""
        return SurgeonError, (self.message, self.hint, self.exit_code)


class PluginWarning(UserWarning):
    """An installed package wanted to add something and could not."""


class Interrupted(KeyboardInterrupt):
    """Somebody has stopped work that can go on.

    Args:
        kept: What is left of it, in a sentence without its end.
        options: What has to be added to the command to go on.
    """

    def __init__(self, kept: str, *options: str) -> None:
        super().__init__(f"{kept}; run the same command{''.join(f' with {option}' for option in options)} to continue.")
        self.kept = kept
        self.options = options


def printable(text: str) -> str:
    """A text in one line that does nothing to a terminal: names of files may hold line breaks and escape sequences."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def did_you_mean(word: str, known: Iterable[str], limit: int = 3) -> str:
    """A hint naming the known words closest to a mistyped one, or nothing if none is close."""
    words = list(known)
    matches = get_close_matches(word, words, n=limit, cutoff=0.6)
    if not matches and len(word) > 1:  # acc is not close to accuracy, but meant
        holding = sorted((one for one in words if word.lower() in one.lower()), key=lambda one: (len(one), one))
        matches = holding[:limit]
    return f"Did you mean {listing(matches, 'or')}?" if matches else ""


def listing(words: Iterable[str], conjunction: str = "and", limit: int = 8) -> str:
    """`a, b and c`; a long list is cut and says how many are left out."""
    items = list(words)
    if len(items) > limit:
        return f"{', '.join(items[:limit])} {conjunction} {len(items) - limit} more"
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {conjunction} {items[-1]}"


def count(number: int, noun: str) -> str:
    """`1 layer`, `2 layers`, `1,234 layers`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
