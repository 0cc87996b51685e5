"""What a sweep and test-time augmentation cost, as multiples of one plain evaluation of the same images."""

from __future__ import annotations

import sys
from dataclasses import replace

from real_data import CIFAR10, RESNET20, leave_unless_there
from timing import figure

import surgeon
from surgeon.checkpoint import open_model
from surgeon.cli.host import keep_heap
from surgeon.commands.evaluate import run_evaluation
from surgeon.commands.sweep.operation import SweepRequest, run_sweep
from surgeon.measuring.engine import measure
from surgeon.measuring.keeping import only_scores
from surgeon.measuring.preparation import InferenceRequest, prepare
from surgeon.measuring.values import evenly_spaced
from surgeon.metrics import compare_scores, metrics
from surgeon.report.wording import time_text
from surgeon.results import Method, Sweep

MODEL, IMAGES, VALUES = "cifar-resnet20", 2000, 21
METRICS = ("accuracy", "cross-entropy")
VIEWS, IMAGES_WITH_VIEWS = 162, 128
MOST_OF_A_VIEW, AIM_OF_A_VIEW = 1.0, 0.8
MOST, AIMS = {Method.RACE: 3.7, Method.GRID: 22.5}, {Method.RACE: 3.5, Method.GRID: 18.0}


def request(images: int, tta: str | None = None) -> InferenceRequest:
    return InferenceRequest(data=str(CIFAR10), split="test", limit=images, tta=tta)


def evaluation_seconds(images: int, tta: str | None = None) -> float:
    """Of one evaluation, decoding included and loading the network left out."""
    return run_evaluation(open_model(MODEL, weights=RESNET20), request(images, tta), lambda *_: None).seconds


def sweep(method: Method, metric: str) -> Sweep:
    wanted = SweepRequest(request(IMAGES), tuple(evenly_spaced(0, 0.2, VALUES)), metric=metric, method=method)
    return run_sweep(open_model(MODEL, weights=RESNET20), wanted, lambda *_: None)


def report_sweeps(metric: str) -> bool:
    """Times of both methods, with evaluations in between, and whether they choose alike."""
    found, one = {}, evaluation_seconds(IMAGES)
    for method in Method:
        found[method] = sweep(method, metric)
        one = min(one, evaluation_seconds(IMAGES))
    title = f"{MODEL}, {IMAGES} CIFAR-10 images, {VALUES} values of alpha by {metric}"
    print(f"{title}; one evaluation: {one:.2f} s")
    kept = True
    for method, limit in MOST.items():
        kept &= figure(
            title, f"{method.value}, evaluations", found[method].seconds / one, at_most=limit, aim=AIMS[method]
        )
        print(f"    {found[method].image_forwards / IMAGES:.2f} passes{time_text(found[method].spent)}")
    return kept & choices_agree(metric, found[Method.RACE].chosen, found[Method.GRID].chosen)


def choices_agree(metric: str, race: float, grid: float) -> bool:
    """Whether the race's choice is the grid's, or cannot be told from it on all images."""
    task = prepare(open_model(MODEL, weights=RESNET20), request(IMAGES))
    networks = {"race": race, "grid": grid}
    variants = {
        name: replace(task.variant, model=surgeon.convert(task.model, "example-weighted", alpha=alpha))
        for name, alpha in networks.items()
    }
    scores = measure(variants, task.batches(), only_scores).kept
    compared = compare_scores(metrics[metric], scores["race"], scores["grid"])
    equal = race == grid or compared.within_noise
    print(
        f"  race chooses {race:g}, grid {grid:g}; difference {compared.difference:+.5f} "
        f"(95%: {compared.low:+.5f} to {compared.high:+.5f}): {'equal' if equal else 'NOT EQUAL'}"
    )
    return equal


def report_views() -> bool:
    """Seconds of all views of an image against one view, in evaluations with the same settings."""
    one = evaluation_seconds(IMAGES) / IMAGES
    many = evaluation_seconds(IMAGES_WITH_VIEWS, "cifar-flip-crop") / IMAGES_WITH_VIEWS
    one = min(one, evaluation_seconds(IMAGES) / IMAGES)
    title = f"cifar-flip-crop, {VIEWS} views"
    print(f"{title}; one view of an image: {1000 * one:.2f} ms")
    ratio = many / (VIEWS * one)
    return figure(title, "of as many single views", ratio, at_most=MOST_OF_A_VIEW, aim=AIM_OF_A_VIEW)


def main() -> int:
    leave_unless_there()
    keep_heap()
    kept = [report_sweeps(metric) for metric in METRICS]
    return 0 if all([*kept, report_views()]) else 1


if __name__ == "__main__":
    sys.exit(main())
