"""The tables of shift_study.py: accuracy by method and kind of images, with paired intervals against the original."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from surgeon.metrics.interval import PairedComparison, compare

Rows = Mapping[tuple[str, ...], Sequence[int]]
"""By network, kind of images and method: 1 for each image that was right, else 0, in the same order for all methods."""

CORRUPTED = re.compile(r"(.+)-(\d)")
ORIGINAL = "original"


def print_tables(rows: Rows) -> None:
    for network in dict.fromkeys(key[0] for key in rows):
        kinds = list(dict.fromkeys(key[1] for key in rows if key[0] == network))
        corrupted = [kind for kind in kinds if CORRUPTED.fullmatch(kind)]
        columns = {kind: [kind] for kind in kinds if kind not in corrupted}
        if corrupted:
            columns = {"all corruptions": corrupted, **_grouped(corrupted, 2, "severity "), **columns}
        _print(rows, network, columns, _with_interval)
        if corrupted:
            _print(rows, network, _grouped(corrupted, 1), _alone)


def _grouped(kinds: Sequence[str], part: int, prefix: str = "") -> dict[str, list[str]]:
    """Kinds of corrupted images by corruption (1) or by severity (2)."""
    names = {kind: prefix + CORRUPTED.fullmatch(kind)[part] for kind in kinds}  # type: ignore[index]
    return {name: [kind for kind in kinds if names[kind] == name] for name in dict.fromkeys(names.values())}


def _print(
    rows: Rows,
    network: str,
    columns: Mapping[str, Sequence[str]],
    cell: Callable[[NDArray[np.float64], NDArray[np.float64]], str],
) -> None:
    methods = list(dict.fromkeys(key[2] for key in rows if key[0] == network))
    print(f"\n{network}: accuracy (%), and gain over the original (95%)")
    print(f"| | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for method in methods:
        cells = []
        for kinds in columns.values():
            if any((network, kind, method) not in rows for kind in kinds):
                cells.append("")
                continue
            mine = _by_image([rows[network, kind, method] for kind in kinds])
            # photos after adapting to another style are compared with photos
            original = _by_image([rows[network, kind.partition(", adapted")[0], ORIGINAL] for kind in kinds])
            cells.append(cell(mine, original))
        print(f"| {method} | {' | '.join(cells)} |")


def _by_image(of_kinds: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """The accuracy of each image, averaged over the kinds of damage: these are not independent images."""
    return np.mean(of_kinds, axis=0)


def _alone(mine: NDArray[np.float64], _: NDArray[np.float64]) -> str:
    return f"{100 * mine.mean():.1f}"


def _with_interval(mine: NDArray[np.float64], original: NDArray[np.float64]) -> str:
    if np.array_equal(mine, original):
        return f"{100 * mine.mean():.2f}"
    gain = _compared(mine, original)
    return f"{100 * mine.mean():.2f}, {100 * gain.difference:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"


def _compared(mine: NDArray[np.float64], original: NDArray[np.float64]) -> PairedComparison:
    single = all(set(np.unique(values)) <= {0.0, 1.0} for values in (mine, original))
    first, second = ((values.astype(bool) if single else values) for values in (mine, original))
    return compare(first, second, higher_is_better=True)
