"""How far images are from a network's stored statistics, by depth: as a picture and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from surgeon.core.errors import count
from surgeon.report import svg
from surgeon.report.chart import Chart, Mark, Series
from surgeon.report.frame import render
from surgeon.report.png import save_picture
from surgeon.report.wording import preprocessing_text, shift_sentence

if TYPE_CHECKING:
    from surgeon.results import DataShift
    from surgeon.surgery.shift import LayerShift


def shift_picture(result: DataShift, path: Path) -> None:
    """Distances and their parts over the layers, one beside the other as a PNG."""
    save_picture(f"{result.model} on {result.data} ({result.split}, {result.images:,} images)", charts(result), path)


def shift_page(result: DataShift) -> str:
    """The whole result as one HTML page."""
    assert result.shift is not None
    facts = (
        ("data", f"{result.data}, split {result.split}"),
        ("images", f"{result.images:,}"),
        ("unreadable images left out", ", ".join(result.bad_images)),
        ("preprocessing", preprocessing_text(result.preprocessing)),
    )
    return render(
        "shift.html.j2",
        result,
        result=result,
        shift=result.shift,
        sentence=shift_sentence(result.shift),
        charts=svg.drawings(charts(result)),
        facts=[(name, value) for name, value in facts if value],
    )


def charts(result: DataShift) -> list[Chart]:
    """The distance of each layer beside sampling noise, and the two parts that it consists of."""
    layers = result.shift.layers if result.shift else []
    x_label = f"{count(len(layers), 'layer')} in the network's order"
    distances = [
        Series(
            "distance from the stored statistics", [_mark(n, layer, layer.excess) for n, layer in enumerate(layers, 1)]
        ),
        Series("sampling noise", [_mark(n, layer, layer.noise, interval=False) for n, layer in enumerate(layers, 1)]),
    ]
    parts = [
        Series("shift of the mean", [_mark(n, one, one.mean_shift, interval=False) for n, one in enumerate(layers, 1)]),
        Series(
            "ratio of variances (median channel)",
            [_mark(n, one, one.variance_ratio, interval=False) for n, one in enumerate(layers, 1)],
        ),
    ]
    return [
        Chart(
            "distance",
            "Distance, in standard deviations",
            x_label,
            distances,
            whole=True,
            table="layers",
            intervals_name="95% interval",
        ),
        Chart("parts", "Shift of the mean (in standard deviations), ratio of variances", x_label, parts, whole=True,
              table="layers"),
    ]  # fmt: skip


def _mark(number: int, layer: LayerShift, value: float, *, interval: bool = True) -> Mark:
    return Mark(
        x=number,
        y=value,
        exact=value,
        text=f"{layer.name}: {value:.3f}" + (f" ({layer.low:.3f} to {layer.high:.3f})" if interval else ""),
        interval=(layer.low, layer.high) if interval else None,
    )
