"""What 75 corruptions cost: their time over that of 75 plain evaluations of the same network on the same images.

Images are decoded once for all conditions, so that the corruptions themselves may cost 0.3 of an evaluation each:

    python benchmarks/robustness_cost.py cifar-resnet20 --data cifar10 --limit 1000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from surgeon import checkpoint
from surgeon.commands.evaluate import run_evaluation
from surgeon.commands.robustness.operation import RobustnessRequest, run_robustness
from surgeon.conditions.base import ask
from surgeon.core.progress import say_nothing
from surgeon.measuring.preparation import InferenceRequest

WANTED = 1.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--limit", type=int, default=1000)
    arguments = parser.parse_args()
    loaded = checkpoint.open_model(arguments.model, weights=arguments.weights, pretrained=arguments.weights is None)
    request = InferenceRequest(data=arguments.data, limit=arguments.limit)
    run_evaluation(loaded, request, say_nothing)  # the first one is slower
    start = time.perf_counter()
    run_evaluation(loaded, request, say_nothing)
    once = time.perf_counter() - start
    start = time.perf_counter()
    run_robustness([loaded], RobustnessRequest(request), say_nothing)
    seconds, number = time.perf_counter() - start, len(ask(["clean", "corruptions"]))
    ratio = seconds / (number * once)
    print(f"{once:.2f} s for an evaluation, {seconds:.1f} s for {number} conditions: {ratio:.2f} evaluations each")
    print(f"wanted: at most {WANTED}")


if __name__ == "__main__":
    main()
