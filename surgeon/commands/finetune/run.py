"""One run: a network and images that fit each other, the trainer for both, and the folder in which it lives."""

from __future__ import annotations

import json
import shutil
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import nn

from surgeon import checkpoint
from surgeon.commands.finetune.accelerating import accelerator_for
from surgeon.commands.finetune.batch import batch_for, check_division
from surgeon.commands.finetune.request import (
    CHECKPOINT,
    LOGITS,
    PICTURE,
    RECIPE,
    RUN,
    SNAPSHOTS,
    SWEEPS,
    FinetuneRequest,
    begun_with,
    refuse_other_run,
    resumed_recipe,
)
from surgeon.core.atomic import staged
from surgeon.core.devices import Precision, pick_device, usable_precision
from surgeon.core.errors import SurgeonError, count
from surgeon.core.media import Medium
from surgeon.core.processes import Processes
from surgeon.core.reading import parse_json, read_bounded
from surgeon.data.images import ImageSet
from surgeon.data.loaders import Batches, batches, usable_cores
from surgeon.losses.base import ask
from surgeon.measuring.choosing import VALIDATION
from surgeon.measuring.engine import measure
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.variants import Variant
from surgeon.metrics import Metrics, summarise
from surgeon.models.facts import Images
from surgeon.models.history import FineTuned, Snapshot
from surgeon.models.origin import LoadedModel
from surgeon.problems import problem_of
from surgeon.report.folder import PAGE, RESULT
from surgeon.results.steps import data_set, figures_of, images_of
from surgeon.surgery.proof import state_sha256
from surgeon.training import network
from surgeon.training.copies import plan_copies
from surgeon.training.defaults import Situation, settle
from surgeon.training.feeding import Feed
from surgeon.training.loop import Trainer, Watcher
from surgeon.training.objective import Objective
from surgeon.training.recipe import Recipe, as_yaml
from surgeon.training.schedule import Rates, Schedule, make_optimizer
from surgeon.training.splits import Splits, check_training_images
from surgeon.training.state import STATE
from surgeon.training.tracking import CURVES
from surgeon.training.unlabelled import SAME, Unlabelled

DECIDED = "decided"
"""In the record of a run: the keys that its recipe had left open, and what they were decided by."""
BEFORE = "before"
"""In the record of a run: how good the network was on the validation images, by metric, if it knew their classes."""
LARGEST_TRAINED = 160
"""Of the shorter side of images with masks, unless somebody says otherwise: larger ones take hours without a GPU."""
MOST_RUN_BYTES = 1 << 20
SUMMED = "The network took images; its first convolution now takes spectrograms: its filters were summed over colours."


class Run:
    """A network and images that fit each other, and the folder in which the run lives."""

    def __init__(
        self,
        request: FinetuneRequest,
        processes: Processes,
        splits: Splits,
        loaded: LoadedModel,
        unlabelled: Unlabelled | None = None,
    ) -> None:
        self.request, self.folder = request, request.output
        self.processes = processes
        self.splits = splits
        self.unlabelled = unlabelled
        self.device = pick_device(request.inference.device)
        asked = resumed_recipe(self.folder, request.recipe) if request.resume else request.recipe
        self.precision = usable_precision(Precision(asked.precision), self.device)
        self.problem = problem_of(loaded.origin, splits.train, request.inference.problem)
        trained = not network.is_untrained(loaded)
        self.batch_size = asked.batch_size or batch_for(splits.train, trained)
        check_training_images(splits.train, self.batch_size, request.inference.limit)
        check_division(self.batch_size, processes.count, asked)
        self.name, self.base = loaded.name, loaded.origin.weights
        self.base_sha256 = state_sha256(loaded.model)
        self.loaded = network.fit_to_data(loaded, splits.train, asked.seed_of_weights, self.problem)
        self.preprocessing = replace(request.inference.images, input_size=asked.input_size).applied_to(
            self.loaded.origin.preprocessing, loaded.name, self.problem, splits.train, LARGEST_TRAINED
        )
        self.hears_first = self.loaded.medium is not loaded.medium
        names = splits.train.class_names if splits.train.names_known else None
        network.with_base(self.loaded, self.base_sha256)
        network.with_images(self.loaded, self.preprocessing, names)
        if asked.input_size is not None or self.hears_first:
            network.check_input_size(self.loaded)
        network.apply_rewrites(self.loaded, asked)
        self.problem.check_network(self.loaded)
        network.check_examples(self.loaded.model, self.batch_size // processes.count // asked.accumulate)
        self.knows_classes = trained and self.loaded is loaded
        settled = settle(asked, self._situation(trained, new_head=self.loaded is not loaded))
        self.recipe = settled.recipe
        self.decided = self._stored().get(DECIDED, {}) if request.resume else settled.reasons
        if trained:
            network.scale_new_head(loaded.model, self.loaded.model, self.recipe.head_scale)
        if self.recipe.one_bit is not None:
            network.change_one_bit(self.loaded.model, self.recipe.one_bit)
        network.choose_what_learns(self.loaded.model, self.recipe)
        masks = splits.train.masks is not None
        self.copies = plan_copies(self.recipe, self.loaded.model, self.preprocessing, self.has_branches, masks=masks)
        self.feed = Feed(
            splits.train,
            self.batch_size,
            self.recipe,
            unlabelled,
            processes,
            self._workers,
            request.inference.skip_bad,
        )
        self.feed.check()

    def _situation(self, trained: bool, new_head: bool) -> Situation:
        return Situation(
            images=len(self.splits.train),
            classes=self.classes,
            preprocessing=self.preprocessing,
            trained=trained,
            new_head=new_head,
            residual=network.has_residual_path(self.loaded),
            plain_norms=network.has_plain_batch_norm(self.loaded.model),
            whole_pictures=self.splits.train.masks is None and self.medium is Medium.IMAGE,
            branch_augments=network.branch_augments(self.loaded.model),
            batch_size=self.batch_size,
            input_size=self.problem.side(self.preprocessing),
            metric=self.problem.default_metric,
        )

    @property
    def _learned_from(self) -> tuple[ImageSet, ...]:
        also = () if self.unlabelled is None else (self.unlabelled.images,)
        return (self.splits.train, self.splits.validation, *also)

    @property
    def medium(self) -> Medium:
        """What it learns from."""
        return self.splits.train.medium

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "weights": self.base_sha256,
            "data": [images.fingerprint for images in self._learned_from],
            "number of processes": self.processes.count,
        }

    def begin(self, before: Metrics | None) -> None:
        """Write down what this run is, and how good the network was before it."""
        for name in (STATE, RESULT, PICTURE, PAGE, LOGITS):
            (self.folder / name).unlink(missing_ok=True)
        for name in (CHECKPOINT, SNAPSHOTS, *SWEEPS.values()):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        known = {} if before is None else {before.primary: before.value(before.primary)}
        self._describe({**self._identity, DECIDED: self.decided, BEFORE: known})

    def _describe(self, identity: dict[str, Any]) -> None:
        with staged(self.folder, (RECIPE, RUN)) as stage:
            (stage / RECIPE).write_text(as_yaml(self.recipe), encoding="utf-8")
            (stage / RUN).write_text(json.dumps(identity, indent=2) + "\n", encoding="utf-8")

    def withdraw(self) -> None:
        """Leave nothing of a run that began in an empty folder and got nowhere, so that it can begin there again."""
        if self.request.resume or self.request.overwrite or (self.folder / STATE).is_file():
            return
        for name in (RECIPE, RUN):
            (self.folder / name).unlink(missing_ok=True)
        for name in (SNAPSHOTS, CURVES):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        with suppress(OSError):  # somebody else has put something there
            self.folder.rmdir()

    def check_same(self) -> None:
        """Refuse to go on with the run of another network or of other images; its recipe has been compared before."""
        stored = self._stored()
        different = [key for key, value in self._identity.items() if stored.get(key) != value]
        refuse_other_run(self.folder, different)
        before = begun_with(self.folder).lr
        if before != self.recipe.lr:
            changes = (*self.changes, f"Resumed with a learning rate of {self.recipe.lr:g} in place of {before:g}.")
            self._describe({**stored, "changes": changes})

    @property
    def changes(self) -> tuple[str, ...]:
        """What the run was resumed with that it was not begun with."""
        return tuple(map(str, self._stored().get("changes", ())))

    @property
    def before(self) -> dict[str, Any]:
        """The figures of the network before the run, where it had a chance to be good."""
        return dict(self._stored().get(BEFORE, {}))

    def _stored(self) -> dict[str, Any]:
        path = self.folder / RUN
        try:
            stored = parse_json(read_bounded(path, "record of a run", MOST_RUN_BYTES))
        except ValueError as error:
            raise SurgeonError(f"{path} is not readable JSON ({error}).") from None
        parts = {"changes": list, DECIDED: dict, BEFORE: dict}
        if not isinstance(stored, dict) or not all(isinstance(stored.get(k, of()), of) for k, of in parts.items()):
            raise SurgeonError(f"{path} is not the record of a run.")
        return stored

    def trainer(self, watcher: Watcher) -> Trainer:
        recipe, model = self.recipe, self.loaded.model.to(self.device)
        memory_format = network.memory_format(model)
        model.to(memory_format=memory_format)
        optimizer = make_optimizer(network.parameter_groups(model, recipe), recipe)
        return Trainer(
            model=model,
            objective=Objective(model, ask(recipe.loss), self.copies, self.classes),
            optimizer=optimizer,
            schedule=Schedule(optimizer, recipe, self.feed.steps_per_epoch * recipe.epochs),
            rates=Rates(optimizer, network.head_parameters(model)),
            accelerator=accelerator_for(self.device, self.precision, self.request, self._leaves_parameters_out),
            processes=self.processes,
            recipe=recipe,
            feed=self.feed,
            preprocessing=self.preprocessing,
            folder=self.folder,
            validate=self.validate,
            snapshot=self._snapshot,
            watcher=watcher,
            should_stop=lambda: False,
            memory_format=memory_format,
            ema=_average_of(model, recipe),
        )

    @property
    def untrained_branch(self) -> str:
        """That the auxiliary branch takes no part, if it does not."""
        if not self.has_branches or self.copies.branches:
            return ""
        return "The auxiliary branch is not trained, because no term of the loss looks at copies that take it."

    @property
    def remarks(self) -> tuple[str, ...]:
        """What became of the training samples on their way into the network, and of the network for their sake."""
        adapted = self.hears_first and self.base.origin != "random"
        unlabelled = () if self.unlabelled is None else (self.unlabelled.sentence,)
        return ((SUMMED,) if adapted else ()) + self.splits.train.remarks(self.preprocessing) + unlabelled

    @property
    def outlook(self) -> str:
        """What the run would do, in a few sentences."""
        learning = sum(p.numel() for p in self.loaded.model.parameters() if p.requires_grad)
        test = "no" if self.splits.test is None else f"{len(self.splits.test):,}"
        size = "x".join(map(str, self.preprocessing.input_size[1:]))
        masks = f" Segmentation at {size} pixels." if self.splits.train.masks is not None else ""
        return (
            f"{count(self.recipe.epochs, 'epoch')} of {count(self.feed.steps_per_epoch, 'step')}, "
            f"{count(learning, 'parameter')} to train; {len(self.splits.train):,} training, "
            f"{len(self.splits.validation):,} validation and {test} test {self.medium.noun}s.{masks} "
            f"{' '.join((*self.remarks, self.untrained_branch))}"
        ).rstrip()

    @property
    def classes(self) -> int:
        return len(self.splits.train.class_names)

    @property
    def _workers(self) -> int:
        wanted = self.request.inference.workers
        return wanted if wanted is not None else max(1, usable_cores() // self.processes.count)

    @property
    def has_branches(self) -> bool:
        return bool(network.branch_augments(self.loaded.model))

    @property
    def _leaves_parameters_out(self) -> bool:
        """Auxiliary classifiers, as Inception networks have them, take no part in the loss; a branch may not either."""
        return bool(self.untrained_branch) or bool(getattr(self.loaded.model, "aux_logits", False))

    def _validation_batches(self, skip_bad: bool) -> Batches:
        images, workers = self.splits.validation, self.request.inference.workers
        at_once = self.problem.images_at_once(self.preprocessing.input_size)
        turns = self.device.type == "cpu"
        return batches(
            images, self.preprocessing, at_once, workers, skip_bad, transform=self.problem.transform, in_turns=turns
        )

    def unreadable_validation(self) -> tuple[str, ...]:
        """The validation images that are left out; a resumed run may not have met them itself."""
        loader = self._validation_batches(skip_bad=True)
        deque(loader, maxlen=0)
        return tuple(loader.bad)

    def validate(self, model: nn.Module) -> Metrics:
        """Measure a network on the validation images."""
        variant = Variant(model, InferenceSettings(self.device, self.precision, problem=self.problem))
        samples = self._validation_batches(self.request.inference.skip_bad)
        return summarise(
            measure({VALIDATION: variant}, samples, self.problem.keep, processes=self.processes).kept[VALIDATION]
        )

    def _snapshot(self, model: nn.Module, number: int) -> None:
        step = self.as_step(snapshot=Snapshot(number=number, of=self.recipe.snapshots))
        snapshot = replace(self.loaded, model=model)
        checkpoint.save_checkpoint(snapshot, self.folder / SNAPSHOTS / f"{number}", step, overwrite=True)

    def as_step(self, validation: Metrics | None = None, snapshot: Snapshot | None = None) -> FineTuned:
        """What the run adds to the history of the network."""
        return FineTuned(
            data=data_set(self.request.inference.data),
            classes=self.classes,
            train_images=len(self.splits.train),
            validation_images=len(self.splits.validation),
            test_images=len(self.splits.test) if self.splits.test is not None else 0,
            held_back=self.splits.held_back,
            unlabelled=self._unlabelled_images,
            recipe=self.recipe.model_dump(mode="json"),
            changes=self.changes,
            snapshot=snapshot,
            validation=figures_of(validation) if validation is not None else None,
        )

    @property
    def _unlabelled_images(self) -> Images | None:
        if self.unlabelled is None:
            return None
        given, images = self.request.unlabelled, self.unlabelled.images
        name = self.request.inference.data if given in (None, SAME) else given
        return images_of(name, images.split, len(images))


def _average_of(model: nn.Module, recipe: Recipe) -> Any:
    if recipe.ema is None:
        return None
    from timm.utils.model_ema import ModelEmaV3

    return ModelEmaV3(model, decay=recipe.ema, use_warmup=True)
