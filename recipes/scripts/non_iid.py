"""Train on minibatches of few classes and with several ghost sizes, and measure what alpha gains without retraining."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
import yaml
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy
from torchvision.transforms.functional import pil_to_tensor

import surgeon
from surgeon.data.digits import load_digits
from surgeon.data.opening import open_data
from surgeon.metrics import Metrics, Scores, metrics, summarise
from surgeon.models.cifar import digits_resnet8

FIGURES = ("accuracy", "cross-entropy", "scaled-cross-entropy")
ORIGINAL_COLOUR, CHOSEN_COLOUR, REFERENCE_COLOUR = "#1f6f8b", "#c77d2e", "#b8324a"  # as in surgeon/report/curves.py
IID = 10

Labelled = tuple[Tensor, Tensor]


class Data(NamedTuple):
    """Images to train on, to choose alpha and fit temperatures on, and to report on."""

    train: Labelled
    validation: Labelled
    test: Labelled


def digits() -> Data:
    return Data(load_digits("train"), load_digits("validation"), load_digits("test"))


def cifar10(folder: Path, validation_images: int) -> Data:
    """CIFAR-10 at half its resolution; validation images are held out of the training images."""
    images, labels = _decoded(folder, "train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    held_out, rest = order[:validation_images], order[validation_images:]
    return Data((images[rest], labels[rest]), (images[held_out], labels[held_out]), _decoded(folder, "test"))


def _decoded(folder: Path, split: str) -> Labelled:
    found = open_data(str(folder), split)
    pixels = torch.stack([pil_to_tensor(found.image(index).convert("RGB")) for index in range(len(found))])
    return avg_pool2d((pixels.float() / 255 - 0.5) / 0.25, 2), torch.from_numpy(found.labels)


def batches(labels: Tensor, classes: int, size: int, steps: int) -> Iterator[Tensor]:
    """Indices of random images of `classes` classes, drawn anew for each batch; images are drawn with replacement."""
    of_class = [(labels == label).nonzero().flatten() for label in labels.unique()]
    for _ in range(steps):
        pool = torch.cat([of_class[label] for label in torch.randperm(len(of_class))[:classes].tolist()])
        yield pool[torch.randint(len(pool), (size,))]


def train(settings: dict, data: Data, rewrite: str, classes: int, seed: int) -> nn.Module:
    """SGD with a one-cycle schedule."""
    torch.manual_seed(seed)
    images, labels = data.train
    model = digits_resnet8(in_chans=images.shape[1])
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = settings["running_momentum"]
    if rewrite != "plain":
        model = surgeon.convert(model, rewrite)
    rate, steps = settings["learning_rate"], settings["steps"]
    optimiser = torch.optim.SGD(model.parameters(), rate, momentum=0.9, nesterov=True, weight_decay=0.0005)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, cycle_momentum=False)
    model.train()
    for chosen in batches(labels, classes, settings["batch_size"], steps):
        batch = images[chosen]
        if settings["flip"]:
            batch = torch.where((torch.rand(len(batch)) < 0.5)[:, None, None, None], batch.flip(3), batch)
        optimiser.zero_grad()
        cross_entropy(model(batch), labels[chosen]).backward()
        optimiser.step()
        schedule.step()
    return model.eval()


def scores_at(model: nn.Module, alpha: float, images: Labelled) -> Scores:
    weighted = surgeon.convert(model, "example-weighted", alpha=alpha)
    scores = Scores()
    with torch.inference_mode():
        for pixels, labels, places in zip(
            *(part.split(500) for part in (*images, torch.arange(len(images[1])))), strict=True
        ):
            scores.update(weighted(pixels), labels, places)
    return scores


def best(name: str, figures: dict[float, Metrics]) -> float:
    """The alpha of the best figure; of equal ones, the smallest."""
    by_alpha = {alpha: figure.value(name) for alpha, figure in figures.items()}
    return (max if metrics[name].higher_is_better else min)(by_alpha, key=by_alpha.__getitem__)


def outcomes(model: nn.Module, data: Data, alphas: list[float]) -> dict[str, Any]:
    """By each metric, the alpha that it chooses on validation images, and test figures at alpha 0 and at that one."""
    held_out = {alpha: scores_at(model, alpha, data.validation) for alpha in alphas}
    figures = {alpha: summarise(scores) for alpha, scores in held_out.items()}
    chosen = {name: best(name, figures) for name in FIGURES}
    test = {
        alpha: summarise(scores_at(model, alpha, data.test), fitted_on=held_out[alpha])
        for alpha in {0, *chosen.values()}
    }
    return {
        name: {
            "alpha": alpha,
            "original": {figure: test[0].value(figure) for figure in FIGURES},
            "chosen": {figure: test[alpha].value(figure) for figure in FIGURES},
        }
        for name, alpha in chosen.items()
    }


def run_cell(part: dict, data: Data, rewrite: str, classes: int) -> dict[str, Any]:
    """One way to train, with all seeds."""
    found = []
    for seed in part["seeds"]:
        model = train(part["training"], data, rewrite, classes, seed)
        found.append({"seed": seed, **outcomes(model, data, part["alphas"])})
    print(f"{_classes(classes)}, {rewrite}: done", flush=True)
    return {"classes": classes, "rewrite": rewrite, "seeds": found}


def values(cell: dict, metric: str, when: str, figure: str) -> list[float]:
    """One per seed: a test figure at alpha 0 (`original`) or at the alpha that a metric has `chosen`."""
    scale = 100 if figure == "accuracy" else 1
    return [scale * seed[metric][when][figure] for seed in cell["seeds"]]


def gains(cell: dict, metric: str) -> list[float]:
    """Chosen alpha against alpha 0 by the metric that has chosen, positive where it is better."""
    sign = 1 if metric == "accuracy" else -1
    pairs = zip(*(values(cell, metric, when, metric) for when in ("chosen", "original")), strict=True)
    return [sign * (after - before) for after, before in pairs]


def alphas_of(cell: dict, metric: str) -> list[float]:
    return [seed[metric]["alpha"] for seed in cell["seeds"]]


def spread(of_seeds: list[float]) -> tuple[float, float]:
    return mean(of_seeds), stdev(of_seeds) if len(of_seeds) > 1 else 0.0


def shown(of_seeds: list[float], form: str) -> str:
    middle, deviation = spread(of_seeds)
    return f"{middle:{form}} ± {deviation:{form.lstrip('+')}}"


def print_non_iid(cells: list[dict], metric: str) -> None:
    print("\n| classes per batch | trained with | alpha 0 (%) | chosen alpha (%) | gain (points) | alpha |")
    print("|---|---|---|---|---|---|")
    for cell in cells:
        row = [shown(values(cell, metric, when, "accuracy"), ".1f") for when in ("original", "chosen")]
        row += [shown(gains(cell, metric), "+.1f"), shown(alphas_of(cell, metric), ".2f")]
        print(f"| {cell['classes']} | `{cell['rewrite']}` | " + " | ".join(row) + " |")


def print_ghost_sizes(cells: list[dict], sizes: list[int]) -> None:
    print("\n| B' | alpha 0: accuracy / cross-entropy / scaled | gain of the alpha chosen by each | those alphas |")
    print("|---|---|---|---|")
    for size, cell in zip(sizes, cells, strict=True):
        forms = dict(zip(FIGURES, (".1f", ".3f", ".3f"), strict=True))
        before = [shown(values(cell, name, "original", name), form) for name, form in forms.items()]
        gained = [shown(gains(cell, name), f"+{form}") for name, form in forms.items()]
        chosen = [shown(alphas_of(cell, name), ".2f") for name in forms]
        print(f"| {size} | " + " | ".join(" / ".join(row) for row in (before, gained, chosen)) + " |")


def plot_non_iid(cells: list[dict], metric: str, path: Path) -> None:
    figure = Figure(figsize=(8.2, 4.8), layout="constrained")
    axes = figure.subplots()
    iid, *others = cells
    for shift, when, colour in ((-0.2, "original", ORIGINAL_COLOUR), (0.2, "chosen", CHOSEN_COLOUR)):
        heights, errors = zip(*(spread(values(cell, metric, when, "accuracy")) for cell in others), strict=True)
        places = [place + shift for place in range(len(others))]
        label = "alpha 0" if when == "original" else "alpha chosen on validation images"
        bars = axes.bar(places, heights, 0.38, yerr=errors, color=colour, capsize=3, label=label)
        axes.bar_label(bars, [f"{height:.1f}" for height in heights], label_type="center", color="white")
    reference = mean(values(iid, metric, "original", "accuracy"))
    axes.axhline(reference, color=REFERENCE_COLOUR, linestyle="--", linewidth=1.3, label="plain, i.i.d., alpha 0")
    names = [f"{_classes(cell['classes'])}\n{_lines(cell['rewrite'])}" for cell in others]
    axes.set_xticks(range(len(others)), names, fontsize=8)
    axes.set_ylim(0, 102)
    axes.set_title("Batches of few classes: test accuracy (%)", loc="left")
    finish(axes)
    figure.savefig(path, dpi=150)


def _classes(number: int) -> str:
    return f"{number} class{'es' if number > 1 else ''} per batch"


def _lines(rewrite: str) -> str:
    return rewrite.replace(":", "\n").replace(",", ",\n")


def plot_ghost_sizes(cells: list[dict], sizes: list[int], path: Path) -> None:
    figure = Figure(figsize=(10.8, 4.6), layout="constrained")
    panels = (("Gain in accuracy (points)", FIGURES[:1]), ("Gain in cross-entropy (positive is better)", FIGURES[1:]))
    for axes, (title, names) in zip(figure.subplots(1, 2), panels, strict=True):
        for name, colour in zip(names, (ORIGINAL_COLOUR, CHOSEN_COLOUR), strict=False):
            heights, errors = zip(*(spread(gains(cell, name)) for cell in cells), strict=True)
            label = {"cross-entropy": "as it is", "scaled-cross-entropy": "after temperature scaling"}.get(name, name)
            axes.errorbar(sizes, heights, yerr=errors, color=colour, marker="o", capsize=3, label=label)
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel("ghost size B' in training")
        axes.set_title(title, loc="left")
        finish(axes)
    figure.savefig(path, dpi=150)


def finish(axes: Any) -> None:
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)


def study_non_iid(part: dict, folder: Path) -> dict[str, Any]:
    data = digits()
    compositions = [(rewrite, classes) for classes, rewrites in part["rewrites"].items() for rewrite in rewrites]
    cells = [run_cell(part, data, rewrite, classes) for rewrite, classes in compositions]
    print_non_iid(cells, part["choose_by"])
    plot_non_iid(cells, part["choose_by"], folder / "non-iid.png")
    return {"settings": part, "cells": cells}


def study_ghost_sizes(part: dict, images: Path, folder: Path) -> dict[str, Any]:
    data = cifar10(images, part["validation_images"])
    cells = [run_cell(part, data, f"ghost:size={size}", IID) for size in part["sizes"]]
    print_ghost_sizes(cells, part["sizes"])
    plot_ghost_sizes(cells, part["sizes"], folder / "alpha-by-ghost-size.png")
    return {"settings": part, "cells": cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10 images, for the ghost sizes")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    recipe = yaml.safe_load(arguments.recipe.read_text())
    start = time.perf_counter()
    results = {"non_iid": study_non_iid(recipe["non_iid"], arguments.output)}
    if arguments.data is None:
        print("\nThe ghost sizes are left out: they need CIFAR-10, --data FOLDER.")
    else:
        results["ghost_sizes"] = study_ghost_sizes(recipe["ghost_sizes"], arguments.data, arguments.output)
    seconds = round(time.perf_counter() - start, 1)
    (arguments.output / "results.json").write_text(json.dumps({"seconds": seconds, **results}, indent=1) + "\n")
    print(f"\n{seconds} s")


if __name__ == "__main__":
    main()
