"""The learning rate of every step: timm's schedules, once or in cycles that each end with a snapshot."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import nn

from surgeon.training.recipe import SettledRecipe


class Schedule:
    """Sets the learning rate of a step; it remembers nothing, so training can go on anywhere."""

    def __init__(self, optimizer: Any, recipe: SettledRecipe, steps: int) -> None:
        from timm.scheduler.cosine_lr import CosineLRScheduler
        from timm.scheduler.multistep_lr import MultiStepLRScheduler

        self.cycle = steps // recipe.snapshots
        warmup = round(self.cycle * recipe.warmup_epochs / (recipe.epochs / recipe.snapshots))
        shared: dict[str, Any] = {
            "t_in_epochs": False,
            "warmup_t": warmup,
            "warmup_lr_init": recipe.lr / (warmup + 1),
            "warmup_prefix": True,
        }
        if recipe.schedule == "cosine":
            # Of a single step timm remarks that its rate does not fall; a second one, never reached, changes nothing.
            self._scheduler: Any = CosineLRScheduler(optimizer, t_initial=max(2, self.cycle - warmup), **shared)
        else:
            shares = recipe.milestones if recipe.schedule == "step" else ()
            # timm divides one step early.
            milestones = [round(share * (self.cycle - warmup)) + 1 for share in shares]
            self._scheduler = MultiStepLRScheduler(optimizer, decay_t=milestones, decay_rate=0.1, **shared)

    def set(self, step: int) -> None:
        self._scheduler.step_update(step % self.cycle)


class Rates:
    """The learning rates of a step: of the backbone, whose layers may differ, the highest, and of the head."""

    def __init__(self, optimizer: Any, head: Collection[nn.Parameter]) -> None:
        # By number: a state that is loaded puts other groups in the place of these.
        groups = [{parameter in head for parameter in group["params"]} for group in optimizer.param_groups]
        self._backbone = [number for number, of_head in enumerate(groups) if False in of_head]
        self._head = [number for number, of_head in enumerate(groups) if True in of_head]

    def now(self, optimizer: Any) -> tuple[float | None, float | None]:
        """Of backbone and head; None for what is frozen."""
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        backbone, head = (max((rates[n] for n in numbers), default=None) for numbers in (self._backbone, self._head))
        return backbone, head


def make_optimizer(groups: list[dict[str, Any]], recipe: SettledRecipe) -> Any:
    """An optimiser of timm's; without momentum there is none to be Nesterov's."""
    from timm.optim import create_optimizer_v2, get_optimizer_info

    chosen = get_optimizer_info(recipe.optimizer)
    plain: dict[str, Any] = (
        {"nesterov": False} if recipe.momentum == 0 and "nesterov" in (chosen.defaults or {}) else {}
    )
    return create_optimizer_v2(
        groups, opt=recipe.optimizer, lr=recipe.lr, weight_decay=recipe.weight_decay, momentum=recipe.momentum, **plain
    )
