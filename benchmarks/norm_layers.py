"""The norm layers of networks alone, in evaluation: CPU time on one thread, for a machine too busy for whole networks.

Of each kind of layer the least time of several; their sum is set against plain BatchNorm and activation. `network` is
what that makes of the time of the whole network.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import timm
import torch
from torch import nn

import surgeon
from surgeon.cli.host import keep_heap

MODELS = (
    "efficientnet_b0", "mobilenetv3_large_100", "regnety_008", "efficientnet_lite0", "resnet50", "densenet121",
)  # fmt: skip
SPECS = ("example-weighted:alpha=0.05", "instance-aware:k=8")
SIZE, BATCHES, ROUNDS = 224, (1, 8), 9


def least_seconds(alternatives: Sequence[Callable[[], object]], rounds: int, repeats: int) -> list[float]:
    """Of this thread alone, whatever else runs on the machine."""
    best = [float("inf")] * len(alternatives)
    for _ in range(rounds):
        for i, run in enumerate(alternatives):
            run()
            start = time.thread_time()
            for _ in range(repeats):
                run()
            best[i] = min(best[i], (time.thread_time() - start) / repeats)
    return best


def kinds_of_layer(model: nn.Module, images: torch.Tensor) -> dict[tuple[str, ...], list[tuple[str, torch.Size]]]:
    """Layers by shape of input and by activation."""
    found: dict[tuple[str, ...], list[tuple[str, torch.Size]]] = {}
    handles = []
    for name, layer in model.named_modules():
        if isinstance(layer, nn.BatchNorm2d):

            def note(layer: nn.Module, inputs: tuple[torch.Tensor], name: str = name) -> None:
                kind = str(tuple(inputs[0].shape)), str(getattr(layer, "act", ""))
                found.setdefault(kind, []).append((name, inputs[0].shape))

            handles.append(layer.register_forward_pre_hook(note))
    model(images)
    for handle in handles:
        handle.remove()
    return found


def main() -> int:
    keep_heap()
    torch.set_num_threads(1)
    for name in MODELS:
        plain = timm.create_model(name).eval().requires_grad_(False)
        models = [plain, *(surgeon.convert(plain, spec).eval() for spec in SPECS)]
        for layout, memory_format in (("NCHW", torch.contiguous_format), ("channels-last", torch.channels_last)):
            for model in models:
                model.to(memory_format=memory_format)
            for batch in BATCHES:
                images = torch.randn(batch, 3, SIZE, SIZE).contiguous(memory_format=memory_format)
                sums = [0.0] * len(models)
                with torch.inference_mode():
                    (whole,) = least_seconds([partial(plain, images)], 3, 1)
                    for layers in kinds_of_layer(plain, images).values():
                        first, shape = layers[0]
                        x = torch.randn(shape).contiguous(memory_format=memory_format)
                        calls = [partial(model.get_submodule(first), x) for model in models]
                        seconds = least_seconds(calls, ROUNDS, max(1, 300_000 // x.numel()))
                        sums = [total + len(layers) * own for total, own in zip(sums, seconds, strict=True)]
                ratios = ", ".join(
                    f"{spec.partition(':')[0]} {own / sums[0]:.2f}x (network {1 + (own - sums[0]) / whole:.3f}x)"
                    for spec, own in zip(SPECS, sums[1:], strict=True)
                )
                print(f"{name}, {layout}, batch {batch}: norm layers {ratios}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
