"""What `surgeon finetune` shows while it trains: settings, a bar for the steps, a line for each epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from rich.markup import escape

from surgeon.cli import output
from surgeon.core.errors import count

if TYPE_CHECKING:
    from surgeon.results import Epoch
    from surgeon.training.recipe import SettledRecipe


def say_decided(recipe: SettledRecipe, decided: Mapping[str, str]) -> None:
    """What was left open, and by what it was decided."""
    by_reason: dict[str, list[str]] = {}
    for key, reason in decided.items():
        value = getattr(recipe, key)
        shown = " ".join(value) or "nothing" if isinstance(value, tuple) else str(value).lower()
        by_reason.setdefault(reason, []).append(f"{key} {shown}")
    for reason, values in by_reason.items():
        output.say(f"  by default     {escape(', '.join(values))} [dim]({escape(reason)})[/]")


class TerminalWatcher:
    """Shows steps as a bar and epochs as lines."""

    def __init__(self, bar: output.ProgressBar, headline: str) -> None:
        self.bar = bar
        self.headline = headline
        self.epochs = 0
        self.tell_decided: Callable[[], None] = lambda: None

    def begin(self, recipe: SettledRecipe, decided: Mapping[str, str]) -> None:
        self.epochs = recipe.epochs
        self.tell_decided = partial(say_decided, recipe, decided)

    def step(self, epoch: int, done: int, of: int, loss: float, accuracy: float, images_per_second: float) -> None:
        if self.headline:
            resumed = f", resumed at epoch {epoch}, step {done}" if (epoch, done) != (1, 1) else ""
            output.say(f"{self.headline}: {count(self.epochs, 'epoch')} of {count(of, 'step')}{resumed}")
            self.tell_decided()
            self.headline = ""
        whole = of * self.epochs
        remark = f"{images_per_second:,.0f} images/s, loss {loss:.3f}, accuracy {accuracy:.1%}"
        self.bar("training", (epoch - 1) * of + done, whole, remark)

    def epoch(self, epoch: Epoch) -> None:
        validation = ""
        if (measured := epoch.validation) is not None:
            iou = f" mean IoU {measured.iou:6.2%}, pixels" if measured.primary == "iou" else ""
            validation = f"  validation{iou} {measured.accuracy:6.2%}, cross-entropy {measured.cross_entropy:.4f}"
        output.say(
            f"epoch {epoch.number:>3}/{self.epochs}  loss {epoch.loss:.4f}  accuracy {epoch.accuracy:6.2%}{validation}"
            f"{''.join(f'  {name} {share:.0%}' for name, share in epoch.shares.items())}"
            f"  [dim]{_rates(epoch)}{epoch.images_per_second:,.0f} images/s[/]"
            + (f"  [yellow]{count(epoch.left_out, 'unreadable image')} left out[/]" if epoch.left_out else "")
        )


def _rates(epoch: Epoch) -> str:
    """The learning rates of its last step: of the backbone, and of the head if that has another."""
    backbone, head = epoch.backbone_rates[-1:], epoch.head_rates[-1:]
    if not backbone or backbone == head:
        return "".join(f"lr {rate:.3g}  " for rate in head)
    return f"lr {backbone[0]:.3g}{''.join(f', head {rate:.3g}' for rate in head)}  "
