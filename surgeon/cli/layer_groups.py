"""Normalisation layers by stage and kind: what `inspect` shows of networks with hundreds of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from surgeon.surgery.inspect import LayerReport

MOST_ROWS = 24


def grouped(layers: Sequence[LayerReport]) -> dict[tuple[str, str], list[LayerReport]]:
    """The layers by stage and kind, in the order of the network; by the first part of the name if that is too many."""
    by_stage: dict[tuple[str, str], list[LayerReport]] = defaultdict(list)
    by_part: dict[tuple[str, str], list[LayerReport]] = defaultdict(list)
    for layer in layers:
        by_stage[stage_of(layer.name), layer.kind].append(layer)
        by_part[layer.name.partition(".")[0], layer.kind].append(layer)
    return by_stage if len(by_stage) <= MOST_ROWS else by_part


def stage_of(name: str) -> str:
    """What `layer1.0.bn2` and `layer1.1.bn1` share, or `blocks.3.0.bn1` and `blocks.3.1.bn1`."""
    *parents, _ = name.split(".")
    numbered = next((index for index, part in enumerate(parents) if re.search(r"\d", part)), len(parents) - 1)
    return ".".join(parents[: numbered + 1]) or name


def table_of_groups(layers: Sequence[LayerReport], title: str, with_paths: bool = True) -> Table:
    """One row for each group; columns that would be empty are left out."""
    optional = {
        "fused": any(layer.fused for layer in layers),
        "rewrites": any(layer.rewrites for layer in layers),
        "statistics": True,
        "norm-free path": with_paths,
    }
    table = Table(title=title, title_justify="left")
    table.add_column("where", overflow="fold")
    table.add_column("layers", justify="right")
    table.add_column("kind", no_wrap=True)
    table.add_column("channels", justify="right", no_wrap=True)
    for heading in (name for name, shown in optional.items() if shown):
        table.add_column(heading, overflow="fold")
    for (stage, kind), group in grouped(layers).items():
        sick = _counted([layer.health for layer in group])
        open_paths = [layer.norm_free_path for layer in group]
        cells = {
            "fused": escape(_counted([layer.fused for layer in group]) or "-"),
            "rewrites": escape(_counted([layer.rewrites for layer in group]) or "-"),
            "statistics": f"[yellow]{escape(sick)}[/]" if sick else "[green]ok[/]",
            "norm-free path": "unknown" if None in open_paths else f"{sum(map(bool, open_paths))} of {len(group)}",
        }
        table.add_row(
            escape(stage or "(the model itself)"),
            str(len(group)),
            kind,
            _range([layer.channels for layer in group if layer.channels is not None]),
            *(text for name, text in cells.items() if optional[name]),
        )
    return table


def _counted(texts: Sequence[Sequence[str]]) -> str:
    """What most have, with how many unless it is all."""
    numbers = Counter(" + ".join(text) for text in texts if text)
    if not numbers:
        return ""
    (text, number), *others = numbers.most_common()
    share = "" if number == len(texts) else f"{number} of {len(texts)}: "
    return f"{share}{text}" + (f", {sum(count for _, count in others)} otherwise" if others else "")


def _range(numbers: Sequence[int]) -> str:
    if not numbers:
        return "-"
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low}–{high}"
