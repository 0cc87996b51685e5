"""Where real weights and images lie, for benchmarks that need them: the folder in SURGEON_DATA, or ../shared/data."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from timing import skip

FOLDER = Path(os.environ.get("SURGEON_DATA", Path(__file__).parents[2] / "shared" / "data"))
LITE0 = FOLDER / "weights" / "tf_efficientnet_lite0.safetensors"
RESNET20 = FOLDER / "weights" / "resnet20-12fca82f.th"
IMAGENET = FOLDER / "imagenet-val-1k"
CIFAR10 = FOLDER / "cifar10"


def leave_unless_there() -> None:
    """End a benchmark, and say so, where there is nothing to measure on."""
    if not FOLDER.is_dir():
        skip("there are no real weights and images (set SURGEON_DATA)")
        sys.exit(0)
