"""What is decided where a recipe leaves something open, and that it never overrules what was said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from surgeon.core.errors import SurgeonError
from surgeon.models.origin import Preprocessing
from surgeon.training.defaults import (
    CROP,
    FEW,
    FEWEST_EPOCHS,
    MOST_EPOCHS,
    Situation,
    default_batch,
    default_epochs,
    settle,
)
from surgeon.training.recipe import OPEN, Recipe, check_recipe

LARGE = Preprocessing(input_size=(3, 224, 224), mean=(0, 0, 0), std=(1, 1, 1))
SMALL = Preprocessing(input_size=(3, 32, 32), mean=(0, 0, 0), std=(1, 1, 1))
TRANSFER = Situation(images=1000, classes=7, preprocessing=LARGE, trained=True, new_head=True, residual=True)
SCRATCH = replace(TRANSFER, trained=False, new_head=False)


@pytest.mark.parametrize("situation", [TRANSFER, SCRATCH, replace(TRANSFER, new_head=False, images=3)])
def test_nothing_stays_open_and_every_decision_has_a_reason(situation: Situation) -> None:
    settled = settle(Recipe(), situation)
    assert all(getattr(settled.recipe, key) is not None for key in OPEN)
    assert set(OPEN) <= set(settled.reasons)
    assert all(settled.reasons.values())
    untouched = [key for key in Recipe.model_fields if key not in (*OPEN, "augment", "input_size", "sweep_metric")]
    assert [getattr(settled.recipe, key) for key in untouched] == [getattr(Recipe(), key) for key in untouched]


def test_what_a_recipe_says_wins() -> None:
    said: dict[str, object] = {"epochs": 3, "batch_size": 20, "lr": 0.3, "head_lr": 2.0, "warmup_epochs": 0.5}
    said |= {"norm_weight_decay": False, "head_scale": 0.5, "freeze": ()}
    settled = settle(check_recipe({**said, "augment": "standard:scale=0.8"}, "x"), TRANSFER)
    assert {key: getattr(settled.recipe, key) for key in said} == said
    assert settled.recipe.augment == ("standard:scale=0.8",)
    assert settled.reasons == {}


@pytest.mark.parametrize("key", OPEN)
def test_zero_and_false_are_said_too(key: str) -> None:
    value = {"warmup_epochs": 0.0, "norm_weight_decay": False, "freeze": ()}.get(key, 2)
    settled = settle(check_recipe({key: value}, "x"), replace(TRANSFER, images=100))
    assert getattr(settled.recipe, key) == value
    assert key not in settled.reasons


def test_a_settled_recipe_is_settled_the_same_anywhere() -> None:
    """As that of a run, which is repeated by its file, is."""
    settled = settle(check_recipe({"augment": "cutout"}, "x"), TRANSFER).recipe
    for other in (SCRATCH, replace(TRANSFER, images=77, residual=False)):
        again = settle(check_recipe(settled.model_dump(mode="json"), "x"), replace(other, preprocessing=LARGE))
        assert again.recipe == settled
        assert again.reasons == {}


def test_trained_weights_are_cropped_mildly_unless_a_crop_was_chosen_or_pictures_are_small() -> None:
    mixed = check_recipe({"augment": "vh-mixup"}, "x")
    assert settle(mixed, TRANSFER).recipe.augment == (CROP, "vh-mixup")
    assert settle(mixed, SCRATCH).recipe.augment == ("vh-mixup",)
    assert settle(mixed, replace(TRANSFER, preprocessing=SMALL)).recipe.augment == ("vh-mixup",)
    assert settle(check_recipe({"augment": "weak"}, "x"), TRANSFER).recipe.augment == ("weak",)
    branches = replace(TRANSFER, branch_augments=("weak", "strong"))
    assert settle(Recipe(), branches).recipe.augment == ("weak",)


def test_a_learning_rate_alone_is_that_of_all_layers_from_the_first_step_on() -> None:
    """So recipes that give one mean what they meant before anything was decided."""
    for situation in (TRANSFER, SCRATCH):
        recipe = settle(Recipe(lr=0.02), situation).recipe
        assert (recipe.lr, recipe.head_lr, recipe.warmup_epochs) == (0.02, 1, 0)


@pytest.mark.parametrize(
    ("keys", "changes", "frozen"),
    [
        ({}, {"images": FEW - 1}, ("norm",)),
        ({}, {"images": FEW}, ()),
        ({}, {"images": 50, "trained": False}, ()),
        ({}, {"images": 50, "plain_norms": False}, ()),
        ({"only": "norm"}, {"images": 50}, ()),
        ({"lr": 0.01}, {"images": 50}, ()),
        ({"freeze": []}, {"images": 50}, ()),
        ({"freeze": ["backbone"]}, {"images": 50}, ("backbone",)),
    ],
)
def test_batch_norm_is_kept_for_few_images(
    keys: dict[str, Any], changes: dict[str, Any], frozen: tuple[str, ...]
) -> None:
    assert settle(check_recipe(keys, "x"), replace(TRANSFER, **changes)).recipe.freeze == frozen


@pytest.mark.parametrize(("classes", "rate"), [(2, 1), (10, 1), (37, 3.7), (102, 10), (1000, 10)])
def test_the_more_classes_the_faster_a_new_head(classes: int, rate: float) -> None:
    assert settle(Recipe(), replace(TRANSFER, classes=classes)).recipe.head_lr == rate


def test_the_head_is_faster_only_if_it_is_new_on_trained_weights() -> None:
    many = replace(TRANSFER, classes=102)
    assert [getattr(settle(Recipe(), many).recipe, key) for key in ("head_lr", "head_scale")] == [10, 0.01]
    for other in (replace(many, new_head=False), replace(many, trained=False)):
        assert [getattr(settle(Recipe(), other).recipe, key) for key in ("head_lr", "head_scale")] == [1, 1]
    assert settle(Recipe(), SCRATCH).recipe.warmup_epochs == 0


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adamw", "lamb"])
@pytest.mark.parametrize("situation", [TRANSFER, SCRATCH])
def test_the_rate_follows_the_batch(optimizer: str, situation: Situation) -> None:
    """In proportion with SGD, with the square root otherwise; timm's training script does the same."""
    rates = [settle(Recipe(optimizer=optimizer, batch_size=size), situation).recipe.lr for size in (16, 64)]
    assert rates[1] / rates[0] == pytest.approx(4 if optimizer in ("sgd", "momentum") else 2, rel=0.02)


@pytest.mark.parametrize("trained", [True, False])
def test_few_images_are_seen_more_often_within_limits(trained: bool) -> None:
    epochs = [default_epochs(images, trained) for images in (2, 300, 1000, 3000, 10_000, 10**7)]
    assert epochs == sorted(epochs, reverse=True)
    assert (epochs[0], epochs[-1]) == (MOST_EPOCHS[trained], FEWEST_EPOCHS)


@pytest.mark.parametrize("snapshots", [1, 4, 5, 7])
def test_epochs_are_a_multiple_of_the_snapshots(snapshots: int) -> None:
    recipe = settle(Recipe(snapshots=snapshots), TRANSFER).recipe
    assert recipe.epochs % snapshots == 0
    assert recipe.warmup_epochs < recipe.epochs / snapshots


def test_what_does_not_go_with_a_decision_is_refused() -> None:
    with pytest.raises(SurgeonError, match="the default settings: unmixed_epochs=500 is more than epochs="):
        settle(Recipe(unmixed_epochs=500), TRANSFER)


@pytest.mark.parametrize(("images", "batch"), [(2, 2), (8, 8), (20, 8), (100, 16), (127, 16), (128, 32)])
def test_few_images_make_smaller_batches(images: int, batch: int) -> None:
    assert default_batch(images, True) == default_batch(images, False) == batch


def test_many_images_make_the_usual_batches() -> None:
    assert (default_batch(5000, True), default_batch(5000, False)) == (32, 64)
