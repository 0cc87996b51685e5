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
    """Rewrites of the checkpoint, with its settings."""
    data: str
    classes: int
    classes_text: str = ""
    """The classes of masks, in words: their number, where the names come from, and which values are void."""
    train_images: int
    validation_images: int
    test_images: int
    bad_training_images: int = 0
    """Most images that could not be read in any epoch, and were left out. (The next two list names.)"""
    bad_validation_images: tuple[str, ...] = ()
    bad_test_images: tuple[str, ...] = ()
    held_back: bool
    """Whether the validation images were held out of the training images."""
    unlabelled: str | None = None
    """Source of the unlabelled images, if there were any; `same`: the training images."""
    unlabelled_images: int = 0
    unlabelled_left_out: int = 0
    """Unlabelled images that were left out because they are validation or test images."""
    preprocessing: Preprocessing
    recipe: dict[str, Any]
    decided: dict[str, str] = Field(default_factory=dict)
    """Keys that the recipe left open, and what decided them."""
    batch_size: int
    trained_parameters: int
    parameters: int
    epochs: tuple[Epoch, ...]
    validation: Metrics
    """Validation figures of the network as trained."""
    figures: tuple[Measured, ...] = ()
    """Figures of both splits, as trained and as saved."""
    settings: tuple[str, ...]
    """What the validation images then chose, in sentences."""
    sweeps: tuple[str, ...] = ()
    """Folders of the sweeps that chose the settings, relative to the run."""
    test: Metrics | None
    """Test figures of the checkpoint, with its settings."""
    tta: str | None = None
    snapshots: tuple[str, ...] = ()
    device: str
    seconds: float
    checkpoint: str
