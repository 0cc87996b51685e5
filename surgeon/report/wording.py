"""Figures in words, the same in the terminal, in pictures and on pages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from surgeon.core.errors import count, listing
from surgeon.core.presentation import MISSING, NOT_FINITE, Presentation

if TYPE_CHECKING:
    from surgeon.models.origin import Preprocessing
    from surgeon.results import Evaluation, FineTuning, Gain, Interpolation, Spent
    from surgeon.surgery.shift import Shift

__all__ = [
    "DROPPED",
    "MISSING",
    "NOT_FINITE",
    "arrow",
    "class_name",
    "difference",
    "engine_text",
    "figure",
    "gain_text",
    "gained",
    "headed",
    "improved",
    "interpolation_text",
    "interval_text",
    "label",
    "left_out_text",
    "matched_text",
    "preprocessing_text",
    "shift_sentence",
    "short_gain_text",
    "short_names",
    "shown",
    "time_text",
    "unit",
    "verdict",
]

LONG_NAME = 24
"""Longer names of classes, of which there are several with commas between, are shown by the first."""
DROPPED = "dropped early: estimated from some of the images"


LITTLE = 0.005
"""A share of the time that is not worth naming."""


def interpolation_text(known: Interpolation, axis: str) -> str:
    """What a race went by, and how good it was where that was checked."""
    computed, checked = (", ".join(f"{value:g}" for value in values) for values in (known.computed, known.checked))
    return (
        f"Interpolated between {axis} {computed} on the first {known.images:,} images; where that was checked "
        f"({checked}), at most {known.disagreement:.1%} of the predictions differed."
    )


def time_text(spent: Sequence[Spent]) -> str:
    """Where the time went, in brackets; nothing if that is not known."""
    total = sum(one.seconds for one in spent)
    shares = [f"{one.seconds / total:.0%} {one.what}" for one in spent if total and one.seconds > LITTLE * total]
    return f" ({', '.join(shares)})" if shares else ""


def shown(metric_name: str) -> Presentation:
    """How a metric is shown."""
    from surgeon.metrics import presentation_of  # which loads pydantic

    return presentation_of(metric_name)


def label(metric_name: str) -> str:
    """What to call a metric in a sentence or on an axis."""
    return shown(metric_name).label


def unit(metric_name: str) -> str:
    """What differences of a metric are counted in."""
    return shown(metric_name).difference_suffix


def figure(metric_name: str, value: float | None) -> str:
    """A metric's value: shares in percent, everything else as the metric says."""
    return shown(metric_name).figure(value)


def arrow(metric_name: str) -> str:
    """Which way is better: `↑` or `↓`; nothing for what is no metric."""
    from surgeon.metrics import metrics

    if metric_name not in metrics:
        return ""
    return "↑" if metrics[metric_name].higher_is_better else "↓"


def headed(metric_name: str) -> str:
    """A metric above a column: in few words, and which way is better."""
    return f"{shown(metric_name).heading} {arrow(metric_name)}".strip()


def gain_text(gain: Gain) -> str:
    """The gain over the original with its interval: `+0.26 points (95%: -0.10 to +0.62), not significant`.

    Positive is better, whatever the metric.
    """
    return shown(gain.metric).improvement(gain.improvement)


def short_gain_text(gain: Gain) -> str:
    """The gain over the original and how far its 95% interval reaches: `+0.0880 ±0.0252`."""
    by, low, high = gain.improvement
    if not math.isfinite(by):
        return NOT_FINITE
    reach = max(high - by, by - low)
    told = difference(gain.metric, reach).removeprefix("+") if math.isfinite(reach) else "∞"
    return f"{difference(gain.metric, by)} ±{told}"


def interval_text(gain: Gain) -> str:
    """The 95% interval of a gain; that of a single image has no bounds."""
    return shown(gain.metric).interval(*gain.improvement[1:])


def improved(metric_name: str, change: float) -> float:
    """A change of a metric, turned so that positive is better."""
    return -change if arrow(metric_name) == "↓" else change


def gained(metric_name: str, change: float) -> str:
    """The same as people read it, without its unit."""
    return difference(metric_name, improved(metric_name, change))


def difference(metric_name: str, value: float) -> str:
    """A difference between two values of a metric, with its sign and without its unit."""
    return shown(metric_name).difference(value)


def preprocessing_text(images: Preprocessing) -> str:
    """What images go through: `224x224 px, bicubic, crop 0.875, mean 0.5/0.5/0.5, std 0.5/0.5/0.5`."""
    mean, std = ("/".join(f"{value:.3g}" for value in values) for values in (images.mean, images.std))
    size = "x".join(map(str, images.input_size[1:]))
    if (sound := images.sound) is not None:
        resized = "" if images.input_size[1:] == (sound.bands, sound.frames) else f", resized to {size}"
        return f"{sound.text}{resized}, mean {mean}, std {std}"
    return f"{size} px, {images.interpolation}, crop {images.crop_pct:g}, mean {mean}, std {std}"


def class_name(name: str) -> str:
    """A class as people call it: `n01644900 tailed_frog` is a tailed frog, of several names the first."""
    plain = re.sub(r"^n\d{8}[ _-]+", "", name)
    plain = re.sub(r"(?<=\w)_(?=\w)", " ", plain) if plain != name else plain
    first = plain.partition(",")[0].strip()
    return first if first and len(plain) > LONG_NAME else plain


def matched_text(classes: tuple[int, int] | None) -> str:
    """That classes were matched by name, and of how many: `7 of 10 classes, matched by name`."""
    return "" if classes is None else f"{classes[0]:,} of {classes[1]:,} classes, matched by name"


def shift_sentence(shift: Shift) -> str:
    """Whether images are shifted for a network, and where."""
    from surgeon.surgery.shift import USUAL, Verdict

    overall, layers = shift.overall, f"{len(shift.shifted)} of {count(len(shift.layers), 'layer')}"
    figures = f"{overall.excess:.2f} standard deviations from the stored ones"
    usual = f"up to {USUAL} is usual for held-out images of the training distribution"
    match overall.verdict:
        case Verdict.SHIFTED:
            worst = max(shift.layers, key=lambda layer: layer.excess)
            return (
                f"The images are shifted for this network: over all layers, their statistics are {figures} ({usual}; "
                f"sampling noise {overall.noise:.2f}). {layers} exceed what is usual for a single layer, "
                f"{worst.name or 'the model itself'} most of all ({worst.excess:.2f})."
            )
        case Verdict.UNCLEAR:
            return (
                f"Unclear whether the images are shifted: their statistics are {figures} "
                f"(95%: {overall.low:.2f} to {overall.high:.2f}), and {usual}. More images may tell."
            )
        case Verdict.SLIGHT:
            some = f", though {layers} exceed what is usual for a single layer" if shift.shifted else ""
            return f"No unusual shift: the images' statistics are {figures}, and {usual}{some}."
        case Verdict.NONE:
            noise = f"by no more than sampling noise ({overall.noise:.2f} standard deviations)"
            return f"No shift: the images' statistics differ from the stored ones {noise}."


def left_out_text(result: FineTuning) -> str:
    """Which images a fine-tuning run could not read, if any."""
    trained = result.bad_training_images
    parts = [f"{count(trained, 'training image')} in an epoch"] if trained else []
    for split, names in (("validation", result.bad_validation_images), ("test", result.bad_test_images)):
        if names:
            parts.append(f"{count(len(names), f'{split} image')} ({listing(names)})")
    return "; ".join(parts)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Each name without the folders that all of them begin with, and without the `checkpoint` that they may end in."""
    parts = [PurePath(name).parts for name in names]
    common = 0
    while all(len(own) > common + 1 and own[common] == parts[0][common] for own in parts):
        common += 1
    parts = [own[common:] for own in parts]
    if len(parts) > 1 and all(len(own) > 1 and own[-1] == "checkpoint" for own in parts):
        parts = [own[:-1] for own in parts]  # runs/a/checkpoint and runs/b/checkpoint are a and b
    return {name: str(PurePath(*own)) for name, own in zip(names, parts, strict=True)}


def verdict(gain: Gain) -> str:
    """One word for a gain."""
    if math.isnan(gain.difference):
        return NOT_FINITE
    if gain.within_noise:
        return "not significant"
    return "better" if gain.better else "worse"


def engine_text(result: Evaluation) -> str:
    """What computed the predictions, unless it was torch, and how far it was from that."""
    if result.engine == "torch":
        return ""
    if result.engine_difference is None:  # another process had the batches
        return str(result.engine)
    return f"{result.engine}, logits of the first batch within {result.engine_difference:.1e} of torch's"
