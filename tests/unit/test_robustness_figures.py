"""mCE and relative mCE against the formula of the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot

from surgeon.commands.robustness.alexnet import CLEAN_ERROR, ERRORS
from surgeon.commands.robustness.figures import Column, is_complete, summary_figures
from surgeon.conditions.base import ask
from surgeon.metrics import Scores

IMAGES = 60


def scores(right: np.ndarray) -> Scores:
    labels = torch.arange(IMAGES) % 7
    found = Scores()
    guessed = torch.where(torch.from_numpy(right), labels, (labels + 1) % 7)
    found.update(4.0 * one_hot(guessed, 7), labels, np.arange(IMAGES))
    return found


def test_mce_is_the_formula_and_needs_imagenet_and_all_corruptions() -> None:
    random = np.random.default_rng(0)
    columns = [Column.of(one) for one in ask(["clean", "corruptions"])]
    assert is_complete(columns)
    right = {column.condition: random.random(IMAGES) < random.uniform(0.2, 0.9) for column in columns}
    measured = {name: scores(of) for name, of in right.items()}
    figures = {one.key: one for one in summary_figures(columns, measured, None, imagenet=True)}
    clean = 1 - right["clean"].mean()
    means = {
        name: np.mean([1 - right[f"{name}:severity={severity}"].mean() for severity in range(1, 6)]) for name in ERRORS
    }
    assert figures["mce"].value == pytest.approx(np.mean([means[name] / ERRORS[name] for name in ERRORS]))
    relative = np.mean([(means[name] - clean) / (ERRORS[name] - CLEAN_ERROR) for name in ERRORS])
    assert figures["relative-mce"].value == pytest.approx(relative)
    assert figures["relative-mce"].low < relative < figures["relative-mce"].high
    assert "mce" not in {one.key for one in summary_figures(columns, measured, None, imagenet=False)}
    assert "mce" not in {one.key for one in summary_figures(columns[:-1], measured, None, imagenet=True)}
