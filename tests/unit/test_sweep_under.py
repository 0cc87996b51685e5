"""Settings that compete under conditions: the mean decides, within a bound on clean images, under attack as well."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from surgeon.commands.sweep.under import names, parted
from surgeon.conditions.base import ask
from surgeon.measuring.under import ContestUnder
from surgeon.metrics import Scores, metrics
from surgeon.results import Method

IMAGES = 200
# The share of images that each setting gets right: on clean images, and under two conditions.
RIGHT = {
    "original": {"clean": 0.9, "a": 0.5, "b": 0.5},
    "bold": {"clean": 0.8, "a": 0.9, "b": 0.7},
    "careful": {"clean": 0.89, "a": 0.7, "b": 0.7},
    "useless": {"clean": 0.9, "a": 0.4, "b": 0.55},
}


def scores(share: float) -> Scores:
    labels = torch.arange(IMAGES) % 5
    right = torch.arange(IMAGES) < round(share * IMAGES)
    found = Scores()
    found.update(5.0 * one_hot(torch.where(right, labels, (labels + 1) % 5), 5), labels, np.arange(IMAGES))
    return found


def contest(most_loss: float | None) -> ContestUnder:
    held = ContestUnder(list(RIGHT), "original", metrics["accuracy"], Method.GRID, 1, IMAGES)
    held.most_loss = most_loss
    held.add(1, {f"{name}\n{condition}": scores(x) for name, of in RIGHT.items() for condition, x in of.items()})
    return held


@pytest.mark.parametrize(("most_loss", "best"), [(None, "bold"), (0.1, "bold"), (0.05, "careful"), (0.0, "original")])
def test_the_best_under_conditions_within_the_bound_wins(most_loss: float | None, best: str) -> None:
    assert contest(most_loss).best() == best


@pytest.mark.parametrize(("most_loss", "barred"), [(None, None), (0.1, None), (0.05, "bold"), (0.0, "bold")])
def test_what_the_bound_alone_kept_from_winning_is_known(most_loss: float | None, barred: str | None) -> None:
    assert contest(most_loss).barred() == barred


def test_gains_are_means_over_the_conditions() -> None:
    held = contest(None)
    gain = held.gains["careful"]
    assert gain.difference == pytest.approx(0.2)
    assert gain.images == IMAGES
    assert len(held.clean["bold"]) == IMAGES


def test_corruptions_are_held_out_by_family() -> None:
    choosing, confirming = parted(ask(["corruptions"]), confirm=True)
    assert {one.condition.family.value for one in choosing} == {"noise", "blur"}
    assert {one.condition.family.value for one in confirming} == {"weather", "digital"}
    assert len(choosing) + len(confirming) == 75


def test_what_was_asked_for_of_one_side_is_confirmed_on_the_other_families() -> None:
    choosing, confirming = parted(ask(["contrast:severity=3", "clean"]), confirm=True)
    assert names(choosing) == ("contrast",)
    assert {one.condition.family.value for one in confirming} == {"noise", "blur", "weather"}
    assert {one.severity for one in confirming} == {3}


def test_without_images_to_confirm_on_all_conditions_choose() -> None:
    choosing, confirming = parted(ask(["corruptions", "low-pass:bandwidth=0.5"]), confirm=False)
    assert choosing == confirming
    assert len(choosing) == 76


def test_other_conditions_are_the_same_in_both() -> None:
    choosing, confirming = parted(ask(["low-pass:bandwidth=0.5"]), confirm=True)
    assert choosing == confirming
