"""What a recipe leaves open, the network and the images decide.

Every rule is here. The numbers for trained weights were chosen on validation images: docs/results.md has what was
tried, recipes/studies/transfer-defaults.yaml compares what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from surgeon.augment.geometry import is_small
from surgeon.augment.pipeline import chooses_crop
from surgeon.core.errors import SurgeonError, count
from surgeon.models.origin import Preprocessing
from surgeon.training.recipe import Recipe, SettledRecipe

SEEN = {True: 4_000, False: 100_000}
"""Images that training looks at in all, with trained and with drawn weights, as far as the limits of epochs allow."""
FEWEST_EPOCHS, MOST_EPOCHS = 12, {True: 20, False: 60}
BATCH, SMALLEST_BATCH, STEPS = {True: 32, False: 64}, 8, 4
SGD_RATE, ADAPTIVE_RATE = {True: 0.002, False: 0.1}, {True: 5e-4, False: 1e-3}
RATE_FOR = {True: 32, False: 128}
"""The batch size that the rates are meant for."""
NEW_HEAD_SCALE = 0.01
CLASSES_PER_RATE, FASTEST_HEAD = 10, 10.0
WARMUP_SHARE = 1 / 12
FEW = 2000
"""Training images, of which fewer do not make better statistics of BatchNorm than those that came with the weights."""
CROP = "standard:scale=0.35"
AS_SAID = "a given learning rate"


@dataclass(frozen=True)
class Situation:
    """What decides.

    Args:
        images: How many there are to train on.
        classes: How many they have.
        preprocessing: Of the network.
        trained: Whether its weights are trained ones, and not drawn.
        new_head: Whether its head is drawn.
        residual: Whether BatchNorm layers reach its output along residual additions.
        plain_norms: Whether it has BatchNorm layers, of which none is rewritten, and no inserted units.
        whole_pictures: Whether it learns classes of pictures, and not from masks or sounds.
        branch_augments: What the images of its branches are augmented with, main first, if it has branches.
        batch_size: Images per step.
        input_size: Height and width of the images, if there is one number for both.
        metric: By which settings are chosen in such problems.
    """

    images: int
    classes: int
    preprocessing: Preprocessing
    trained: bool
    new_head: bool
    residual: bool
    plain_norms: bool = True
    whole_pictures: bool = True
    branch_augments: tuple[str, ...] = ()
    batch_size: int | None = None
    input_size: int | None = None
    metric: str = "accuracy"


@dataclass(frozen=True)
class Settled:
    """A recipe that leaves nothing open, and why the keys that it had left open have their values."""

    recipe: SettledRecipe
    reasons: dict[str, str] = field(default_factory=dict)


def settle(recipe: Recipe, situation: Situation) -> Settled:
    """Decide what a recipe leaves open; what it says stays as it is."""
    if isinstance(recipe, SettledRecipe):
        return Settled(recipe)
    given = dict(recipe)
    reasons: dict[str, str] = {}

    def decide(key: str, value: Callable[[], tuple[Any, str]]) -> None:
        if given[key] is None:
            given[key], reasons[key] = value()

    images, trained = situation.images, situation.trained
    weights = "trained weights" if trained else "drawn weights"
    by_number = count(images, "training image")
    decide("batch_size", lambda: (situation.batch_size or default_batch(images, trained), by_number))
    decide("epochs", lambda: (default_epochs(images, trained, recipe.snapshots), by_number))
    if recipe.lr is not None:  # which without more is that of all layers, from the first step on
        decide("head_lr", lambda: (1.0, AS_SAID))
        decide("warmup_epochs", lambda: (0.0, AS_SAID))
        decide("freeze", lambda: ((), AS_SAID))
    decide("lr", lambda: _rate(recipe.optimizer, given["batch_size"], trained, weights))
    new_head = trained and situation.new_head
    head = "a new head on trained weights" if new_head else "no new head on trained weights"
    decide("head_lr", lambda: _head_rate(situation.classes) if new_head else (1.0, head))
    decide("head_scale", lambda: (NEW_HEAD_SCALE if new_head else 1.0, head))
    decide("warmup_epochs", lambda: (_warmup(given["epochs"] / recipe.snapshots, trained), weights))
    decide("freeze", lambda: _frozen(recipe, situation, by_number))
    residual = "a residual network with BatchNorm" if situation.residual else "no residual network with BatchNorm"
    decide("norm_weight_decay", lambda: (situation.residual, residual))
    if not recipe.augment and situation.branch_augments:
        given["augment"], reasons["augment"] = situation.branch_augments[:1], "a split network"
    elif _crops_mildly(recipe, situation):
        given["augment"], reasons["augment"] = (CROP, *recipe.augment), weights
    given["input_size"] = situation.input_size
    given["sweep_metric"] = recipe.sweep_metric or situation.metric
    settled = SettledRecipe.model_validate(given)
    for _, sentence in settled.contradictions():
        raise SurgeonError(f"The recipe conflicts with the default settings: {sentence}.")
    return Settled(settled, reasons)


def default_epochs(images: int, trained: bool, snapshots: int = 1) -> int:
    """As many as show the network a fixed number of images, within limits; a multiple of the snapshots."""
    epochs = min(max(round(SEEN[trained] / images), FEWEST_EPOCHS), MOST_EPOCHS[trained])
    return -(-epochs // snapshots) * snapshots


def default_batch(images: int, trained: bool) -> int:
    """The usual one; of few images a power of two that leaves an epoch several steps and drops few of them."""
    several_steps = 1 << max(0, (images // STEPS).bit_length() - 1)
    return min(BATCH[trained], max(SMALLEST_BATCH, several_steps), images)


def _rate(optimizer: str, batch_size: int, trained: bool, weights: str) -> tuple[float, str]:
    """It grows with the batch, as in timm's training script: of SGD in proportion, of others with the square root."""
    larger = batch_size / RATE_FOR[trained]
    like_sgd = optimizer.lower() in ("sgd", "nesterov", "momentum", "sgdp", "sgdw", "csgdw")
    rate = SGD_RATE[trained] * larger if like_sgd else ADAPTIVE_RATE[trained] * larger**0.5
    return float(f"{rate:.3g}"), f"{weights}, {optimizer}, batches of {batch_size}"


def _head_rate(classes: int) -> tuple[float, str]:
    """The loss is the less curved in each output the more classes share it, so that the head can go faster."""
    return min(max(classes / CLASSES_PER_RATE, 1.0), FASTEST_HEAD), f"a new head for {classes:,} classes"


def _frozen(recipe: Recipe, situation: Situation, by_number: str) -> tuple[tuple[str, ...], str]:
    if not situation.trained:
        return (), "drawn weights"
    if not situation.whole_pictures:
        return (), "masks or sounds"
    if recipe.only is not None or not situation.plain_norms:
        return (), "no plain BatchNorm to keep"
    return ("norm",) if situation.images < FEW else (), f"{by_number} for trained weights"


def _crops_mildly(recipe: Recipe, situation: Situation) -> bool:
    searched = situation.trained and situation.whole_pictures and not is_small(situation.preprocessing)
    return searched and not chooses_crop(recipe.augment, situation.preprocessing)


def _warmup(cycle: float, trained: bool) -> float:
    return float(f"{cycle * WARMUP_SHARE:.3g}") if trained else 0.0
