"""Predicted masks as pictures and as a page: IoU of every class, calibration, and images beside their masks."""

from __future__ import annotations

import base64
import colorsys
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from surgeon.core.atomic import staged
from surgeon.core.errors import count, listing
from surgeon.metrics import in_order
from surgeon.report import svg, wording
from surgeon.report.chart import Chart, Mark, Series
from surgeon.report.evaluation import facts_of, figures_table
from surgeon.report.folder import report_files
from surgeon.report.frame import render
from surgeon.report.png import save_picture

if TYPE_CHECKING:
    from surgeon.results import Evaluation, MaskBreakdown, MaskClass

PICTURE, EXAMPLES = "evaluation.png", "masks.png"
VOID_COLOUR, WRONG, RIGHT = (64, 64, 64), (184, 50, 74), (225, 228, 232)
GOLDEN = 0.618034
LEGEND_COLUMNS = 6
MOST_NAMED = 6
"""Classes that there is room to name below their bars."""


class Example(Protocol):
    """An image with its mask and the predicted one, all of one size."""

    @property
    def name(self) -> str: ...
    @property
    def pixels(self) -> NDArray[np.uint8]: ...
    @property
    def truth(self) -> NDArray[np.int64]: ...
    @property
    def predicted(self) -> NDArray[np.int64]: ...
    @property
    def wrong(self) -> NDArray[np.bool_]: ...


def palette(classes: int) -> NDArray[np.uint8]:
    """A colour for each class, neighbours as different as can be; the same for the same number whatever their count."""
    colours = []
    for number in range(classes):
        hue, ring = (number * GOLDEN) % 1, number % 3
        red, green, blue = colorsys.hls_to_rgb(hue, (0.5, 0.66, 0.38)[ring], (0.75, 0.6, 0.8)[ring])
        colours.append([round(255 * part) for part in (red, green, blue)])
    return np.array(colours, dtype=np.uint8).reshape(classes, 3)


def coloured(mask: NDArray[np.int64], classes: int) -> NDArray[np.uint8]:
    """A mask as a picture (H, W, 3); pixels without a class are grey."""
    colours = np.concatenate([palette(classes), np.array([VOID_COLOUR], dtype=np.uint8)])
    return colours[np.where(mask < 0, classes, mask)]


def draw_examples(examples: Sequence[Example], names: Sequence[str], path: Path | BytesIO) -> None:
    """A row for each image: itself, its mask, the predicted mask, and what is wrong in it; the colours below."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    height, width = examples[0].truth.shape
    figure = Figure(figsize=(12, (3 * height / width + 0.3) * len(examples) + 0.9), layout="constrained")
    grid = figure.subplots(len(examples), 4, squeeze=False)
    for row, one in zip(grid, examples, strict=True):
        mistakes = np.where(one.wrong[..., None], np.array(WRONG, np.uint8), np.array(RIGHT, np.uint8))
        mistakes = np.where((one.truth < 0)[..., None], np.array(VOID_COLOUR, np.uint8), mistakes)
        pictures = (one.pixels, coloured(one.truth, len(names)), coloured(one.predicted, len(names)), mistakes)
        share = one.wrong.sum() / max((one.truth >= 0).sum(), 1)
        titles = (one.name, "mask", "predicted", f"mistakes: {share:.1%} of the pixels")
        for axes, picture, title in zip(row, pictures, titles, strict=True):
            axes.imshow(picture, interpolation="nearest")
            axes.set_title(title, fontsize=8, loc="left")
            axes.set_axis_off()
    patches = [Patch(color=_share(colour), label=name) for colour, name in zip(palette(len(names)), names, strict=True)]
    patches.append(Patch(color=_share(VOID_COLOUR), label="void"))
    figure.legend(handles=patches, loc="outside lower center", ncols=LEGEND_COLUMNS, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110, format="png")


def _share(colour: Sequence[int] | NDArray[np.uint8]) -> tuple[float, float, float]:
    red, green, blue = (int(part) / 255 for part in colour)
    return red, green, blue


def write_mask_report(result: Evaluation, folder: Path, examples: Sequence[Example], names: Sequence[str]) -> None:
    """The result as JSON, as pictures and as a page, all of them or none."""
    picture = BytesIO()
    if examples:
        draw_examples(examples, names, picture)
    files = report_files(result, PICTURE, mask_picture, partial(mask_page, examples=picture.getvalue()))
    if examples:
        files[EXAMPLES] = partial(_write, content=picture.getvalue())
    with staged(folder, tuple(files)) as stage:
        for name, write in files.items():
            write(stage / name)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def mask_page(result: Evaluation, examples: bytes) -> str:
    """The whole result as one HTML page."""
    behind = _behind(result)
    return render(
        "masks.html.j2",
        result,
        result=result,
        behind=behind,
        sentences=in_sentences(result),
        metrics=[metric for metric in in_order() if result.metrics.value(metric.name) is not None],
        gains={gain.metric: gain for gain in one_view.gains} if (one_view := result.against_one_view) else {},
        charts=svg.drawings(_charts(behind)),
        worst=worst_first(behind),
        examples=base64.b64encode(examples).decode(),
        facts=[*facts_of(result), ("masks", size_text(behind)), ("void", void_text(behind))],
    )


def mask_picture(result: Evaluation, path: Path) -> None:
    """IoU by class, reliability, and every figure as a PNG."""
    title = f"{result.model} on {result.data} ({result.split}, {count(result.metrics.images, 'image')})"
    save_picture(title, [*_charts(_behind(result)), figures_table(result)], path)


def in_sentences(result: Evaluation) -> list[str]:
    """What was found, the most important first."""
    figures, behind = result.metrics, _behind(result)
    low, high = (wording.figure("iou", edge) for edge in result.intervals["iou"])
    worst = worst_first(behind)
    found = [
        f"The mean IoU of {len(behind.classes):,} classes is "
        f"{wording.figure('iou', figures.iou)} (95%: {low} to {high}, drawing images), and {figures.accuracy:.2%} of "
        "the pixels are right.",
        f"The best class is {max(behind.classes, key=lambda one: one.iou).name}, the worst {worst[0].name} (IoU "
        f"{worst[0].iou:.2%}).",
    ]
    if behind.absent:
        found.append(f"No image shows {listing(behind.absent, 'or')}: without an IoU, they are left out of the mean.")
    if behind.confusions:
        often = behind.confusions[0]
        found.append(
            f"The most frequent mistake takes {often.actual} for {often.predicted} ({often.share:.1%} of its pixels)."
        )
    if (one := result.against_one_view) is not None:
        found.append(
            f"{result.views} views ({result.tta}) instead of one: gain in mean IoU {wording.gain_text(one.gains[0])}, "
            f"at {one.times_the_time:.1f} times the time."
        )
    return found


def worst_first(behind: MaskBreakdown) -> list[MaskClass]:
    """The classes by their IoU."""
    return sorted(behind.classes, key=lambda one: (one.iou, one.name))


def size_text(behind: MaskBreakdown) -> str:
    """How large masks are when they are compared."""
    return f"compared at {behind.size[0]}x{behind.size[1]}, the network's input size"


def void_text(behind: MaskBreakdown) -> str:
    """What counts as no class, and how much of the images that is."""
    values = listing(map(str, behind.void))
    return f"{values}: {behind.void_share:.1%} of the pixels, which take no part"


def _behind(result: Evaluation) -> MaskBreakdown:
    assert result.masks is not None, "only an evaluation of masks has this report"
    return result.masks


def _charts(behind: MaskBreakdown) -> list[Chart]:
    return [_by_class(behind), _reliability(behind)]


def _by_class(behind: MaskBreakdown) -> Chart:
    marks = [
        Mark(
            x=number,
            y=100 * one.iou,
            interval=(100 * one.iou_low, 100 * one.iou_high),
            exact=one.iou,
            text=f"{one.name}: IoU {one.iou:.1%}",
        )
        for number, one in enumerate(worst_first(behind))
    ]
    ticks = [(float(number), one.name) for number, one in enumerate(worst_first(behind))]
    short = len(ticks) <= MOST_NAMED
    return Chart(
        "classes",
        "IoU by class",
        "worst first" if short else f"{len(marks):,} classes, worst first",
        bars=marks,
        unit="%",
        y_range=(0, 100),
        x_ticks=ticks if short else [],
        table="classes",
    )


def _reliability(behind: MaskBreakdown) -> Chart:
    marks = [
        Mark(
            x=100 * one.confidence,
            y=100 * one.accuracy,
            exact=one.accuracy,
            text=f"{one.images:,} pixels at {one.confidence:.1%} confidence: {one.accuracy:.1%} right",
        )
        for one in behind.bins
    ]
    return Chart(
        "reliability",
        "Right pixels by confidence",
        "confidence (%)",
        [Series("accuracy of the pixels in a bin", marks)],
        unit="%",
        x_range=(0, 100),
        y_range=(0, 100),
        table="confidence",
        diagonal_name="as confident as right",
    )
