"""What `merge` and `export` have written, and how it compares with the network."""

from __future__ import annotations

from enum import StrEnum

from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results.base import Gain, Result


class Merging(Result):
    """What became of a split network when its branches were folded into one."""

    model: str
    share: float
    """Of the auxiliary branch."""
    layers: int
    probability_shift: float | None
    """Largest difference of a probability from the average of two passes, on random images."""
    data: str | None = None
    """Whose images the merged network was measured on, if any."""
    split: str | None = None
    two_passes: Metrics | None = None
    """Of the average of both branches' predictions, on images if there are any."""
    merged: Metrics | None = None
    gains: tuple[Gain, ...] = ()
    """Of the merged network over the average of two passes."""
    notes: tuple[str, ...] = ()
    """What else to know about it, in sentences."""
    output: str


class Target(StrEnum):
    """What a network can be exported to."""

    TIMM = "timm"
    ONNX = "onnx"
    TORCH_EXPORT = "torch-export"


class Export(Result):
    """A network written for programs that do not know surgeon, and how it was checked."""

    model: str
    target: Target
    output: str
    """The exported file or folder."""
    files: dict[str, int]
    """All written files, with their sizes in bytes."""
    preprocessing: Preprocessing | None
    """The preprocessing that the exported network expects."""
    folded: int | None
    """BatchNorm layers folded into convolutions; None if that was not asked for."""
    data: str | None = None
    """Data set whose images were compared; None for random images or those passed."""
    images: int
    batch_sizes: tuple[int, ...]
    """The batch sizes that were compared."""
    difference: float
    """Largest difference from the original's outputs, relative to the largest output."""
    notes: tuple[str, ...] = ()
