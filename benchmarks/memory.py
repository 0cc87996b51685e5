"""Peak memory of an evaluation: 50,000 images need no more than 1,000.

The data are opened once before: turning Parquet into Arrow files, which happens the first time only, takes some
memory of its own. Of two evaluations the lower peak counts, because peaks of the same evaluation differ by 5% and more.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from timing import figure

FEW, MANY = 1_000, 50_000
MOST = 1.10


def write_images(path: Path, number: int) -> None:
    """Random images of 32x32, each different, as PNG in a Parquet file."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(number):
        stream = BytesIO()
        Image.fromarray(random.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(stream, "PNG", compress_level=1)
        rows.append({"bytes": stream.getvalue(), "path": None})
    table = {"image": rows, "label": np.arange(number) % 10}
    pq.write_table(pa.table(table), path, row_group_size=1000)


def in_process(step: str, path: Path) -> str:
    """What a step prints in a process of its own, with a cache of its own."""
    environment = os.environ | {"HF_DATASETS_CACHE": str(path.parent / "cache")}
    command = [sys.executable, __file__, step, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def open_only(path: Path) -> None:
    from surgeon.data.opening import open_data

    open_data(str(path), None)


def evaluate(path: Path) -> None:
    """Print the peak resident memory in MiB."""
    from surgeon.checkpoint import open_model
    from surgeon.commands.evaluate import run_evaluation
    from surgeon.measuring.preparation import InferenceRequest

    run_evaluation(open_model("cifar-resnet20", pretrained=False), InferenceRequest(data=str(path)), lambda *_: None)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


STEPS = {"open": open_only, "evaluate": evaluate}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        sizes = {}
        for number in (FEW, MANY):
            path = Path(folder) / f"test-{number}.parquet"
            write_images(path, number)
            in_process("open", path)
            sizes[number] = min(float(in_process("evaluate", path).split()[-1]) for _ in range(2))
            print(f"evaluating {number:>6,} images: peak resident memory {sizes[number]:7.1f} MiB")
    title = f"{MANY:,} images against {FEW:,}"
    return 0 if figure(title, "peak resident memory", sizes[MANY] / sizes[FEW], at_most=MOST) else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        STEPS[sys.argv[1]](Path(sys.argv[2]))
    else:
        sys.exit(main())
