"""The training loop.

Everything random in a step follows from the recipe's seed and the step's number, so a run that is
interrupted and resumed ends with the same weights, to the bit on a CPU, as one that was not.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from surgeon.core.errors import ExitCode, SurgeonError, listing
from surgeon.core.processes import Processes
from surgeon.data.seeding import seed_from
from surgeon.data.transforms import normalise
from surgeon.layers.units import training_units
from surgeon.metrics import Metrics
from surgeon.models.origin import Preprocessing
from surgeon.results import Epoch
from surgeon.training.feeding import Feed
from surgeon.training.images import FEWEST_IMAGES, TrainingBatch
from surgeon.training.network import train_mode
from surgeon.training.objective import Draws, Given, Objective, Outcome
from surgeon.training.recipe import SettledRecipe
from surgeon.training.running import Running
from surgeon.training.schedule import Rates, Schedule
from surgeon.training.state import STATE, State, load_state, save_state

SECONDS_BETWEEN_SAVES = 120.0


class Watcher(Protocol):
    """Who is told how training goes."""

    def begin(self, recipe: SettledRecipe, decided: Mapping[str, str]) -> None:
        """Before the first step: what is going to be done, and which keys were decided why."""

    def step(self, epoch: int, done: int, of: int, loss: float, accuracy: float, images_per_second: float) -> None: ...

    def epoch(self, epoch: Epoch) -> None: ...


@dataclass
class Trainer:
    """One run. `validate` measures a network on the validation images, `snapshot` saves a member."""

    model: nn.Module
    objective: Objective
    optimizer: Any
    schedule: Schedule
    rates: Rates
    accelerator: Any
    processes: Processes
    recipe: SettledRecipe
    feed: Feed
    preprocessing: Preprocessing
    folder: Path
    validate: Callable[[nn.Module], Metrics]
    snapshot: Callable[[nn.Module, int], None]
    watcher: Watcher
    should_stop: Callable[[], bool]
    memory_format: torch.memory_format = torch.contiguous_format
    step: int = 0
    epochs: list[Epoch] = field(default_factory=list)
    running: Running = field(default_factory=Running)
    seconds: float = 0.0
    ema: Any = None

    @property
    def steps_per_epoch(self) -> int:
        return self.feed.steps_per_epoch

    @property
    def steps(self) -> int:
        return self.steps_per_epoch * self.recipe.epochs

    @property
    def outcome(self) -> nn.Module:
        """The network that counts: the averaged one, if there is one."""
        return self.ema.module if self.ema is not None else self.model

    def fit(self) -> None:
        """Train from where the run is to its end."""
        with warnings.catch_warnings():
            # What torch recommends in its place makes statistics equal when training begins, also of a resumed run.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            network, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)
        train_mode(self.model, self.recipe)
        if self.recipe.rounding_seed is not None:
            self._refuse_order_dependent()
        last = saved = time.perf_counter()
        for batch in self.feed.batches(self.objective.copies, self.step, self.steps):
            if self._anywhere(isinstance(batch, SurgeonError)):
                self.processes.gather(lambda batch=batch: _raise_error(batch))  # type: ignore[misc]
            assert isinstance(batch, TrainingBatch)
            loss, outcomes = self._take_step(network, batch)
            self.step += 1
            now = time.perf_counter()
            self.running.add(loss, outcomes, batch, now - last)
            last = now
            self._report_step(loss)
            epoch_ends = self.step % self.steps_per_epoch == 0
            due = self._anywhere(now - saved > SECONDS_BETWEEN_SAVES)
            if epoch_ends:
                self._refuse_broken_weights()
                self._end_epoch()
            stopping = self._anywhere(self.should_stop())
            if epoch_ends or stopping or due:
                self._refuse_broken_weights()
                self.seconds += time.perf_counter() - saved
                saved = time.perf_counter()
                self._save()
            if stopping:
                raise KeyboardInterrupt
            last = time.perf_counter()

    def _refuse_order_dependent(self) -> None:
        """Images that change places within a batch would then differ by more than rounding errors."""
        on_batches = any(one.batch or one.mixing for one in self.objective.copies.augmentations.values())
        found = {
            "augmentations of batches": on_batches,
            "an attack": self.recipe.attack is not None,
            "accumulate": self.recipe.accumulate > 1,
            "rewrites or inserts that draw in training": any(True for _ in training_units(self.model)),
        }
        if named := [what for what, is_there in found.items() if is_there]:
            raise SurgeonError(
                f"rounding_seed cannot go with {listing(named)}: they depend on an image's position in its "
                "batch, so more than rounding would change."
            )

    def _take_step(self, network: nn.Module, batch: TrainingBatch) -> tuple[float, list[Outcome]]:
        draws = self._seed_step()
        self.schedule.set(self.step)
        self.running.add_rates(*self.rates.now(self.optimizer))
        # Unreadable images may have left too few for all parts.
        parts = min(self.recipe.accumulate, len(batch.labels) // FEWEST_IMAGES)
        outcomes = []
        total = 0.0
        for number in range(parts):
            images, unlabelled = (
                tuple(self._prepared(copy.tensor_split(parts)[number]) for copy in of_kind)
                for of_kind in (batch.copies, batch.unlabelled)
            )
            labels, indices = (numbers.tensor_split(parts)[number] for numbers in (batch.labels, batch.indices))
            last = number == parts - 1
            with nullcontext() if last else self.accelerator.no_sync(network), self.accelerator.autocast():
                given = Given(images, labels.to(images[0].device), indices, unlabelled)
                outcome = self.objective(network, given, draws)
                loss = outcome.loss * (len(labels) / len(batch.labels))
                self.accelerator.backward(loss)
            total += float(loss.detach())
            outcomes.append(outcome)
        if self._anywhere(not math.isfinite(total)):
            self.processes.gather(lambda: self._refuse_nan(total, batch))
        if self.recipe.clip_grad is not None:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.clip_grad)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update(self.model, step=self.step)
        return total, outcomes

    @property
    def _mixing(self) -> bool:
        return self.step < (self.recipe.epochs - self.recipe.unmixed_epochs) * self.steps_per_epoch

    def _prepared(self, copy: Tensor) -> Tensor:
        images = normalise(copy.to(self.accelerator.device, non_blocking=True), self.preprocessing)
        return images.contiguous(memory_format=self.memory_format)

    def _seed_step(self) -> Draws:
        """Everything that this step draws follows from its number."""
        seed = self.recipe.seed_of_augmentation
        numbers = seed, self.step, self.processes.rank
        torch.manual_seed(seed_from(*numbers, 0))
        for unit in training_units(self.model):
            unit.reseed(*numbers)
        generator = torch.Generator().manual_seed(seed_from(*numbers, 1))
        return Draws(generator, seed_from(seed, self.step), self._mixing)

    def _anywhere(self, here: bool) -> bool:
        """Whether it is so in any process: all of them have to stop, save or fail at the same step."""
        if self.processes.count == 1:
            return here
        anywhere = torch.tensor(float(here), device=self.accelerator.device)
        return bool(self.accelerator.reduce(anywhere) > 0)

    def _refuse_nan(self, loss: float, batch: TrainingBatch) -> None:
        if math.isfinite(loss):
            return
        epoch, step = divmod(self.step, self.steps_per_epoch)
        first = listing((self.feed.labelled.identity(int(index)) for index in batch.indices), limit=3)
        raise SurgeonError(
            f"The loss is {loss:g} in epoch {epoch + 1}, step {step + 1}, on a batch with {first}.",
            self._advice(),
            ExitCode.FAILED,
        )

    def _refuse_broken_weights(self) -> None:
        """NaN or infinite weights must not replace the last good state, nor become a snapshot."""
        broken = [name for name, tensor in self.model.state_dict().items() if not tensor.isfinite().all()]
        if self._anywhere(bool(broken)):
            epoch, step = divmod(self.step - 1, self.steps_per_epoch)
            raise SurgeonError(
                f"Weights are infinite or NaN after epoch {epoch + 1}, step {step + 1}.",
                self._advice(),
                ExitCode.FAILED,
            )

    def _advice(self) -> str:
        if not (self.folder / STATE).is_file():
            return "Try a smaller --lr."
        return (
            f"The last good state is kept in {self.folder}: repeat the command with --resume and a smaller --lr, "
            f"for example --lr {self.recipe.lr / 10:g}."
        )

    def _report_step(self, loss: float) -> None:
        epoch, done = divmod(self.step - 1, self.steps_per_epoch)
        accuracy = self.running.correct / max(self.running.examples, 1)  # a batch may be void everywhere
        rate = self.running.images * self.processes.count / self.running.seconds
        self.watcher.step(epoch + 1, done + 1, self.steps_per_epoch, loss, accuracy, rate)

    def _end_epoch(self) -> None:
        number = self.step // self.steps_per_epoch
        running = self.running
        sums = torch.tensor(
            [
                running.loss, running.correct, running.examples, running.images, running.left_out,
                running.steps, *running.shares.values(),
            ],
            dtype=torch.float64,
        )  # fmt: skip
        if self.processes.count > 1:
            sums = self.accelerator.reduce(sums.to(self.accelerator.device)).cpu()
            self._average_buffers()
        due = number % self.recipe.validate_every == 0 or number == self.recipe.epochs
        metrics = self.validate(self.outcome) if due else None
        if metrics is not None and not math.isfinite(metrics.cross_entropy):
            raise SurgeonError(
                f"The network has diverged: its predictions of validation images are infinite after epoch {number}.",
                self._advice(),
                ExitCode.FAILED,
            )
        train_mode(self.model, self.recipe)
        self.epochs.append(
            Epoch(
                number=number,
                loss=float(sums[0] / sums[2].clamp_min(1)),
                accuracy=float(sums[1] / sums[2].clamp_min(1)),
                backbone_rates=tuple(running.backbone_rates),
                head_rates=tuple(running.head_rates),
                validation=metrics,
                seconds=self.running.seconds,
                images_per_second=float(sums[3]) / self.running.seconds,
                left_out=int(sums[4]),
                shares={name: float(sums[6 + place] / sums[5]) for place, name in enumerate(running.shares)},
            )
        )
        self.running = Running()
        if self.recipe.snapshots > 1 and self.step % self.schedule.cycle == 0:
            self.processes.only_first(lambda: self.snapshot(self.outcome, self.step // self.schedule.cycle))
        self.watcher.epoch(self.epochs[-1])

    def _average_buffers(self) -> None:
        """Each process has the running statistics of its share of the images."""
        for buffer in self._buffers():
            if buffer.is_floating_point():
                buffer.copy_(self.accelerator.reduce(buffer, reduction="mean"))

    def _buffers(self) -> list[Tensor]:
        """Of the network, and of its average if there is one."""
        modules = (self.model, self.ema.module) if self.ema is not None else (self.model,)
        return [buffer for module in modules for buffer in module.buffers()]

    def _save(self) -> None:
        shares = self.processes.gather(
            lambda: {"running": vars(self.running), "buffers": [buffer.cpu() for buffer in self._buffers()]}
        )
        self.processes.only_first(
            lambda: save_state(
                self.folder,
                State(
                    step=self.step,
                    model=self.model.state_dict(),
                    optimizer=self.optimizer.state_dict(),
                    ema=self.ema.state_dict() if self.ema is not None else None,
                    epochs=[epoch.model_dump(mode="json") for epoch in self.epochs],
                    shares=shares,
                    seconds=self.seconds,
                ),
            )
        )

    def resume(self) -> bool:
        """Go back to the last saved state, if there is one."""
        state = load_state(self.folder)
        if state is None:
            return False
        self.model.load_state_dict(state.model)
        self.optimizer.load_state_dict(state.optimizer)
        if self.ema is not None and state.ema is not None:
            self.ema.load_state_dict(state.ema)
        self.step, self.seconds = state.step, state.seconds
        self.epochs = [Epoch.model_validate(epoch) for epoch in state.epochs]
        share = state.shares[self.processes.rank]
        self.running = Running(**share["running"])
        for buffer, own in zip(self._buffers(), share["buffers"], strict=True):
            buffer.copy_(own)
        return True


def _raise_error(batch: TrainingBatch | SurgeonError) -> None:
    if isinstance(batch, SurgeonError):
        raise batch
