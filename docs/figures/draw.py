"""The figures of the method pages, computed by surgeon's own layers: python docs/figures/draw.py [NAME…].

One function per method, named as its page. What is random follows from a fixed seed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from house import (
    BLUE,
    COLOURS,
    GREY,
    ORANGE,
    PHOTOGRAPH_DPI,
    RED,
    bundled_network,
    digits,
    features,
    finish,
    panels,
    plain_batch,
    save,
    show,
    train,
)
from torch import Tensor, nn

import surgeon
from surgeon.augment.apply import augment_pictures
from surgeon.augment.pipeline import build_augmentation
from surgeon.data.digits import digit_pixels
from surgeon.inserts.crossnorm.styles import cross_normalise, cross_normalise_channels
from surgeon.inserts.moex.exchange import exchange_moments
from surgeon.layers import statistics
from surgeon.layers.statistics import Statistics
from surgeon.models.origin import Preprocessing
from surgeon.surgery.inspect import inspect_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES = Path(__file__).parents[1] / "images" / "methods"


def example_weighted() -> Figure:
    """One channel's features of eight images, normalised at three values of alpha."""
    return _normalised([(f"example-weighted:alpha={alpha}", f"alpha = {alpha:g}") for alpha in (0.0, 0.3, 1.0)])


def instance_aware() -> Figure:
    """The same at three values of k."""
    return _normalised([(f"instance-aware:k={k}", f"k = {k}") for k in ("inf", "2", "0")])


def _normalised(specs: Sequence[tuple[str, str]]) -> Figure:
    """One channel's features of eight images, normalised by rewrites at several settings."""
    network = bundled_network()
    spread, _ = digits(300, "test")
    means = features(network, "layer1.0.bn1", spread)[:, 6].mean((1, 2))
    images = spread[means.argsort()[:: len(means) // 7]]  # from the lowest mean to the highest
    figure, axes = panels(len(specs), sharex=True, sharey=True)
    for panel, (spec, title) in zip(axes, specs, strict=True):
        converted = surgeon.convert(network, spec)
        layer = converted.get_submodule("layer1.0.bn1")
        layer.weight.data.fill_(1)  # the normalised values themselves, before gamma and beta
        layer.bias.data.zero_()
        with torch.no_grad():
            values = layer(features(converted, "layer1.0.bn1", images))[:, 6].flatten(1)
        for row, example in enumerate(values):
            panel.scatter(example, torch.full_like(example, row), s=5, color=BLUE, alpha=0.25, linewidths=0)
            mean, deviation = example.mean().item(), example.std().item()
            panel.plot([mean - deviation, mean + deviation], [row, row], color=BLUE, linewidth=1.4)
            panel.plot(mean, row, "o", color=RED, markersize=5)
        panel.axvline(0, color=GREY, linewidth=0.9, linestyle="--", zorder=0)
        panel.set_yticks(range(len(values)))
        finish(panel, title, "normalised feature", "image" if panel is axes[0] else "")
    return figure


def ghost() -> Figure:
    """The statistics that one channel is normalised by, for groups of three sizes."""
    x = features(bundled_network(), "layer1.0.bn1", digits(512)[0])
    figure, axes = panels(3, sharex=True, sharey=True)
    for panel, size in zip(axes, (64, 16, 4), strict=True):
        bounds = statistics.group_bounds(len(x), size, 64)
        _, groups = statistics.normalise_groups(x, None, None, bounds, 1e-5)
        panel.scatter(groups.mean[:, 6], groups.var[:, 6].sqrt(), s=14, color=BLUE, alpha=0.6, linewidths=0)
        var, mean = torch.var_mean(x[:, 6], correction=0)
        panel.plot(mean, var.sqrt(), "+", color=RED, markersize=13, markeredgewidth=2)
        finish(panel, f"groups of {size}", "mean", "deviation" if size == 64 else "")
    return figure


def batch_group() -> Figure:
    """The mean by which each example's channel is normalised, under four rules."""
    x = features(bundled_network(), "layer1.0.bn1", digits(16)[0])
    own = statistics.example_statistics(x)

    def shared(examples: int, channel_groups: int) -> Tensor:
        parts = [Statistics(own.mean[i : i + examples], own.var[i : i + examples]) for i in range(0, 16, examples)]
        pooled = [statistics.pool(part, torch.ones(examples)) for part in parts]
        groups = Statistics(torch.stack([p.mean for p in pooled]), torch.stack([p.var for p in pooled]))
        return statistics.share_within_groups(groups, channel_groups).mean.repeat_interleave(examples, 0)

    rules = {"BatchNorm": (16, 16), "ghost, groups of 4": (4, 16), "batch-group, 4 x 4": (4, 4), "GroupNorm, 4": (1, 4)}
    figure, axes = panels(4, 2.5)
    limit = own.mean.abs().max().item()
    for panel, (name, rule) in zip(axes, rules.items(), strict=True):
        show(panel, shared(*rule), name, cmap="RdBu_r", vmin=-limit, vmax=limit)
        panel.set_xlabel("16 channels", fontsize=9)
    axes[0].set_ylabel("16 examples", fontsize=9)
    return figure


def _augmented(spec: str, pixels: Sequence[Any]) -> Tensor:
    """Digits as they come out of an augmentation, normalised."""
    from PIL import Image

    images = Preprocessing(input_size=(1, 8, 8), mean=(0.5,), std=(0.5,))
    pictures = [Image.fromarray(picture) for picture in pixels]
    numbers, targets = range(len(pictures)), torch.eye(len(pictures))
    return augment_pictures(build_augmentation([spec], images), pictures, numbers, targets, images, seed=0)[0]


def split() -> Figure:
    """The running statistics of both branches after the same digits, weakly and strongly augmented."""
    network = surgeon.convert(bundled_network(), "split").train()
    pixels, _ = digit_pixels("train")
    weak, strong = (_augmented(f"{name}:flip=false", pixels[:640]) for name in ("weak", "strong"))
    for _ in range(3):
        for start in range(0, len(weak), 64):
            with torch.no_grad(), surgeon.branch(network, "halves"):
                network(torch.cat([weak[start : start + 64], strong[start : start + 64]]))
    layer = network.get_submodule("layer1.0.bn1")
    figure, axes = panels(2, 3.2)
    for panel, name in zip(axes, ("running_mean", "running_var"), strict=True):
        main, aux = getattr(layer, name), getattr(layer.aux, name)
        if name == "running_var":
            main, aux = main.sqrt(), aux.sqrt()
        ends = [min(main.min(), aux.min()).item(), max(main.max(), aux.max()).item()]
        panel.plot(ends, ends, color=GREY, linewidth=1, linestyle="--")
        panel.scatter(main, aux, s=24, color=ORANGE, linewidths=0)
        title = "running mean" if name == "running_mean" else "running deviation"
        finish(panel, f"{title} of 16 channels", "main: weakly augmented", "auxiliary: strongly augmented")
    return figure


def _two_kinds(indices: Tensor) -> tuple[Tensor, Tensor]:
    """Half of the digits white on black, half black on white."""
    images, labels = plain_batch(indices)
    half = len(images) // 2
    return torch.cat([images[:half], -images[half:]]), labels


def mode() -> Figure:
    """How a gate divides two kinds of digits between two modes, before and after a short training."""
    network = surgeon.convert(bundled_network(), "mode:modes=2")
    images, _ = digits(300, "test")
    figure, axes = panels(2, sharex=True)
    for panel, title in zip(axes, ("as converted", "after 150 steps"), strict=True):
        if title != "as converted":
            train(network, _two_kinds, 150, lr=0.3)
        gates = network.get_submodule("bn1").modes
        for kind, colour, sign in (("white on black", BLUE, 1), ("black on white", ORANGE, -1)):
            shares = gates.gates(features(network, "bn1", sign * images))[:, 0].detach()
            panel.hist(shares, bins=40, range=(0, 1), color=colour, alpha=0.75, label=kind)
        finish(panel, title, "share of mode 1 in an image", "images" if title == "as converted" else "", legend=True)
    return figure


def mode_group() -> Figure:
    """How the channels of one image are divided between two modes."""
    network = surgeon.convert(bundled_network(), "mode-group:modes=2")
    images, _ = digits(1, "test")
    figure, axes = panels(2, sharey=True)
    for panel, title in zip(axes, ("as converted", "after 150 steps"), strict=True):
        if title != "as converted":
            train(network, plain_batch, 150)
        layer = network.get_submodule("layer2.0.bn1")
        x = features(network, "layer2.0.bn1", images)
        means, shares = statistics.example_statistics(x).mean[0], layer.modes.gates(x)[0].detach()
        for k, colour in enumerate((BLUE, ORANGE)):
            panel.scatter(means, shares[k], s=18, color=colour, linewidths=0, label=f"mode {k + 1}")
            centre = (shares[k] * means).sum() / shares[k].sum()
            panel.axvline(centre, color=colour, linewidth=1.2, linestyle="--")
        panel.set_ylim(-0.03, 1.03)
        finish(panel, title, "mean of a channel", "share of a mode" if title == "as converted" else "", legend=True)
    return figure


def moex() -> Figure:
    """Features of the stem before and after they take the moments of a partner's."""
    network = bundled_network()
    images, labels = digits(48, "test")
    chosen = [int((labels == label).nonzero()[0]) for label in (0, 1, 3, 4, 7, 6)]
    x = network.get_submodule("bn1")(features(network, "bn1", images[chosen])).relu().detach()
    partners = torch.arange(len(x)).roll(-1)
    y = exchange_moments(x, partners, "pono")
    figure, axes = panels(len(x), 3.9, rows=3)
    channel = int(x.var((0, 2, 3)).argmax())
    rows = {"image": images[chosen, 0], "one channel": x[:, channel], "with the next\none's moments": y[:, channel]}
    for number, (name, pictures) in enumerate(rows.items()):
        for column, picture in enumerate(pictures):
            panel = axes[number * len(x) + column]
            show(panel, picture, cmap="gray" if name == "image" else "viridis")
            if column == 0:
                panel.set_ylabel(name, fontsize=9)
    return figure


def _photographs() -> Tensor:
    """scikit-learn's two photographs, small."""
    from sklearn.datasets import load_sample_image

    pictures = [torch.from_numpy(load_sample_image(name).copy()) for name in ("china.jpg", "flower.jpg")]
    batch = torch.stack(pictures).permute(0, 3, 1, 2).float() / 255
    return nn.functional.interpolate(batch, size=(80, 120), mode="area")


def crossnorm() -> Figure:
    """Two photographs with each other's style, and with their own channels' exchanged."""
    x = _photographs()
    exchanged = cross_normalise(x, torch.tensor([1, 0]))
    part = cross_normalise(x, torch.tensor([1, 0]), None, (15, 30, 68, 98))
    within = cross_normalise_channels(x, torch.tensor([2, 0, 1]))
    figure, axes = panels(4, 2.75, rows=2, dpi=PHOTOGRAPH_DPI)
    columns = {"original": x, "two-instance": exchanged, "crop=content": part, "one-instance": within}
    for column, (name, pictures) in enumerate(columns.items()):
        for row, picture in enumerate(pictures):
            show(axes[row * 4 + column], picture, name if row == 0 else "")
    return figure


def selfnorm() -> Figure:
    """The gates of three units on test images, after a short training."""
    images, _ = digits(200, "test")
    network = surgeon.convert(bundled_network(), "selfnorm", inputs=(images[:2],))
    units = [name for name, module in network.named_modules() if type(module).__name__ == "SelfNorm"]
    train(network, plain_batch, 150)
    figure, axes = panels(len(units), sharex=True)
    for panel, name, colour in zip(axes, units, COLOURS, strict=True):
        x = features(network, name, images)
        gates = (network.get_submodule(name)(x) / x)[x.abs() > 1e-3].detach()
        panel.hist(gates, bins=50, range=(0.9, 1.15), color=colour, alpha=0.85)
        panel.axvline(1, color=GREY, linewidth=1, linestyle="--")
        panel.set_yticks([])
        finish(panel, f"after {name.split('.')[0]}", "gate (fresh units: 1)")
    return figure


def norm_weight_decay() -> Figure:
    """How far the network's outputs move, in training, when gamma and beta of one layer are halved."""
    network = bundled_network()
    images, _ = digits(256)
    reports = inspect_model(network, inputs=(images[:2],)).layers
    network.train()
    before = network(images).detach()
    moved = []
    for report in reports:
        layer = network.get_submodule(report.name)
        with torch.no_grad():
            for parameter in (layer.weight, layer.bias):
                parameter.mul_(0.5)
            moved.append(((network(images) - before).norm() / before.norm()).item())
            for parameter in (layer.weight, layer.bias):
                parameter.mul_(2)
    figure, (panel,) = panels(1, 3.0)
    colours = [ORANGE if report.norm_free_path else BLUE for report in reports]
    panel.barh([report.name for report in reports], moved, color=colours)
    for row, value in enumerate(moved):
        panel.text(value, row, f" {value:.2f}", va="center", fontsize=8)
    panel.invert_yaxis()
    for name, colour in (("a path without another norm leads to the output", ORANGE), ("another norm follows", BLUE)):
        panel.barh([0], [0], color=colour, label=name)
    finish(panel, "gamma and beta of one layer halved", "relative change of the logits", legend=True)
    return figure


FIGURES = {
    "example-weighted": example_weighted,
    "instance-aware": instance_aware,
    "ghost": ghost,
    "batch-group": batch_group,
    "split": split,
    "mode": mode,
    "mode-group": mode_group,
    "moex": moex,
    "crossnorm": crossnorm,
    "selfnorm": selfnorm,
    "norm-weight-decay": norm_weight_decay,
}


def main(names: list[str]) -> None:
    for name in names or FIGURES:
        torch.manual_seed(0)
        save(FIGURES[name](), IMAGES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
