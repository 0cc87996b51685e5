"""Train on minibatches of few classes and with several ghost sizes, and measure what alpha gains without retraining."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import yaml
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import surgeon
from surgeon.data.digits import load_digits
from surgeon.models.sources import load_model
from surgeon.results import Sweep
from surgeon.sweeping.values import evenly_spaced

FIGURES = ("accuracy", "cross-entropy", "scaled-cross-entropy")
ORIGINAL_COLOUR, CHOSEN_COLOUR, REFERENCE_COLOUR = "#1f6f8b", "#c77d2e", "#b8324a"  # as in surgeon/report/curves.py


def batches(labels: Tensor, classes: int, size: int, steps: int) -> Iterator[Tensor]:
    """Indices of random images of `classes` classes, drawn anew for each batch; images are drawn with replacement."""
    of_class = [(labels == label).nonzero().flatten() for label in labels.unique()]
    for _ in range(steps):
        pool = torch.cat([of_class[label] for label in torch.randperm(len(of_class))[:classes].tolist()])
        yield pool[torch.randint(len(pool), (size,))]


def train(recipe: dict, rewrite: str, classes: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = load_model(recipe["architecture"], pretrained=False).model
    if rewrite != "plain":
        model = surgeon.convert(model, rewrite, inplace=True)
    images, labels = load_digits("train")
    settings = recipe["training"]
    optimiser = torch.optim.SGD(model.parameters(), **settings["optimiser"])
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings["optimiser"]["lr"], total_steps=settings["steps"]
    )
    model.train()
    for batch in batches(labels, classes, settings["batch_size"], settings["steps"]):
        optimiser.zero_grad()
        cross_entropy(model(images[batch]), labels[batch]).backward()
        optimiser.step()
        schedule.step()
    return model.eval()


def choose_alpha(recipe: dict, model: nn.Module, metric: str) -> Sweep:
    """Choose alpha on validation images; temperatures are fitted there too, and test images only measure."""
    validation, test = ([load_digits(split)] for split in ("validation", "test"))
    span = recipe["alphas"]
    alphas = evenly_spaced(span["first"], span["last"], span["count"])
    return surgeon.sweep(model, validation, alphas=alphas, metric=metric, confirm_on=test)


def outcome(found: Sweep) -> dict[str, Any]:
    """Test figures at alpha 0 and at the alpha that was chosen."""
    original, chosen = found.settings[0], found.settings[1] if found.chosen != found.original else found.settings[0]
    return {
        "alpha": found.chosen,
        "original": {name: original.reported.value(name) for name in FIGURES},
        "chosen": {name: chosen.reported.value(name) for name in FIGURES},
    }


def run_cell(recipe: dict, seeds: list[int], rewrite: str, classes: int, metrics: list[str]) -> dict[str, list[dict]]:
    """The outcomes of all seeds, by the metric that alpha was chosen by."""
    outcomes: dict[str, list[dict]] = {metric: [] for metric in metrics}
    for seed in seeds:
        model = train(recipe, rewrite, classes, seed)
        for metric in metrics:
            outcomes[metric].append({"seed": seed, **outcome(choose_alpha(recipe, model, metric))})
    return outcomes


def spread(values: list[float]) -> tuple[float, float]:
    return mean(values), stdev(values) if len(values) > 1 else 0.0


def shown(values: list[float], form: str) -> str:
    middle, deviation = spread(values)
    return f"{middle:{form}} ± {deviation:{form.lstrip('+')}}"


def over_seeds(outcomes: list[dict], read: Callable[[dict], float]) -> list[float]:
    return [read(one) for one in outcomes]


def accuracies(outcomes: list[dict], when: str) -> list[float]:
    return over_seeds(outcomes, lambda one: 100 * one[when]["accuracy"])


def gains(outcomes: list[dict], metric: str) -> list[float]:
    """Chosen alpha against alpha 0, positive where it is better."""
    sign = 100 if metric == "accuracy" else -1
    return over_seeds(outcomes, lambda one: sign * (one["chosen"][metric] - one["original"][metric]))


def print_tables(results: dict) -> None:
    print("\n| classes per batch | trained with | alpha 0 (%) | chosen alpha (%) | gain (points) | alpha |")
    print("|---|---|---|---|---|---|")
    for cell in results["non_iid"]:
        seeds = cell["outcomes"]
        figures = [shown(accuracies(seeds, when), ".1f") for when in ("original", "chosen")]
        figures += [shown(gains(seeds, "accuracy"), "+.1f"), shown([one["alpha"] for one in seeds], ".2f")]
        print(f"| {cell['classes']} | `{cell['rewrite']}` | " + " | ".join(figures) + " |")
    print("\n| B' | alpha 0: accuracy / cross-entropy / scaled | gain of the alpha chosen by each | those alphas |")
    print("|---|---|---|---|")
    for cell in results["ghost_sizes"]:
        by = cell["outcomes"]
        first = next(iter(by.values()))
        before = [shown(accuracies(first, "original"), ".1f")]
        before += [shown([one["original"][name] for one in first], ".3f") for name in FIGURES[1:]]
        gained = [shown(gains(by[name], name), "+.1f" if name == "accuracy" else "+.3f") for name in by]
        alphas = [shown([one["alpha"] for one in by[name]], ".2f") for name in by]
        print(f"| {cell['size']} | " + " | ".join(" / ".join(row) for row in (before, gained, alphas)) + " |")


def plot_non_iid(results: dict, path: Path) -> None:
    compositions = sorted({cell["classes"] for cell in results["non_iid"]}, reverse=True)
    figure = Figure(figsize=(5.4 * len(compositions), 4.6), layout="constrained")
    for axes, classes in zip(
        figure.subplots(1, len(compositions), squeeze=False, sharey=True)[0], compositions, strict=True
    ):
        cells = [cell for cell in results["non_iid"] if cell["classes"] == classes]
        for shift, when, colour in ((-0.2, "original", ORIGINAL_COLOUR), (0.2, "chosen", CHOSEN_COLOUR)):
            heights, errors = zip(*(spread(accuracies(cell["outcomes"], when)) for cell in cells), strict=True)
            places = [place + shift for place in range(len(cells))]
            label = "alpha 0" if when == "original" else "alpha chosen on validation"
            axes.bar(places, heights, 0.38, yerr=errors, color=colour, capsize=3, label=label)
        reference = mean(accuracies(results["ghost_sizes"][-1]["outcomes"]["accuracy"], "original"))
        axes.axhline(reference, color=REFERENCE_COLOUR, linestyle="--", linewidth=1.3, label="plain, i.i.d. batches")
        names = [cell["rewrite"].replace(":", "\n").replace(",", ",\n") for cell in cells]
        axes.set_xticks(range(len(cells)), names, fontsize=8)
        axes.set_ylim(0, 105)
        axes.set_title(f"{classes} class{'es' if classes > 1 else ''} per batch: test accuracy (%)", loc="left")
        finish(axes)
    figure.savefig(path, dpi=150)


def plot_ghost_sizes(results: dict, path: Path) -> None:
    cells = results["ghost_sizes"]
    sizes = [cell["size"] for cell in cells]
    figure = Figure(figsize=(10.8, 4.6), layout="constrained")
    panels = (("Gain in accuracy (points)", FIGURES[:1]), ("Gain in cross-entropy (positive is better)", FIGURES[1:]))
    for axes, (title, names) in zip(figure.subplots(1, 2), panels, strict=True):
        for name, colour in zip(names, (ORIGINAL_COLOUR, CHOSEN_COLOUR), strict=False):
            heights, errors = zip(*(spread(gains(cell["outcomes"][name], name)) for cell in cells), strict=True)
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
    axes.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=1)


def study(recipe: dict) -> dict:
    results: dict[str, Any] = {"recipe": recipe, "non_iid": [], "ghost_sizes": []}
    part = recipe["ghost_sizes"]
    for size in part["sizes"]:
        outcomes = run_cell(recipe, part["seeds"], f"ghost:size={size}", part["classes_per_batch"], part["choose_by"])
        results["ghost_sizes"].append({"size": size, "outcomes": outcomes})
        print(f"i.i.d., ghost {size}: done", flush=True)
    part = recipe["non_iid"]
    for classes in part["classes_per_batch"]:
        for rewrite in part["rewrites"]:
            outcomes = run_cell(recipe, part["seeds"], rewrite, classes, [part["choose_by"]])
            results["non_iid"].append({"classes": classes, "rewrite": rewrite, "outcomes": outcomes[part["choose_by"]]})
            print(f"{classes} classes, {rewrite}: done", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    results = study(yaml.safe_load(arguments.recipe.read_text()))
    results["seconds"] = round(time.perf_counter() - start, 1)
    (arguments.output / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print_tables(results)
    plot_non_iid(results, arguments.output / "non-iid.png")
    plot_ghost_sizes(results, arguments.output / "alpha-by-ghost-size.png")
    print(f"\n{results['seconds']} s")


if __name__ == "__main__":
    main()
