"""Curves of a sweep: for the terminal and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Curve(NamedTuple):
    """One measure against the swept value; `percent` says how to label it."""

    label: str
    points: Mapping[float, float]
    percent: bool = False


def draw_in_terminal(curve: Curve, swept: str, chosen: float, width: int = 72, height: int = 14) -> str:
    """The curve as text."""
    import plotext

    values = {x: 100 * y if curve.percent else y for x, y in curve.points.items()}
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless").plot_size(width, height)
    figure.draw(figure.signal(list(values), list(values.values()), marker="braille").lines())
    figure.draw(figure.signal([chosen], [values[chosen]], marker="●"))
    figure.title(f"{curve.label}{' (%)' if curve.percent else ''} by {swept}; ● = chosen ({chosen:g})")
    return str(plotext.uncolorize(figure.build().string()))


def draw_picture(curves: list[Curve], swept: str, chosen: float, title: str, path: Path) -> None:
    """The curves one beside the other as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(curves), 3.8), layout="constrained")
    for axes, curve in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves, strict=True):
        xs, factor = list(curve.points), 100 if curve.percent else 1
        axes.plot(xs, [factor * curve.points[x] for x in xs], marker="o", markersize=4, color="#1f6f8b")
        axes.axvline(chosen, color="#d1495b", linestyle="--", linewidth=1.2, label=f"chosen {swept} = {chosen:g}")
        axes.axhline(factor * curve.points[xs[0]], color="0.6", linewidth=0.9, linestyle=":", label="original network")
        axes.set(xlabel=swept, ylabel=curve.label + (" (%)" if curve.percent else ""))
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
