"""What a sweep of lambda over a split network costs, as a multiple of one plain evaluation of the same images."""

from __future__ import annotations

import sys

import torch
from real_data import CIFAR10, FOLDER, RESNET20
from timing import figure

import surgeon
from surgeon.checkpoint import open_model
from surgeon.cli.host import keep_heap
from surgeon.commands.evaluate import run_evaluation
from surgeon.commands.sweep.operation import SweepRequest, run_sweep
from surgeon.measuring.preparation import InferenceRequest
from surgeon.measuring.values import evenly_spaced
from surgeon.models.origin import LoadedModel
from surgeon.results import Method, Sweep
from surgeon.surgery.branches import split_layers

VALUES, ROUNDS, MOST, AIM = 11, 5, 2.4, 2.2
REAL = FOLDER.is_dir()
MODEL, IMAGES = ("cifar-resnet20", 2000) if REAL else ("digits-resnet8", 449)
REQUEST = InferenceRequest(data=str(CIFAR10) if REAL else "digits", split="test", limit=IMAGES)


def split_network() -> LoadedModel:
    """A trained network, split, with an auxiliary branch that differs: only then is there something to mix."""
    loaded = open_model(MODEL, weights=RESNET20 if REAL else None)
    loaded.model = surgeon.convert(loaded.model, "split")
    torch.manual_seed(0)
    with torch.no_grad():
        for layer in split_layers(loaded.model).values():
            assert layer.aux is not None
            layer.aux.weight.mul_(1 + 0.1 * torch.randn(layer.num_features))
            layer.aux.running_mean.add_(0.2 * layer.running_var.sqrt() * torch.randn(layer.num_features))
    return loaded


def evaluation() -> float:
    """Seconds of one evaluation, decoding included and loading the network left out."""
    return run_evaluation(split_network(), REQUEST, lambda *_: None).seconds


def sweep() -> Sweep:
    shares = tuple(evenly_spaced(0, 1, VALUES))
    wanted = SweepRequest(REQUEST, shares, axis="lambda", metric="cross-entropy", method=Method.GRID)
    return run_sweep(split_network(), wanted, lambda *_: None)


def main() -> int:
    keep_heap()
    evaluation()  # warm up
    one = all_values = float("inf")
    for _ in range(ROUNDS):  # in turn, so that a slow moment hits both alike
        one = min(one, evaluation())
        swept = sweep()
        all_values = min(all_values, swept.seconds)
    passes, ratio = swept.image_forwards / IMAGES, all_values / one
    title = f"{MODEL}, split, {IMAGES} images of {'CIFAR-10' if REAL else 'digits'}, {VALUES} values of lambda"
    print(f"{title}; one evaluation: {one:.2f} s")
    kept = figure(title, "evaluations", ratio, at_most=MOST, aim=AIM)
    return 0 if figure(title, "passes per image", passes, at_most=2, noise=0) and kept else 1


if __name__ == "__main__":
    sys.exit(main())
