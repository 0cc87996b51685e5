"""A history with a step of every kind, each with everything that it may tell."""

from __future__ import annotations

from surgeon.models.facts import DataKind, DataSet, Figures, Gain, Images
from surgeon.models.history import (
    Averaged,
    AveragedMember,
    Converted,
    Earlier,
    EntropyMinimised,
    Exported,
    FineTuned,
    Merged,
    Recalibrated,
    Renamed,
    Saved,
    Snapshot,
    Step,
    Swept,
    SweptSetting,
    TemperatureFitted,
    Tested,
)

CIFAR = DataSet(name="cifar10", kind=DataKind.HUB, hub="uoft-cs/cifar10")
OWN = DataSet(name="birds", kind=DataKind.FILES)
INFINITE = Figures(images=7, values={"accuracy": 0.5, "cross-entropy": float("inf"), "top5": None})


def images(data: DataSet = CIFAR, split: str = "validation", number: int = 500) -> Images:
    return Images(data=data, split=split, number=number)


def figures(accuracy: float = 0.9, number: int = 500) -> Figures:
    return Figures(images=number, values={"accuracy": accuracy, "cross-entropy": 0.25})


def gain(low: float = 0.01) -> Gain:
    return Gain(
        metric="accuracy",
        higher_is_better=True,
        images=500,
        difference=0.02,
        low=low,
        high=0.03,
        gained=15,
        lost=5,
    )


def fine_tuned(data: DataSet = CIFAR) -> FineTuned:
    return FineTuned(
        data=data,
        classes=10,
        train_images=45_000,
        validation_images=5_000,
        test_images=10_000,
        held_back=True,
        recipe={"epochs": 3, "bn": ["ghost:size=16"], "sweep": None, "lr": 0.1},
        changes=("Resumed with a learning rate of 0.1 in place of 1.",),
        snapshot=Snapshot(number=2, of=3),
        validation=figures(0.91, 5_000),
    )


def swept(stored: bool = True) -> Swept:
    settings = (
        SweptSetting(name="original", choosing=figures(0.90), held_out=figures(0.89)),
        SweptSetting(name="alpha 0.05", choosing=figures(0.93), held_out=figures(0.91), gains=(gain(),)),
    )
    return Swept(
        chosen_on=images(),
        held_out=500,
        axis="alpha",
        metric="accuracy",
        values=(0.0, 0.05),
        chosen=0.05,
        settings=settings,
        best="alpha 0.05",
        stored=stored,
        forced=stored,
        changed=stored,
        tta="flip",
        warnings=("Settings are chosen on half of the test images.",),
    )


def temperature() -> TemperatureFitted:
    return TemperatureFitted(
        fitted_on=images(),
        held_out=500,
        temperature=1.5,
        stored=True,
        forced=True,
        gain=gain(),
        before=INFINITE,
        warnings=("Beware.",),
    )


def on_test_images(data: DataSet = CIFAR) -> Tested:
    return Tested(images=images(data, "test", 10_000), tta="flip", figures=figures(0.9321, 10_000), as_trained=INFINITE)


def merged() -> Merged:
    return Merged(
        share=0.25,
        layers=7,
        probability_shift=0.01,
        measured_on=images(),
        two_passes=figures(),
        merged=figures(),
        gains=(gain(-0.01),),
        notes=("It approximates.",),
    )


def recalibrated() -> Recalibrated:
    return Recalibrated(
        estimated_on=images(split="test", number=100),
        where=("severity=5",),
        prior=float("inf"),
        layers=7,
        mean_shift=0.1,
        entropy=EntropyMinimised(epochs=2, lr=1e-3, layers=7, before=0.5, after=0.25, collapsed=True),
        changed_predictions=0.2,
        measured_on=images(split="test"),
        before=INFINITE,
        after=figures(),
        gains=(gain(),),
        source=images(OWN),
        source_gains=(gain(-0.01),),
        warnings=("Beware.",),
    )


def averaged(*histories: tuple[Step, ...]) -> Averaged:
    members = tuple(
        AveragedMember(name=f"run/{number}", base_weights="resnet50.a1_in1k", base_sha256="0" * 64, history=history)
        for number, history in enumerate(histories)
    )
    return Averaged(
        members=members,
        statistics_from=images(split="train", number=2048),
        statistics_layers=7,
        averaged_layers=2,
        chosen_on=images(),
        measured_on=images(split="test"),
        figures=figures(),
        gains=(gain(),),
        warnings=("Beware.",),
    )


def every_step() -> tuple[Step, ...]:
    return (
        Earlier(surgeon_version="0.1.0", findings=("Fine-tuned on digits: 400 images.",)),
        Saved(findings=("It barks.",)),
        Converted(rewrites="ghost:size=4", layers=7, units=1, identity_difference=1e-7, output_shift=0.0),
        fine_tuned(),
        swept(),
        temperature(),
        on_test_images(),
        merged(),
        recalibrated(),
        averaged((fine_tuned(OWN),), (fine_tuned(OWN), swept())),
        Exported(target="onnx", folded=3),
        Renamed(rules=(r"stage_(\d)=layer\1",), layers={"stem.conv": "conv1"}, checked=18, norms=19),
    )
