"""A recalibration as a picture and as a page: how far the statistics of each layer moved, and what that changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgeon.core.errors import count
from surgeon.report import svg, wording
from surgeon.report.chart import Chart, Mark, Series
from surgeon.report.frame import render
from surgeon.report.png import save_picture

if TYPE_CHECKING:
    from surgeon.results.recalibration import Measured, Recalibration
    from surgeon.surgery.entropy import EntropyResult


def recalibration_picture(result: Recalibration, path: Path) -> None:
    """How far the statistics of each layer moved, by depth, as a PNG."""
    save_picture(f"{result.model} on {count(result.images, 'image')} of {result.data}", charts(result), path)


def charts(result: Recalibration) -> list[Chart]:
    """The movement of means and of standard deviations, by depth; nothing where layers had no statistics before."""
    layers = result.layers
    if not layers:
        return []
    shifts = [
        Mark(depth, layer.mean_shift, layer.mean_shift, f"{layer.layer}: {layer.mean_shift:.3f}")
        for depth, layer in enumerate(layers, 1)
    ]
    ratios = [
        Mark(depth, layer.deviation_ratio, layer.deviation_ratio, f"{layer.layer}: x{layer.deviation_ratio:.3f}")
        for depth, layer in enumerate(layers, 1)
    ]
    return [
        Chart(
            "shift",
            "Movement of means, in standard deviations",
            "layer, by depth",
            [Series("mean over the channels", shifts, level=0.0)],
            whole=True,
            table="layers",
        ),
        Chart(
            "ratio",
            "New standard deviations over old ones",
            "layer, by depth",
            [Series("mean over the channels", ratios, level=1.0)],
            whole=True,
            table="layers",
        ),
    ]


def in_sentences(result: Recalibration) -> list[str]:
    """What was done and what it changed; accuracy is spoken of only where there are labels."""
    change = result.change
    sentences = [
        _done(result),
        *([] if result.entropy is None else [_minimised(result.entropy)]),
        f"On these images {change.changed:.1%} of the predicted classes changed, and the mean confidence went from "
        f"{change.before.confidence:.1%} to {change.after.confidence:.1%}.",
    ]
    if result.confirmed is not None:
        sentences.append(f"On {_images(result.confirmed)}, held out: {_gains(result.confirmed)}.")
    else:
        sentences.append("Without labels, it is unknown whether that is better; with labels, `--confirm` measures it.")
    if result.source is not None:
        sentences.append(f"On the original domain, {_images(result.source)}: {_gains(result.source)}.")
    return sentences


def _done(result: Recalibration) -> str:
    where = f"from {count(result.images, 'image')}, without labels"
    if result.prior is None:
        return f"{count(len(result.collected), 'layer')} got statistics {where}."
    moved = f" Means moved by {result.mean_shift:.3f} standard deviations on average." if result.layers else ""
    return (
        f"The statistics of {count(len(result.layers), 'layer')} were estimated {where} and with a weight of "
        f"{result.weight:.1%} (prior {result.prior:g} images).{moved}"
    )


def _minimised(entropy: EntropyResult) -> str:
    done = (
        f"Entropy minimisation over gamma and beta of {count(entropy.layers, 'layer')}, "
        f"{count(entropy.epochs, 'epoch')} at a learning rate of {entropy.lr:g}: mean entropy of the predictions "
        f"{entropy.before.entropy:.3f} to {entropy.after.entropy:.3f} nats."
    )
    if not entropy.collapsed:
        return done
    return f"{done} The next epoch was undone: predictions began to collapse onto few classes."


def _images(measured: Measured) -> str:
    return f"{count(measured.after.images, 'image')} of {measured.data}"


def _gains(measured: Measured) -> str:
    parts = []
    for gain in measured.gains:
        before, after = (
            wording.figure(gain.metric, one.value(gain.metric)) for one in (measured.before, measured.after)
        )
        parts.append(f"{wording.label(gain.metric)} {before} → {after}, gain {wording.gain_text(gain)}")
    return "; ".join(parts)


def recalibration_page(result: Recalibration) -> str:
    """The whole result as one HTML page."""
    return render(
        "recalibration.html.j2",
        result,
        result=result,
        sentences=in_sentences(result),
        measured=[(title, one) for title, one in _measurements(result) if one is not None],
        charts=svg.drawings(charts(result)),
        facts=_facts(result),
    )


def _measurements(result: Recalibration) -> list[tuple[str, Measured | None]]:
    return [("Held-out images", result.confirmed), ("The original domain", result.source)]


def _facts(result: Recalibration) -> list[tuple[str, Any]]:
    """How the result was made, as names and values; what does not apply is left out."""
    chosen = f", {' and '.join(result.where)}" if result.where else ""
    facts = [
        ("images", f"{result.data}, split {result.split}{chosen}, {count(result.images, 'image')}"),
        ("classes", wording.matched_text(result.matched_classes)),
        ("unreadable images left out", ", ".join(result.bad_images)),
        ("prior", "" if result.prior is None else f"{result.prior:g} images"),
        ("preprocessing", wording.preprocessing_text(result.preprocessing)),
        ("rewrites", result.rewrites),
        ("device", f"{result.device}, {result.precision}"),
        ("time", f"{result.seconds:,.1f} s, of which {result.seconds_estimating:,.1f} s for the statistics"),
    ]
    return [(name, value) for name, value in facts if value]
