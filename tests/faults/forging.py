"""Checkpoints whose records were changed by somebody who also mended everything that would give it away."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file

WEIGHTS, CONFIG, SURGERY = "model.safetensors", "config.json", "surgery.json"

Place = tuple[str | int, ...]


def record_of(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / SURGERY).read_text("utf-8"))
    return record


def forge(folder: Path, record: dict[str, Any]) -> None:
    """Write a record into both places, with the hashes that belong to them."""
    forge_text(folder, json.dumps({key: value for key, value in record.items() if key != "files"}))
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (WEIGHTS, CONFIG)}
    (folder / SURGERY).write_text(json.dumps({**record, "files": hashes}), "utf-8")


def forge_text(folder: Path, embedded: str) -> None:
    """Put a record, whatever it is, into the metadata of the weights."""
    path = folder / WEIGHTS
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    save_file(load_file(path), path, {**metadata, "surgeon": embedded})


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Every value within a document, containers too."""
    if place:
        yield place
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*place, key))


def changed(document: Any, place: Place, change: Callable[[Any, str | int], None]) -> Any:
    """A copy of a document in which something was done to one entry of the container at its place."""
    copy = json.loads(json.dumps(document))
    container = copy
    for key in place[:-1]:
        container = container[key]
    change(container, place[-1])
    return copy


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**6, 10**9, 2**63, 10**30, 1e308, float("nan"), float("inf"), "", "x",
    "../../etc/passwd", "/etc/passwd", "https://example.com/a", "hf-hub:a/b", "local-dir:/", "a\nb\x1b[31m\u202e",
    "\x00", "\ud800", "x" * 10_000, [], [[]], {}, {"a": 1}, [1] * 100, [0.5] * 1000, list(range(20)),
    nested(200), {"": None},
)  # fmt: skip


def mutations(record: dict[str, Any], number: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Records with one to three random changes, and what was changed."""
    draw = random.Random(seed)
    alike: dict[Place, list[Place]] = {}  # the entries of long lists count once
    for place in places(record):
        alike.setdefault(tuple("*" if isinstance(key, int) else key for key in place), []).append(place)
    for _ in range(number):
        told, mutant = [], record
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            place, value = draw.choice(draw.choice(list(alike.values()))), draw.choice(VALUES)
            kind = draw.choice(("value", "value", "value", "drop", "extra", "repeat"))

            def change(container: Any, key: str | int, kind: str = kind, value: Any = value) -> None:
                if kind == "value":
                    container[key] = value
                elif kind == "drop":
                    del container[key]
                elif isinstance(container, dict):
                    container["extra" if kind == "extra" else f"{key} "] = value
                else:
                    container.extend([value] if kind == "extra" else container * 3)

            try:
                mutant = changed(mutant, place, change)
            except (KeyError, IndexError, TypeError, AttributeError):  # an earlier change has taken the place away
                continue
            told.append(f"{kind} {'.'.join(map(str, place))} {str(value)[:40]!r}")
        yield "; ".join(told), mutant
