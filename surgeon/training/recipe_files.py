"""Recipes as files: those that are shipped, and what a file says before it is checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surgeon.core.bounded_yaml import parse_yaml
from surgeon.core.errors import SurgeonError, did_you_mean
from surgeon.core.reading import read_bounded

SHIPPED = Path(__file__).parents[1] / "assets" / "recipes"
MOST_RECIPE_BYTES, MOST_RECIPE_VALUES = 1 << 18, 10_000


def shipped_recipes() -> dict[str, Path]:
    """The recipes that come with surgeon, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def find_recipe(name: str) -> Path:
    """A file, or a shipped recipe."""
    if (path := Path(name)).suffix in (".yaml", ".yml"):
        if not path.exists():
            raise SurgeonError(f"There is no recipe file {name!r}.", "Shipped ones are listed by `surgeon ls recipes`.")
        return path
    known = shipped_recipes()
    if name not in known:
        raise SurgeonError(
            f"There is no recipe {name!r}.", did_you_mean(name, known) or "See `surgeon ls recipes`, or give a file."
        )
    return known[name]


@dataclass(frozen=True)
class Header:
    """What the comment at the top of a recipe says."""

    summary: str
    command: str
    expected: str


def header_of(path: Path) -> Header:
    """The first line, and the entries `Run:` and `Expected:`, each of which may go on over several lines."""
    entries = {"Summary": "", "Run": "", "Expected": ""}
    current = "Summary"
    for line in recipe_text(path).splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("#").strip()
        name, colon, rest = text.partition(":")
        if colon and name in ("Run", "Then", "Expected"):
            current, text = name, rest.strip()
        entries[current] = f"{entries.get(current, '')} {text}".strip()
    return Header(entries["Summary"], entries["Run"], entries["Expected"])


def read_yaml(path: Path) -> dict[str, Any]:
    """The content of a recipe, not yet checked."""
    try:
        content = parse_yaml(recipe_text(path), MOST_RECIPE_VALUES)
    except ValueError as error:
        raise SurgeonError(f"The recipe {str(path)!r} is not readable YAML: {str(error).rstrip('.')}.") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SurgeonError(f"The recipe {str(path)!r} does not consist of `key: value` lines.")
    return content


def recipe_text(path: Path) -> str:
    """A recipe as it was written."""
    try:
        return read_bounded(path, "recipe", MOST_RECIPE_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SurgeonError(f"The recipe {str(path)!r} is not readable YAML: it is not UTF-8 text ({error}).") from None
