"""What all pictures look like: colours, frames, legends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#1f6f8b", "#c77d2e")
ACCENT = "#b8324a"


def panels(title: str, number: int) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * number, 4.6), layout="constrained")
    figure.suptitle(title, fontsize=13, fontweight="bold")
    return figure, list(figure.subplots(1, number, squeeze=False)[0])


def finish(axes: Axes, title: str, x_label: str) -> None:
    """Title, grid and legend of a panel whose lines are drawn."""
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlabel(x_label)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    # Two curves of a panel explain their dots and dotted lines only once.
    entries = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    if entries:
        legend = axes.legend(entries.values(), entries, frameon=False, fontsize=9, loc="upper center", ncols=2)
        legend.set_bbox_to_anchor((0.5, -0.15))


def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
