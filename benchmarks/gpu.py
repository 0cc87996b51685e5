"""On a GPU, against plain BatchNorm: evaluation and training by Triton's kernels, by torch's formulas, compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from unittest.mock import patch

import timm
import torch
from timing import best_times, report
from torch import nn
from torch.nn.functional import cross_entropy

import surgeon
from surgeon.layers import kernels, triton

DEVICE, SIZE = "cuda", 224
NETWORKS = ("resnet50", "efficientnet_b0", "mobilenetv3_large_100", "densenet121")
COMPILED = ("resnet50",)
EVALUATED = ("example-weighted:alpha=0.05", "instance-aware:k=8")
TRAINED = ("ghost:size=16", "ghost:size=32", "batch-group:channel_groups=8")
BATCHES, TRAINING_BATCH, ROUNDS = (1, 16, 128), 64, 20
PRECISIONS = (torch.float32, torch.bfloat16)
"""The second by autocast, as training does it."""


def finished(run: Callable[[], object]) -> Callable[[], None]:
    """Until the GPU has done it."""

    def wait() -> None:
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    return wait


def by_formula(run: Callable[[], object]) -> Callable[[], object]:
    """Without Triton's kernels."""

    def without() -> object:
        with patch.object(kernels, "on_gpu", lambda _: False):
            return run()

    return without


def evaluation(model: nn.Module, images: torch.Tensor, precision: torch.dtype) -> Callable[[], object]:
    def evaluate() -> object:
        with torch.inference_mode(), torch.autocast(DEVICE, precision, enabled=precision is not torch.float32):
            return model(images)

    return evaluate


def training_step(model: nn.Module, images: torch.Tensor, precision: torch.dtype) -> Callable[[], object]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    labels = torch.randint(10, (len(images),), device=DEVICE)

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast(DEVICE, precision, enabled=precision is not torch.float32):
            loss = cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()

    return step


def measure(
    title: str, work: Callable[..., Callable[[], object]], plain: nn.Module, specs: tuple[str, ...], *given: object
) -> None:
    """Plain BatchNorm against each rewrite, with Triton's kernels and without."""
    runs = {"plain BatchNorm": finished(work(plain, *given))}
    for spec in specs:
        run = work(surgeon.convert(plain, spec).train(plain.training), *given)
        runs[f"{spec}, Triton"] = finished(run)
        runs[f"{spec}, torch"] = finished(by_formula(run))
    report(title, best_times(runs, ROUNDS), {})


def measure_compiled(title: str, plain: nn.Module, images: torch.Tensor) -> None:
    """torch.compile makes kernels of its own of the formulas."""
    runs = {
        name: finished(evaluation(torch.compile(model), images, torch.float32))
        for name, model in {"plain BatchNorm": plain, EVALUATED[0]: surgeon.convert(plain, EVALUATED[0])}.items()
    }
    report(title, best_times(runs, ROUNDS), {})


def main() -> int:
    if DEVICE == "cuda" and not torch.cuda.is_available():
        print("There is no GPU that torch can use here: run this where there is one.")
        return 2
    where = torch.cuda.get_device_name() if DEVICE == "cuda" else DEVICE
    print(f"torch {torch.__version__}, {where}, Triton {'installed' if triton.installed() else 'not installed'}")
    for name in NETWORKS:
        for memory_format in (torch.contiguous_format, torch.channels_last):
            layout = "channels-last" if memory_format is torch.channels_last else "NCHW"
            plain = timm.create_model(name, num_classes=10).to(DEVICE, memory_format=memory_format)
            for precision in PRECISIONS:
                about = f"{name}, {SIZE} px, {layout}, {str(precision).removeprefix('torch.')}"
                for batch in BATCHES:
                    images = torch.randn(batch, 3, SIZE, SIZE, device=DEVICE).contiguous(memory_format=memory_format)
                    measure(
                        f"{about}, batch {batch}: evaluation", evaluation, plain.eval(), EVALUATED, images, precision
                    )
                    if batch == BATCHES[-1] and name in COMPILED and precision is torch.float32:
                        measure_compiled(f"{about}, batch {batch}: evaluation, compiled", plain.eval(), images)
                images = torch.randn(TRAINING_BATCH, 3, SIZE, SIZE, device=DEVICE)
                images = images.contiguous(memory_format=memory_format)
                title = f"{about}, batch {TRAINING_BATCH}: training step"
                measure(title, training_step, plain.train(), TRAINED, images, precision)
    if triton.failure():
        print(f"Triton has failed, so torch computed instead: {triton.failure()}")
    return 1 if triton.failure() else 0


if __name__ == "__main__":
    sys.exit(main())
