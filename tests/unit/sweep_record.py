"""A sweep's record made by hand, for tests of what is rendered from it."""

from __future__ import annotations

import math
from typing import Any

from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results import Gain, Learned, Learning, Method, Point, Setting, Sweep

ORIGINAL = 0.0
CHOSEN = 0.3


def figures(alpha: float, images: int = 1000, **other: Any) -> Metrics:
    """Figures that are best at alpha 0.3 and that differ in every field."""
    off = (alpha - CHOSEN) ** 2
    accuracy = 0.9148 - 0.3 * off
    values: dict[str, Any] = {
        "images": images,
        "nan_images": 0,
        "accuracy": accuracy,
        "accuracy_low": accuracy - 0.02,
        "accuracy_high": accuracy + 0.02,
        "top5": 0.9912 - 0.1 * off,
        "cross_entropy": 0.3 + off,
        "temperature": 1.1 + alpha,
        "scaled_cross_entropy": 0.28 + 0.8 * off,
        "ece": 0.02 + 0.3 * off,
        "rms": 0.04 + 0.3 * off,
        "mad": 0.03 + 0.3 * off,
        "aurra": 0.97 - 0.1 * off,
        "soft_f1": 0.5 - 0.1 * off,
    }
    return Metrics.model_validate({**values, **other})


def gain(metric: str, alpha: float, images: int = 1000, half: float = 0.03) -> Gain:
    difference = (figures(alpha).value(metric) or 0) - (figures(ORIGINAL).value(metric) or 0)
    half *= math.sqrt(1000 / images)
    return Gain(
        metric=metric,
        higher_is_better=metric in {"accuracy", "top5"},
        images=images,
        difference=difference,
        low=difference - half,
        high=difference + half,
        gained=61,
        lost=39,
    )


def point(alpha: float, metric: str, dropped: str | None = None) -> Point:
    images = 250 if dropped else 1000
    compared = None if alpha == ORIGINAL else gain(metric, alpha, images)
    # Fewer images are other images: their figures are off by more than the gain is.
    shown = figures(alpha, images, cross_entropy=0.25 + (alpha - CHOSEN) ** 2) if dropped else figures(alpha)
    return Point(value=alpha, metrics=shown, gain=compared, dropped=dropped)


def points(metric: str) -> tuple[Point, ...]:
    dropped = {0.6: "thinned out", 0.8: "beaten", 1.0: "beaten"}
    return tuple(point(alpha / 10, metric, dropped.get(alpha / 10)) for alpha in (0, 1, 2, 3, 4, 5, 6, 8, 10))


def settings() -> tuple[Setting, ...]:
    metrics = ("accuracy", "cross-entropy")
    return (
        Setting(name="original", choosing=figures(ORIGINAL), confirming=figures(ORIGINAL, 900)),
        Setting(
            name="alpha 0.3",
            choosing=figures(CHOSEN),
            confirming=figures(0.28, 900),
            gains=tuple(gain(metric, 0.28, 900) for metric in metrics),
        ),
        Setting(
            name="learned per-channel",
            choosing=figures(0.31),
            confirming=figures(0.29, 900),
            gains=tuple(gain(metric, 0.29, 900) for metric in metrics),
        ),
    )


def learned() -> Learned:
    layers = [f"layer{stage}.{block}.bn{norm}" for stage in range(1, 5) for block in range(2) for norm in (1, 2)]
    centres = {name: 0.45 - 0.03 * depth + 0.04 * (depth % 3) for depth, name in enumerate(layers)}
    return Learned(
        kind=Learning.PER_CHANNEL,
        alphas={name: (centre - 0.08, centre, centre + 0.12) for name, centre in centres.items()},
        numbers=3 * len(layers),
        epochs=20,
        seconds=41.5,
        gain_choosing=-0.0931,
        gain_confirming=-0.0887,
    )


def sweep(**changes: Any) -> Sweep:
    """A race by cross-entropy with values dropped, a learned setting and images held back."""
    metric = changes.get("metric", "cross-entropy")
    values: dict[str, Any] = {
        "model": "digits-resnet8",
        "rewrites": "13 BatchNorm2d -> example-weighted",
        "data": "digits",
        "split": "validation",
        "axis": "alpha",
        "metric": metric,
        "higher_is_better": metric in {"accuracy", "top5"},
        "method": Method.RACE,
        "original": ORIGINAL,
        "points": points(metric),
        "chosen": CHOSEN,
        "settings": settings(),
        "best": "alpha 0.3",
        "learned": (learned(),),
        "temperature": 1.4,
        "summary": (
            "Alpha 0.3 lowers cross-entropy from 0.3900 to 0.3004 on 900 images that took no part in the choice.",
            "Accuracy changes by +2.69 points (95%: -0.47 to +5.85), not significant.",
            "Temperature scaling alone would reach 0.3520, so most of the gain is more than calibration.",
        ),
        "choosing_images": 1000,
        "confirming_images": 900,
        "preprocessing": Preprocessing(input_size=(1, 8, 8), mean=(0.3,), std=(0.38,)),
        "image_forwards": 7250,
        "seconds": 12.34,
        "checkpoint": "out/best",
    }
    return Sweep.model_validate({**values, **changes})
