"""Cut the small data sets of transfer-defaults.yaml out of larger ones: so many images of each class, at random.

Usage: python recipes/scripts/transfer_data.py FOLDER OUTPUT

FOLDER holds the Parquet files of flowers102, pacs, cifar10 and usps, each in a folder of that name, with the columns
`image` and `label` as on the Hugging Face hub. PACS has no splits, so that all three come out of its photos.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PARTS = {
    "flowers": {
        "train": ("flowers102/train", 3),
        "validation": ("flowers102/validation", 3),
        "test": ("flowers102/test", 5),
    },
    "photo": {"train": ("pacs/photo", 15), "validation": ("pacs/photo", 15), "test": ("pacs/photo", 20)},
    "cifar10": {"train": ("cifar10/train", 20), "validation": ("cifar10/train", 30), "test": ("cifar10/test", 50)},
    "usps": {"train": ("usps/train", 20), "validation": ("usps/train", 30), "test": ("usps/test", 50)},
}
"""By name and split: the files, and how many images of each class."""


def cut(source: Path, output: Path) -> None:
    for name, splits in PARTS.items():
        taken: dict[str, int] = {}
        for split, (files, each) in splits.items():
            table = pa.concat_tables(map(pq.read_table, sorted(source.glob(f"{files}-*.parquet"))))
            labels = np.array(table["label"].to_pylist())
            begin = taken.get(files, 0)
            taken[files] = begin + each
            draws = np.random.default_rng(0)
            orders = [draws.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
            chosen = np.sort(np.concatenate([order[begin : begin + each] for order in orders]))
            folder = output / name
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(table.take(chosen), folder / f"{split}-00000-of-00001.parquet")


if __name__ == "__main__":
    cut(Path(sys.argv[1]), Path(sys.argv[2]))
