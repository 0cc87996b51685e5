"""The figures of the page that explains the numbers: python docs/figures/explain.py [NAME…].

Everything is measured on the bundled network and digits, by the functions that the commands use. One function per
section of the page, named as its anchor. What is random follows from a fixed seed.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from house import BLUE, GREY, ORANGE, RED, bundled_network, digits, finish, panels, save, show
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import surgeon
from surgeon.conditions.base import ask
from surgeon.metrics.calibration import EQUAL_WIDTH_BINS, expected_calibration_error
from surgeon.metrics.interval import compare, mean_interval, proportion_interval
from surgeon.metrics.temperature_fit import GRID

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGES = Path(__file__).parents[1] / "images" / "explain"
ALL = 5000  # more than there are
NOISE = 0.5


@cache
def noisy() -> tuple[Tensor, Tensor]:
    """Validation and test digits with Gaussian noise."""
    parts = [digits(ALL, split) for split in ("validation", "test")]
    images, labels = (torch.cat([part[i] for part in parts]) for i in (0, 1))
    return images + NOISE * torch.randn(images.shape, generator=torch.Generator().manual_seed(0)), labels


@cache
@torch.no_grad()
def logits(alpha: float) -> Tensor:
    """The network's answers for the noisy digits."""
    return surgeon.convert(bundled_network(), "example-weighted", alpha=alpha)(noisy()[0])


def right(alpha: float) -> np.ndarray:
    """Which of them it gets right."""
    return (logits(alpha).argmax(1) == noisy()[1]).numpy()


def _interval(panel: Axes, row: float, low: float, high: float, value: float, colour: str) -> None:
    panel.plot([low, high], [row, row], color=colour, linewidth=1.6)
    panel.plot(value, row, "o", color=colour, markersize=4)


def accuracy() -> Figure:
    """Fifty samples of 60 images: the accuracy of each, its interval, and the accuracy of all images."""
    correct = right(0)
    figure, (panel,) = panels(1, 3.6)
    truth, missed = float(correct.mean()), 0
    for row, generator in enumerate(np.random.default_rng(seed) for seed in range(50)):
        sample = correct[generator.choice(len(correct), 60)]
        low, high = proportion_interval(int(sample.sum()), len(sample))
        misses = not low <= truth <= high
        missed += misses
        _interval(panel, row, 100 * low, 100 * high, 100 * sample.mean(), RED if misses else BLUE)
    panel.axvline(100 * truth, color=GREY, linestyle="--", linewidth=1)
    panel.set_yticks([])
    title = f"50 samples of 60 images: {50 - missed} intervals contain the accuracy of all {len(correct)}"
    finish(panel, title, "accuracy, %", "sample")
    return figure


def paired_gain() -> Figure:
    """The same two networks, compared with and without pairing."""
    before, after = right(0), right(0.1)
    figure, (table, panel) = panels(2, 2.7, width_ratios=(1, 1.6))
    counts = torch.tensor([[(b & a).sum(), (b & ~a).sum()] for b, a in ((before, after), (~before, after))])
    show(table, counts.double().sqrt(), cmap="Blues", vmin=0, vmax=50)
    for (row, column), count in np.ndenumerate(counts.numpy()):
        table.text(column, row, f"{count}", ha="center", va="center", fontsize=11)
    table.set_xticks([0, 1], ["right", "wrong"], fontsize=8)
    table.set_yticks([0, 1], ["right", "wrong"], fontsize=8)
    table.set_title("images", loc="left", fontsize=10)
    table.set_xlabel("alpha 0.1", fontsize=9)
    table.set_ylabel("original", fontsize=9)

    number, gain = len(before), compare(after, before, higher_is_better=True)
    error = np.sqrt(sum(one.mean() * (1 - one.mean()) / number for one in (before, after)))
    unpaired = gain.difference - 1.96 * error, gain.difference + 1.96 * error
    _interval(panel, 1, 100 * unpaired[0], 100 * unpaired[1], 100 * gain.difference, GREY)
    _interval(panel, 0, 100 * gain.low, 100 * gain.high, 100 * gain.difference, BLUE)
    panel.axvline(0, color=GREY, linestyle="--", linewidth=1)
    panel.set_yticks([0, 1], ["same images", "two samples"])
    panel.set_ylim(-0.6, 1.6)
    finish(panel, "gain of alpha 0.1", "accuracy, points")
    return figure


def scaled_cross_entropy() -> Figure:
    """Cross-entropy by temperature, for the original and for alpha 0.1."""
    figure, (panel,) = panels(1, 3.1)
    for alpha, colour, name in ((0.0, BLUE, "original"), (0.1, ORANGE, "alpha 0.1")):
        losses = [nn.functional.cross_entropy(logits(alpha) / float(t), noisy()[1]).item() for t in GRID]
        best = int(np.argmin(losses))
        as_it_is = nn.functional.cross_entropy(logits(alpha), noisy()[1]).item()
        panel.plot(GRID, losses, color=colour, linewidth=1.6, label=name)
        panel.plot(1, as_it_is, "o", color=colour)
        panel.plot(GRID[best], losses[best], "*", color=colour, markersize=11)
        panel.annotate(f"{as_it_is:.3f}", (1, as_it_is), (7, -9), textcoords="offset points", fontsize=8)
        panel.annotate(
            f"{losses[best]:.3f} at T = {GRID[best]:.2f}", (GRID[best], losses[best]), (0, -15 if alpha else 9),
            textcoords="offset points", ha="center", fontsize=8,
        )  # fmt: skip
    panel.set_xscale("log")
    panel.set_xticks([0.5, 0.7, 1, 1.4, 2], ["0.5", "0.7", "1", "1.4", "2"])
    panel.minorticks_off()
    panel.set_xlim(0.45, 2.1)
    panel.set_ylim(0.38, 0.92)
    finish(panel, "● as it is   ★ after temperature scaling", "temperature", "cross-entropy", legend=True)
    return figure


def calibration() -> Figure:
    """Reliability before and after temperature scaling, and the curve under which AURRA is the area."""
    figure, axes = panels(3, 2.7)
    correct = right(0).astype(float)
    best = min(GRID, key=lambda t: nn.functional.cross_entropy(logits(0) / float(t), noisy()[1]).item())
    for panel, temperature, name in ((axes[0], 1.0, "as it is"), (axes[1], float(best), f"T = {best:.2f}")):
        confidence = (logits(0) / temperature).double().softmax(1).amax(1).numpy()
        bins = np.minimum((confidence * EQUAL_WIDTH_BINS).astype(int), EQUAL_WIDTH_BINS - 1)
        for number in np.unique(bins):
            of_bin = bins == number
            mean, share = confidence[of_bin].mean(), correct[of_bin].mean()
            panel.plot([mean, mean], [mean, share], color=RED, linewidth=2)
            panel.scatter(mean, share, s=4 + 120 * of_bin.mean(), color=BLUE, linewidths=0, zorder=3)
        panel.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
        ece = expected_calibration_error(confidence, correct)
        finish(panel, f"{name}: ECE {ece:.3f}", "confidence", "accuracy" if panel is axes[0] else "")
    order = np.argsort(-(logits(0).double().softmax(1).amax(1).numpy()), kind="stable")
    answered = np.arange(1, len(order) + 1)
    curve = np.cumsum(correct[order]) / answered
    axes[2].fill_between(answered / len(order), curve, color=BLUE, alpha=0.2, linewidth=0)
    axes[2].plot(answered / len(order), curve, color=BLUE, linewidth=1.6)
    axes[2].set_ylim(0.6, 1.01)
    finish(axes[2], f"AURRA {curve.mean():.3f}", "share of images answered")
    return figure


def race() -> Figure:
    """A race over 21 alphas: how many images each value sees, and the figures that come out."""
    parts = [digits(ALL, split) for split in ("train", "validation", "test")]
    images, labels = (torch.cat([part[i] for part in parts]) for i in (0, 1))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    noise = NOISE * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset((images + noise)[order], labels[order]), batch_size=50)
    result = surgeon.sweep(bundled_network(), loader, alphas="0:1:21", metric="cross-entropy", method="race")
    figure, (lanes, curve) = panels(2, 3.4, width_ratios=(1.2, 1))
    original = result.points[0].metrics.cross_entropy
    for point in result.points:
        colour = {"beaten": RED, "thinned out": ORANGE, None: BLUE}[point.dropped]
        lanes.plot([0, point.metrics.images], [point.value, point.value], color=colour, linewidth=2)
        figure_shown = original if point.gain is None else original + point.gain.difference
        filled = colour if point.dropped is None else "white"
        curve.plot(point.value, figure_shown, "o", color=colour, markerfacecolor=filled, markersize=5)
    for name, colour in (("to the end", BLUE), ("thinned out", ORANGE), ("beaten", RED)):
        lanes.plot([], [], color=colour, linewidth=2, label=name)
    finish(lanes, "how many images a value sees", "images", "alpha")
    lanes.legend(fontsize=8, loc="upper right")
    finish(curve, "what the curve shows", "alpha", "cross-entropy")
    return figure


def corrected() -> Figure:
    """How often the best of several settings that gain nothing looks like a gain."""
    settings, images, repeats = (1, 2, 5, 10, 20), 500, 400
    random = np.random.default_rng(0)
    shares: dict[str, list[float]] = {"plain": [], "corrected": []}
    for number in settings:
        found = dict.fromkeys(shares, 0)
        for _ in range(repeats):
            # Each setting changes one image in ten, as often for the better as for the worse.
            differences = random.choice((-1.0, 0.0, 1.0), p=(0.05, 0.9, 0.05), size=(number, images))
            best = differences[differences.mean(1).argmax()]
            for name, tail in (("plain", 0.025), ("corrected", 0.025 / number)):
                found[name] += mean_interval(best, np.array([1.0, -1.0]), tail)[1].low > 0
        for name, count in found.items():
            shares[name].append(100 * count / repeats)
    figure, (panel,) = panels(1, 2.9)
    panel.plot(settings, shares["plain"], "o-", color=RED, label="95% interval of the best alone")
    panel.plot(settings, shares["corrected"], "o-", color=BLUE, label="corrected for the number of settings")
    panel.axhline(2.5, color=GREY, linestyle="--", linewidth=1)
    panel.set_xticks(settings)
    finish(panel, "no setting is any better", "settings tried", "reported as a gain, %", legend=True)
    return figure


@torch.no_grad()
def mean_corruption_error() -> Figure:
    """Error of the bundled network under fifteen corruptions at five severities, and what the means are of."""
    network = bundled_network()
    images, labels = digits(ALL, "test")
    errors: dict[str, list[float]] = {}
    for one in ask(["corruptions"]):
        pixels = one.apply((images + 1) / 2, labels, torch.arange(len(images)))
        wrong = (network(pixels * 2 - 1).argmax(1) != labels).double().mean().item()
        errors.setdefault(one.condition.name, []).append(100 * wrong)
    table = np.array(list(errors.values()))
    shown = np.column_stack([table, np.full(len(table), np.nan), table.mean(1)])
    figure, (panel,) = panels(1, 5.0)
    panel.imshow(shown, cmap="Oranges", vmin=0, vmax=110, aspect="auto")
    for (row, column), value in np.ndenumerate(shown):
        if np.isfinite(value):
            panel.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8)
    panel.set_xticks([0, 1, 2, 3, 4, 6], ["1", "2", "3", "4", "5", "mean"])
    panel.set_yticks(range(len(table)), list(errors))
    finish(panel, f"error, %; mean of the last column (uCE): {table.mean():.1f}", "severity")
    panel.grid(visible=False)
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set_visible(False)
    return figure


def disagreement() -> Figure:
    """Predictions of two networks against each other, and the ranks of their logits."""
    figure, (table, panel) = panels(2, 3.5)
    one, other = logits(0), logits(0.3)
    counts = torch.zeros(10, 10)
    counts.index_put_((one.argmax(1), other.argmax(1)), torch.ones(len(one)), accumulate=True)
    show(table, counts.sqrt(), cmap="Blues")
    for (row, column), count in np.ndenumerate(counts.numpy()):
        if count:
            colour = "white" if row == column else RED
            table.text(column, row, f"{count:.0f}", ha="center", va="center", fontsize=7, color=colour)
    table.set_xticks(range(10), range(10), fontsize=8)
    table.set_yticks(range(10), range(10), fontsize=8)
    differ = (one.argmax(1) != other.argmax(1)).double().mean().item()
    table.set_title(f"disagreement {differ:.1%}", loc="left", fontsize=10)
    table.set_xlabel("predicted with alpha 0.3", fontsize=9)
    table.set_ylabel("predicted by the original", fontsize=9)

    ranks = [part.flatten().argsort().argsort().double() for part in (one, other)]
    correlation = torch.corrcoef(torch.stack(ranks))[0, 1].item()
    some = torch.randperm(len(ranks[0]), generator=torch.Generator().manual_seed(0))[:2000]
    panel.scatter(ranks[0][some], ranks[1][some], s=2, color=BLUE, linewidths=0)
    panel.set_aspect("equal")
    finish(panel, f"rank correlation {correlation:.3f}", "rank of a logit, original", "rank, alpha 0.3")
    return figure


FIGURES = {
    "accuracy": accuracy,
    "paired-gain": paired_gain,
    "scaled-cross-entropy": scaled_cross_entropy,
    "calibration": calibration,
    "race": race,
    "corrected": corrected,
    "mean-corruption-error": mean_corruption_error,
    "disagreement": disagreement,
}


def main(chosen: list[str]) -> None:
    for name in chosen or FIGURES:
        save(FIGURES[name](), IMAGES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
