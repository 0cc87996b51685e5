"""What `finetune` finds out."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results.base import Result


class Epoch(Result):
    """One pass over the training images."""

    number: int
    loss: float
    accuracy: float
    """On the training images as they were augmented; of mixed ones, the larger part counts."""
    backbone_rates: tuple[float, ...] = ()
    """The learning rate of every step, in the fastest layer of the backbone; empty if that is frozen."""
    head_rates: tuple[float, ...] = ()
    """The same of the head."""
    learning_rate: float | None = None
    """Of epochs before rates were recorded by step: the highest of any parameter, at its end."""
    validation: Metrics | None
    seconds: float
    images_per_second: float
    left_out: int = 0
    """Images that could not be read."""
    shares: dict[str, float] = Field(default_factory=dict)
    """What terms of the loss tell besides, averaged over the steps: the share of confident pseudo-labels."""


class Measured(Result):
    """A network on the images of a split."""

    split: str
    setting: str
    """`as trained`, or `as saved`: with the settings that were chosen on the validation images."""
    tta: str | None = None
    """Several views of each image, if not one."""
    metrics: Metrics


class FineTuning(Result):
    """The result of a fine-tuning run, `result.json`."""

    schema_version: int = 1
    model: str
    rewrites: str
    """Of the checkpoint, with its settings."""
    data: str
    classes: int
    classes_text: str = ""
    """What masks are of, in words: how many classes, who names them, and which values are void."""
    train_images: int
    validation_images: int
    test_images: int
    bad_training_images: int = 0
    """Could not be read and were left out; of all epochs, the most. Those of the other splits by name:"""
    bad_validation_images: tuple[str, ...] = ()
    bad_test_images: tuple[str, ...] = ()
    held_back: bool
    """Whether the validation images were taken out of the training images."""
    unlabelled: str | None = None
    """Where the unlabelled images are from, if there were any; `same`: the training images."""
    unlabelled_images: int = 0
    unlabelled_left_out: int = 0
    """Unlabelled images that are validation or test images too, and were left out."""
    preprocessing: Preprocessing
    recipe: dict[str, Any]
    decided: dict[str, str] = Field(default_factory=dict)
    """The keys of it that had been left open, and what they were decided by."""
    batch_size: int
    trained_parameters: int
    parameters: int
    epochs: tuple[Epoch, ...]
    validation: Metrics
    """Of the network as it came out of training."""
    figures: tuple[Measured, ...] = ()
    """Both splits, both as trained and as saved: what the chosen settings did to each."""
    settings: tuple[str, ...]
    """What was then chosen on the validation images, in sentences."""
    sweeps: tuple[str, ...] = ()
    """The folders of the sweeps that it was chosen by, within that of the run."""
    test: Metrics | None
    """Of the checkpoint, with its settings, on test images, on which nothing was chosen."""
    tta: str | None = None
    snapshots: tuple[str, ...] = ()
    device: str
    seconds: float
    checkpoint: str
