"""Time and memory of everything around the network, per sample: constant, up to a million samples.

Data are a Parquet index with a few bytes in the place of each image, predictions are drawn at random, and nothing is
decoded: what remains is planning, scoring, the journal, resuming from it, statistics and the report. Each part runs in
a process of its own, at two sizes; the figures are what a sample costs at the larger one against the smaller one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from timing import fast, figure
from torch import nn

from surgeon.data.images import ImageSet
from surgeon.data.loaders import Batch, cut
from surgeon.data.opening import open_data
from surgeon.data.stratified import halves, limit
from surgeon.measuring.books import Books
from surgeon.measuring.contest import Contest
from surgeon.measuring.error_analysis import break_down
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.journal import Journal
from surgeon.measuring.variants import Variant
from surgeon.metrics import Scores, compare_scores, in_order, metrics, summarise
from surgeon.metrics.summary import intervals
from surgeon.results import Method
from surgeon.training.images import Order

SIZES, FAST_SIZES = (100_000, 1_000_000), (10_000, 100_000)
CLASSES, BATCH, SETTINGS = 10, 256, ("original", "other")
MOST = 1.3
"""More per sample at ten times as many: sorting takes n log n, and caches are of one size."""


class Simulated:
    """Batches of logits in the place of images, the same in every run."""

    def __init__(self, images: ImageSet, numbers: Sequence[int] | None = None) -> None:
        self.image_set, self.batch_size, self.bad = images, BATCH, list[str]()
        self.cuts = cut(len(images), BATCH)
        self.numbers = range(len(self.cuts)) if numbers is None else numbers

    def only(self, numbers: Sequence[int]) -> Simulated:
        return Simulated(self.image_set, numbers)

    def __len__(self) -> int:
        return len(self.cuts)

    def __iter__(self) -> Generator[Batch]:
        for number in self.numbers:
            indices = torch.tensor(self.cuts[number])
            labels = torch.from_numpy(self.image_set.labels[indices.numpy()])
            logits = torch.randn(len(indices), CLASSES, generator=torch.Generator().manual_seed(number))
            yield Batch(logits + 2 * torch.eye(CLASSES)[labels], labels, indices)


def measured(images: ImageSet, journal: Journal) -> Contest:
    """Settings of a network that answers with what it is given, some of it weaker."""
    networks = {name: nn.Dropout(0.5) if number == 0 else nn.Tanh() for number, name in enumerate(SETTINGS)}
    variants = {name: Variant(one, InferenceSettings.of(one)) for name, one in networks.items()}
    samples = Simulated(images)
    contest = Contest(SETTINGS, SETTINGS[0], metrics["accuracy"], Method.GRID, len(samples), BATCH)
    Books(journal=journal).hold("choosing", contest, lambda names: {name: variants[name] for name in names}, samples)
    return contest


class Parts:
    """What is done with one number of samples, in this order; each part finds what it needs on the disk."""

    def __init__(self, folder: Path, number: int) -> None:
        self.index, self.folder, self.number = folder / f"test-{number}.parquet", folder / str(number), number
        self.scores = self.folder / "scores"

    def write_index(self) -> None:
        labels = np.random.default_rng(0).integers(CLASSES, size=self.number)
        rows = [{"bytes": b"%d" % number, "path": None} for number in range(self.number)]
        pq.write_table(pa.table({"image": rows, "label": labels}), self.index, row_group_size=10_000)
        self.folder.mkdir()

    def open_index(self) -> ImageSet:
        return open_data(str(self.index), None)

    def plan(self) -> None:
        """Subset, halves, fingerprint, batches, and the order of an epoch of training."""
        images = self.open_index()
        limit(images.labels, len(images) // 2)
        halves(images.labels)
        assert images.fingerprint
        cut(len(images), BATCH)
        assert sum(1 for _ in Order(len(images), BATCH, 0, 0, len(images) // BATCH)) == len(images) // BATCH

    def measure(self) -> None:
        contest = measured(self.open_index(), Journal(self.folder / "journal", {}, overwrite=True))
        for name, scores in contest.scores.items():
            (self.folder / name).write_bytes(scores.to_bytes())

    def resume(self) -> None:
        contest = measured(self.open_index(), Journal(self.folder / "journal", {}, overwrite=False))
        assert contest.forwards == len(SETTINGS) * self.number

    def _scores(self) -> list[Scores]:
        return [Scores.from_bytes((self.folder / name).read_bytes()) for name in SETTINGS]

    def compare(self) -> None:
        """All figures of two networks, their intervals, and all differences."""
        first, second = self._scores()
        for scores in (first, second):
            summarise(scores)
            intervals(scores)
        for metric in in_order():
            if metric.applies_to_masks(False):
                compare_scores(metric, second, first)

    def report(self) -> None:
        """What lies behind the figures, of which pages and pictures are made."""
        (scores, _), images = self._scores(), self.open_index()
        break_down(scores.images(), images, None)


PARTS = {
    "open the index": Parts.open_index,
    "plan": Parts.plan,
    f"score {len(SETTINGS)} settings, journal": Parts.measure,
    "resume from the journal": Parts.resume,
    "statistics of two networks": Parts.compare,
    "analysis for the report": Parts.report,
}


def cost(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of processor time, and by how many MiB the peak of memory is above what there was: in a child process."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now
            before, start = _status("VmRSS"), time.process_time()
            run()
            os.write(writing, f"{time.process_time() - start} {(_status('VmHWM') - before) / 1024}".encode())
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    os.wait()
    with os.fdopen(reading) as answer:
        told = answer.read().split()
    if not told:
        raise RuntimeError("A part has failed: see above.")
    return float(told[0]), float(told[1])


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def main() -> int:
    torch.set_num_threads(1)
    few, many = FAST_SIZES if fast() else SIZES
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_DATASETS_CACHE"] = str(Path(folder) / "cache")
        small, large = (Parts(Path(folder), number) for number in (few, many))
        for parts in (small, large):
            cost(parts.write_index)
            cost(parts.open_index)  # turns Parquet into Arrow files, the first time
        title = f"a sample among {many:,} against one among {few:,}"
        print(title)
        for name, part in PARTS.items():
            seconds, memory = zip(*(cost(partial(part, parts)) for parts in (small, large)), strict=True)
            each = [1e6 * spent / number for spent, number in zip(seconds, (few, many), strict=True)]
            per_sample = 2**20 * (memory[1] - memory[0]) / (many - few)
            told = f"{each[1]:8.2f} µs{per_sample:7.0f} B "
            kept &= figure(title, name, each[1] / each[0], at_most=MOST, before=told, noise=0.1)
        size = [(parts.folder / "journal").stat().st_size for parts in (small, large)]
        each = [one / number / len(SETTINGS) for one, number in zip(size, (few, many), strict=True)]
        told = f"{'':11}{each[1]:7.0f} B "
        kept &= figure(title, "journal on the disk, one setting", each[1] / each[0], at_most=MOST, before=told, noise=0)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
