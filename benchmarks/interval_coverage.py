"""How often 95% intervals contain the truth: simulated networks, every registered metric, few and many images.

A population of 200,000 images stands for all there are. Its figures are the truth; samples are drawn
from it, and each gives an interval for a figure and for the difference of two networks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surgeon.metrics import ImageScores, Metric, metrics
from surgeon.metrics.accumulator import COLUMNS, _score
from surgeon.metrics.calibration import IMAGES_PER_BIN
from surgeon.metrics.interval import compare_images, figure_interval
from surgeon.metrics.temperature_fit import TemperatureSums

OF_CLASSES = [name for name in metrics if not metrics[name].only_masks]

CLASSES = 10
SIZES = (50, 200, 1000)
BY_QUANTILES = ("rms", "mad")


@dataclass(frozen=True)
class Pair:
    """Two networks on the same images: a baseline, and a candidate whose logits differ by some noise and a factor."""

    name: str
    margin: float
    sharpness: float
    noise: float
    factor: float

    def logits(self, images: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(CLASSES, (images,), generator=generator)
        own = torch.randn(images, CLASSES, generator=generator)
        # Some images are hard, most are easy.
        margin = self.margin * torch.rand(images, generator=generator).sqrt() * 2
        own[torch.arange(images), labels] += margin
        other = own + self.noise * torch.randn(images, CLASSES, generator=generator)
        return self.sharpness * self.factor * other, self.sharpness * own, labels


PAIRS = (
    Pair("75%, overconfident, alike", 1.9, 4.0, 0.1, 0.8),
    Pair("75%, calibrated, unlike", 2.1, 1.0, 0.7, 1.0),
    Pair("90%, overconfident, alike", 3.1, 4.0, 0.05, 0.9),
    Pair("90%, overconfident, unlike", 3.1, 2.0, 0.7, 0.6),
    Pair("95%, calibrated, alike", 3.9, 1.1, 0.1, 0.95),
    Pair("97%, overconfident, unlike", 5.6, 2.5, 0.7, 0.8),
    Pair("99%, overconfident, alike", 9.0, 3.5, 0.1, 0.8),
    Pair("99%, overconfident, unlike", 8.0, 2.0, 0.7, 0.8),
    Pair("90%, identical", 3.1, 2.5, 0.0, 1.0),
)


class Population:
    """All images there are, scored once by both networks."""

    def __init__(self, pair: Pair, images: int, seed: int = 0) -> None:
        *networks, labels = pair.logits(images, seed)
        self.rows, self.curves = zip(*(_score(logits, labels) for logits in networks), strict=True)
        self.images = images

    def take(self, network: int, places: NDArray[np.int64]) -> ImageScores:
        """Some of the images as one network sees them."""
        rows, indices = self.rows[network][places], np.arange(len(places))
        sums = TemperatureSums.of(indices, self.curves[network][places])
        return ImageScores(CLASSES, indices, **{name: rows[name] for name in COLUMNS}, sums=sums, elsewhere=None)

    @cached_property
    def everything(self) -> tuple[ImageScores, ImageScores]:
        first, second = (self.take(network, np.arange(self.images)) for network in (0, 1))
        return first, second

    def truth(self, metric: Metric, network: int, size: int) -> float:
        """The figure of all images; calibration errors of bins of 100 have as many bins as the sample has."""
        of_all = self.everything[network]
        if metric.name in BY_QUANTILES:
            return _by_quantiles(metric.name, of_all, max(size // IMAGES_PER_BIN, 1))
        value = metric.compute(of_all)
        assert value is not None
        return value


def _by_quantiles(name: str, images: ImageScores, bins: int) -> float:
    order = np.argsort(images.confidence, kind="stable")
    surplus = images.confidence[order] - images.correct[order]
    gaps = np.array([part.mean() for part in np.array_split(surplus, bins)])
    return float(np.sqrt((gaps**2).mean()) if name == "rms" else np.abs(gaps).mean())


@dataclass(frozen=True)
class Coverage:
    """The share of samples whose interval contains the truth, and how wide intervals are on average."""

    metric: str
    size: int
    pair: str
    figure: float
    difference: float
    figure_width: float
    difference_width: float


def coverages(
    pair: Pair, sizes: tuple[int, ...], samples: int, images: int = 200_000, seed: int = 1
) -> Iterator[Coverage]:
    """Of every registered metric."""
    population = Population(pair, images)
    random = np.random.default_rng(seed)
    for size in sizes:
        truths = {name: [population.truth(metrics[name], network, size) for network in (0, 1)] for name in OF_CLASSES}
        found = np.zeros((len(truths), 4))
        for _ in range(samples):
            places = random.integers(images, size=size)
            candidate, baseline = (population.take(network, places) for network in (0, 1))
            for row, (name, (first, second)) in zip(found, truths.items(), strict=True):
                low, high = figure_interval(metrics[name], candidate)
                compared = compare_images(metrics[name], candidate, baseline)
                inside = compared.low <= first - second <= compared.high
                row += low <= first <= high, inside, high - low, compared.high - compared.low
        for name, row in zip(truths, found / samples, strict=True):
            yield Coverage(name, size, pair.name, *row.tolist())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--images", type=int, default=200_000, help="of the population")
    parser.add_argument("--all", action="store_true", help="show every pair of networks, not only the worst")
    arguments = parser.parse_args()
    found = [each for pair in PAIRS for each in coverages(pair, SIZES, arguments.samples, arguments.images)]
    print("metric                 images   figure  difference   (share of intervals that contain the truth)")
    for name in OF_CLASSES:
        for size in SIZES:
            rows = [each for each in found if (each.metric, each.size) == (name, size)]
            for row in rows if arguments.all else ():
                widths = f"{row.figure_width:.4f} {row.difference_width:.4f}"
                print(f"{name:<22} {size:>6}   {row.figure:6.3f}  {row.difference:6.3f}  {widths}  {row.pair}")
            worst = min(row.figure for row in rows), min(row.difference for row in rows)
            print(f"{name:<22} {size:>6}   {worst[0]:6.3f}  {worst[1]:6.3f}   worst of {len(rows)} pairs")
    return 0 if all(min(each.figure, each.difference) >= 0.93 for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
