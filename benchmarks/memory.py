"""Peak memory of an evaluation: 50,000 images need no more than 1,000."""

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

FEW, MANY = 1_000, 50_000
MOST_MORE = 0.05


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


def peak(path: Path) -> float:
    """Peak resident memory in MiB of a process that evaluates the images."""
    environment = os.environ | {"HF_DATASETS_CACHE": str(path.parent / "cache")}
    finished = subprocess.run(
        [sys.executable, __file__, str(path)], capture_output=True, text=True, check=True, env=environment
    )
    return float(finished.stdout.split()[-1])


def evaluate(path: Path) -> None:
    from surgeon.checkpoint import open_model
    from surgeon.evaluation import run_evaluation
    from surgeon.task import Request

    run_evaluation(open_model("cifar-resnet20", pretrained=False), Request(data=str(path)), lambda *_: None)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        sizes = {}
        for number in (FEW, MANY):
            path = Path(folder) / f"test-{number}.parquet"
            write_images(path, number)
            sizes[number] = peak(path)
            print(f"evaluating {number:>6,} images: peak resident memory {sizes[number]:7.1f} MiB")
    more = sizes[MANY] / sizes[FEW] - 1
    print(f"  {more:+.1%}  (at most {MOST_MORE:+.0%}: {'ok' if more <= MOST_MORE else 'MISSED'})")
    return 0 if more <= MOST_MORE else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        evaluate(Path(sys.argv[1]))
    else:
        sys.exit(main())
