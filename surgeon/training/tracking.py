"""Sending the curves to TensorBoard, W&B or another tool that Accelerate knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from surgeon.core.errors import SurgeonError, listing
from surgeon.metrics import in_order
from surgeon.results import Epoch
from surgeon.training.loop import Trainer, Watcher
from surgeon.training.recipe import SettledRecipe

CURVES = "surgeon"
"""What the curves are called; TensorBoard's are a folder of that name in that of the run."""


def check_tracker(name: str | None) -> None:
    """Refuse a tool that Accelerate does not know, or that is not installed: it would leave it out silently."""
    if name is None:
        return
    from accelerate.tracking import get_available_trackers
    from accelerate.utils import LoggerType

    known = [kind for kind in LoggerType.list() if kind != "all"]
    if name not in known:
        raise SurgeonError(f"--track cannot be {name!r}.", f"Choose {listing(known, 'or', limit=len(known))}.")
    if name not in get_available_trackers():
        raise SurgeonError(f"{name!r} is not installed.", f"Run pip install {name}, or leave --track out.")


@contextmanager
def tracking(trainer: Trainer, tool: str | None, recipe: SettledRecipe) -> Iterator[None]:
    """Send every epoch to the tracker that was asked for."""
    if tool is None:
        yield
        return
    accelerator, watcher = trainer.accelerator, trainer.watcher
    accelerator.init_trackers(CURVES, config={k: str(v) for k, v in recipe.model_dump().items()})
    trainer.watcher = _Tracked(watcher, accelerator)
    try:
        yield
    finally:
        accelerator.end_training()


@dataclass
class _Tracked:
    """Passes on what it is told, and logs the epochs."""

    watcher: Watcher
    accelerator: Any

    def begin(self, *args: Any) -> None:
        self.watcher.begin(*args)

    def step(self, *args: Any) -> None:
        self.watcher.step(*args)

    def epoch(self, epoch: Epoch) -> None:
        self.watcher.epoch(epoch)
        values = {"train/loss": epoch.loss, "train/accuracy": epoch.accuracy}
        values |= {f"train/{name}": share for name, share in epoch.shares.items()}
        for part, rates in (("backbone", epoch.backbone_rates), ("head", epoch.head_rates)):
            values |= {f"learning_rate/{part}": rates[-1]} if rates else {}
        if epoch.validation is not None:
            figures = {metric.key: epoch.validation.value(metric.name) for metric in in_order()}
            values |= {f"validation/{key}": value for key, value in figures.items() if value is not None}
        self.accelerator.log(values, step=epoch.number)
