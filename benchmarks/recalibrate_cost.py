"""What it costs to estimate statistics anew, as a multiple of one plain evaluation of the same images."""

from __future__ import annotations

import sys

from real_data import CIFAR10, FOLDER, RESNET20
from timing import figure

from surgeon.checkpoint import open_model
from surgeon.cli.host import keep_heap
from surgeon.commands.evaluate import run_evaluation
from surgeon.commands.recalibrate.operation import RecalibrationRequest, run_recalibration
from surgeon.measuring.preparation import InferenceRequest
from surgeon.models.origin import LoadedModel

ROUNDS, MOST = 5, 1.5
REAL = FOLDER.is_dir()
MODEL, IMAGES = ("cifar-resnet20", 2000) if REAL else ("digits-resnet8", 449)
REQUEST = InferenceRequest(data=str(CIFAR10) if REAL else "digits", split="test", limit=IMAGES)


def network() -> LoadedModel:
    return open_model(MODEL, weights=RESNET20 if REAL else None)


def evaluation() -> float:
    """Seconds of one evaluation, decoding included and loading the network left out."""
    return run_evaluation(network(), REQUEST, lambda *_: None).seconds


def estimation() -> float:
    """Seconds until the network has its new statistics, decoding included; the report that follows is left out."""
    return run_recalibration(network(), RecalibrationRequest(REQUEST), lambda *_: None).seconds_estimating


def main() -> int:
    keep_heap()
    evaluation()  # warm up
    one = estimating = float("inf")
    for _ in range(ROUNDS):  # in turn, so that a slow moment hits both alike
        one, estimating = min(one, evaluation()), min(estimating, estimation())
    ratio = estimating / one
    title = f"{MODEL}, {IMAGES} images of {'CIFAR-10' if REAL else 'digits'}"
    print(f"{title}; one evaluation: {one:.2f} s")
    return 0 if figure(title, "statistics estimated anew, evaluations", ratio, at_most=MOST) else 1


if __name__ == "__main__":
    sys.exit(main())
