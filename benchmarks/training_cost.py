"""A training step of each rewrite and insert against plain BatchNorm: CIFAR ResNet-20, batch 128, 32 px."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from timing import best_times, report
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import surgeon
from surgeon.cli.host import keep_heap
from surgeon.models.sources import load_model

MODEL, BATCH, SIZE, ROUNDS = "cifar-resnet20", 128, 32, 20
# MoEx and CrossNorm act in some steps only, and the best of several would be a step in which they
# do nothing. With p=1 they act in every step: the limits hold for the dearest step, not the average.
LIMITS = {
    "ghost:size=16": 1.00,
    "split": 1.08,
    "moex:p=1": 1.06,
    "crossnorm:p=1": 1.08,
    "selfnorm": 1.15,
    "mode:modes=2": 1.35,
    "mode-group:modes=2": None,
    "batch-group:channel_groups=8": 1.15,
}
AIMS = {"split": 1.05, "moex:p=1": 1.02, "crossnorm:p=1": 1.05, "selfnorm": 1.05}


def loss_of(rewrite: str, model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss as somebody who trains with the rewrite computes it."""
    if not rewrite.startswith("moex"):
        return cross_entropy
    unit = surgeon.exchange_unit(model)
    return lambda logits, labels: surgeon.exchanged_loss(cross_entropy, logits, labels, unit.last)


def training_step(rewrite: str, model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Forward, backward and SGD. For split BatchNorm, half of the batch takes each branch."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = loss_of(rewrite, model)

    def routed() -> AbstractContextManager[None]:
        return surgeon.branch(model, "halves") if rewrite == "split" else nullcontext()

    def step() -> None:
        optimiser.zero_grad()
        with routed():
            logits = model(images)
        loss(logits, labels).backward()
        optimiser.step()

    return step


def main() -> int:
    keep_heap()
    torch.manual_seed(0)
    plain = load_model(MODEL, pretrained=False).model.train()
    images, labels = torch.randn(BATCH, 3, SIZE, SIZE), torch.randint(10, (BATCH,))
    models = {"plain BatchNorm": plain}
    models |= {rewrite: surgeon.convert(plain, rewrite, inputs=(images[:2],)).train() for rewrite in LIMITS}
    steps = {name: training_step(name, model, images, labels) for name, model in models.items()}
    limits = {rewrite: limit for rewrite, limit in LIMITS.items() if limit is not None}
    title = f"{MODEL}, {SIZE} px, batch {BATCH}, {torch.get_num_threads()} threads: training step"
    return 0 if report(title, best_times(steps, ROUNDS), limits, AIMS) else 1


if __name__ == "__main__":
    sys.exit(main())
