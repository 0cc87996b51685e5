"""A training step on PGD's images against plain steps: k steps of the attack are k passes, the update is one more.

Both are steps of the trainer's objective, forward and backward, without decoding and without the optimiser. The passes
of an attack need no gradients of weights, so a step on attacked images could be cheaper than k + 1 plain ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from timing import best_times, report

from surgeon.augment.pipeline import Augmentation
from surgeon.cli.host import keep_heap
from surgeon.losses.base import Copy, ask
from surgeon.models.origin import Preprocessing
from surgeon.models.sources import load_model
from surgeon.training.copies import Copies, plan_copies
from surgeon.training.network import memory_format
from surgeon.training.objective import Draws, Given, Objective
from surgeon.training.recipe import check_recipe

NETWORKS = (("cifar-resnet20", 32, 64, 8), ("mobilenetv3_small_100", 64, 64, 8))
"""Name, pixels, images in a batch, rounds; the second has depthwise convolutions."""
STEPS, LIMIT = (1, 3, 7), 1.05
NOTHING = Augmentation(geometry=lambda image: image)


def step_of(objective: Objective, images: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    """Forward and backward; gradients do not add up."""
    given = Given((images,), labels, torch.arange(len(labels)))

    def step() -> None:
        objective.model.zero_grad(set_to_none=True)
        objective(objective.model, given, Draws(torch.Generator().manual_seed(0))).loss.backward()

    return step


def repeated(step: Callable[[], None], times: int) -> Callable[[], None]:
    """As long as what it is compared with, so that both have the same share of a busy machine's slow moments."""

    def steps() -> None:
        for _ in range(times):
            step()

    return steps


def kept(name: str, size: int, batch: int, rounds: int) -> bool:
    """Whether the limit is kept with all numbers of steps."""
    model = load_model(name, pretrained=False).model.train()
    form = memory_format(model)
    model.to(memory_format=form)
    torch.manual_seed(0)
    images = torch.randn(batch, 3, size, size).contiguous(memory_format=form)
    labels = torch.randint(10, (batch,))
    preprocessing = Preprocessing(input_size=(3, size, size), mean=(0.5,) * 3, std=(0.25,) * 3)
    classes = model(images[:2]).shape[1]
    plain = Objective(model, ask(()), Copies({Copy.WEAK: NOTHING}), classes)
    plain_step, fine = step_of(plain, images, labels), True
    for number in STEPS:
        recipe = check_recipe({"attack": f"pgd:steps={number}"}, "the benchmark")
        copies = plan_copies(recipe, model, preprocessing, branches=False)
        attacked = f"PGD with {number} steps, and an update"
        alternatives = {
            f"{number + 1} plain steps": repeated(plain_step, number + 1),
            attacked: step_of(Objective(model, ask(recipe.loss), copies, classes), images, labels),
        }
        title = f"{name}, {size} px, batch {batch}, {torch.get_num_threads()} threads: forward and backward"
        fine &= report(title, best_times(alternatives, rounds), {attacked: LIMIT})
    return fine


def main() -> int:
    keep_heap()
    verdicts = [kept(*network) for network in NETWORKS]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
