"""A fine-tuning run's record made by hand, for tests of what is rendered from it."""

from __future__ import annotations

import math
from typing import Any

from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results import Epoch, FineTuning, Measured
from tests.unit.sweep_record import figures

RECIPE: dict[str, Any] = {
    "bn": ["example-weighted"],
    "insert": [],
    "augment": ["crop:padding=4", "flip", "mixup"],
    "epochs": 10,
    "snapshots": 1,
    "batch_size": None,
    "lr": 0.01,
    "weight_decay": 0.0001,
    "norm_weight_decay": True,
    "milestones": [0.5, 0.75],
    "sweep": "0:0.2:21",
}


def validated(number: int) -> Metrics:
    accuracy = 0.95 - 0.5 / (number + 1)
    interval = {"accuracy_low": accuracy - 0.03, "accuracy_high": accuracy + 0.02}
    rest = {"cross_entropy": 0.3 + 1.5 / number**2, "ece": 0.1 / number}
    return figures(0.1, 500, accuracy=accuracy, **interval, **rest)


def rates(number: int, of: int, highest: float) -> tuple[float, ...]:
    """A cosine in five steps an epoch."""
    steps = range(5 * (number - 1), 5 * number)
    return tuple(highest * (1 + math.cos(math.pi * step / (5 * of))) / 2 for step in steps)


def epoch(number: int, of: int, **other: Any) -> Epoch:
    values: dict[str, Any] = {
        "number": number,
        "loss": 0.2 + 2 / number,
        "accuracy": 0.98 - 0.6 / number,
        "backbone_rates": rates(number, of, 0.01),
        "head_rates": rates(number, of, 0.1),
        "validation": validated(number),
        "seconds": 12.25 + number,
        "images_per_second": 1234.5 + number,
    }
    return Epoch.model_validate({**values, **other})


def epochs(number: int) -> tuple[Epoch, ...]:
    return tuple(epoch(one, number) for one in range(1, number + 1))


def run(length: int = 10, recipe: dict[str, Any] | None = None, **changes: Any) -> FineTuning:
    """Ten epochs with test images and a setting that was chosen."""
    shown = changes.get("epochs", epochs(length))
    values: dict[str, Any] = {
        "model": "digits-resnet8",
        "rewrites": "13 BatchNorm2d -> example-weighted",
        "data": "digits",
        "classes": 10,
        "train_images": 4500,
        "validation_images": 500,
        "test_images": 1797,
        "held_back": True,
        "preprocessing": Preprocessing(input_size=(1, 8, 8), mean=(0.3,), std=(0.38,)),
        "recipe": {**RECIPE, "epochs": length, **(recipe or {})},
        "batch_size": 64,
        "trained_parameters": 77850,
        "parameters": 78042,
        "epochs": shown,
        "validation": shown[-1].validation,
        "figures": tuple(
            Measured(split=split, setting=setting, metrics=figures(alpha, images))
            for split, images in (("validation", 500), ("test", 1797))
            for setting, alpha in (("as trained", 0.0), ("as saved", 0.2))
            if split == "validation" or changes.get("test_images") != 0
        ),
        "settings": (
            "On the validation images, alpha = 0.15 is best.",
            "Alpha 0.15 changes accuracy by +0.60 points (95%: -0.34 to +1.54), not significant.",
            "That flatters the gain: `surgeon sweep --confirm` holds half back.",
        ),
        "sweeps": ("sweep-alpha", "sweep-lambda"),
        "test": figures(0.2, 1797),
        "tta": "flip",
        "device": "cpu",
        "seconds": 187.5,
        "checkpoint": "out/checkpoint",
    }
    return FineTuning.model_validate({**values, **changes})


def in_cycles() -> FineTuning:
    """Three cycles of four epochs, each ending with a snapshot."""
    places = [((number - 1) % 4 + 1, number) for number in range(1, 13)]
    cycles = tuple(
        epoch(number, 12, backbone_rates=rates(place, 4, 0.02), head_rates=rates(place, 4, 0.02))
        for place, number in places
    )
    members = tuple(f"out/snapshots/{number}" for number in (1, 2, 3))
    return run(12, recipe={"snapshots": 3}, epochs=cycles, snapshots=members)


def seldom_validated() -> FineTuning:
    shown = [one if one.number in (5, 10) else one.model_copy(update={"validation": None}) for one in epochs(10)]
    return run(epochs=tuple(shown), recipe={"validate_every": 5})


def not_finite() -> FineTuning:
    """A cross-entropy that is infinite, one that is no number, and one that is far off."""
    odd = {2: {"cross_entropy": math.inf, "nan_images": 3}, 3: {"cross_entropy": math.nan}, 4: {"cross_entropy": 5e7}}
    shown = tuple(
        one.model_copy(update={"validation": one.validation.model_copy(update=odd[one.number])})
        if one.number in odd and one.validation
        else one
        for one in epochs(10)
    )
    broken = figures(0.2, 1797, cross_entropy=math.inf, scaled_cross_entropy=math.inf, temperature=None, nan_images=3)
    return run(epochs=shown, test=broken)


def one_bad_epoch() -> FineTuning:
    """Nothing finite to draw but accuracy and learning rate."""
    bad = validated(1).model_copy(update={"cross_entropy": math.inf, "ece": math.nan})
    return run(1, epochs=(epoch(1, 1, loss=math.nan, validation=bad),), test=None, test_images=0, settings=())
