"""Intervals of figures of masks: within bounds, and they contain the truth as often as they say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from surgeon.data.masks import VOID
from surgeon.metrics import figure_interval, metrics
from surgeon.metrics.interval import compare_images
from surgeon.metrics.mask_scores import MaskImages, MaskScores

OF_MASKS = [name for name in metrics if metrics[name].applies_to_masks(True)]
CLASSES, SIDE, POPULATION, SAMPLES = 4, 4, 1500, 300
SHOWN_BY = (1.0, 0.7, 0.5, 0.3)
"""The share of images that may show each class."""


def scored(logits: Tensor, masks: Tensor) -> MaskImages:
    scores = MaskScores()
    scores.update(logits, masks, range(len(masks)))
    return scores.images()


def two_networks(images: int, seed: int = 0) -> tuple[MaskImages, MaskImages]:
    """Some images are hard and most are easy, and not every image shows every class."""
    generator = torch.Generator().manual_seed(seed)
    shown = torch.rand(images, CLASSES, generator=generator) < torch.tensor(SHOWN_BY)
    drawn = torch.rand(images, CLASSES, SIDE, SIDE, generator=generator)
    masks = (drawn * shown[:, :, None, None]).argmax(dim=1)
    first = torch.randn(images, CLASSES, SIDE, SIDE, generator=generator)
    margin = 4 * torch.rand(images, generator=generator).sqrt()
    first += margin[:, None, None, None] * one_hot(masks, CLASSES).permute(0, 3, 1, 2)
    second = first + 0.5 * torch.randn(first.shape, generator=generator)
    masks[torch.rand(masks.shape, generator=generator) < 0.1] = VOID
    return scored(2 * first, masks), scored(2 * second, masks)


def value(name: str, images: MaskImages) -> float:
    found = metrics[name].of(images).compute(images)
    assert found is not None
    return found


@pytest.mark.parametrize("name", OF_MASKS)
def test_the_interval_of_a_figure_contains_it_and_stays_within_bounds(name: str) -> None:
    least, most = metrics[name].bounds
    masks = torch.arange(10 * SIDE * SIDE).reshape(10, SIDE, SIDE) % CLASSES
    perfect = 40.0 * one_hot(masks, CLASSES).permute(0, 3, 1, 2)
    usual = two_networks(30)[0]
    for images in (scored(perfect, masks), scored(-perfect, masks), usual):
        low, high = figure_interval(metrics[name], images)
        assert least <= low <= value(name, images) <= high <= most
    assert low < high, "of networks that are usual"


@pytest.fixture(scope="module")
def population() -> tuple[MaskImages, MaskImages]:
    return two_networks(POPULATION, seed=1)


@pytest.mark.parametrize("size", [50, 200])
@pytest.mark.parametrize("name", [name for name in OF_MASKS if name != "scaled-cross-entropy"])
def test_intervals_contain_the_truth(name: str, size: int, population: tuple[MaskImages, MaskImages]) -> None:
    """As often as those of classes have to. Parts of images keep the temperature of all, so that is left out."""
    truth = [value(name, images) for images in population]
    random, figures, differences = np.random.default_rng(size), 0, 0
    for _ in range(SAMPLES):
        places = random.integers(POPULATION, size=size)
        first, second = (replace(images.only(places), indices=np.arange(size)) for images in population)
        low, high = figure_interval(metrics[name], first)
        figures += low <= truth[0] <= high
        compared = compare_images(metrics[name], second, first)
        differences += compared.low <= truth[1] - truth[0] <= compared.high
    chance = 3.1 * math.sqrt(0.93 * 0.07 / SAMPLES)  # less comes up once in a thousand simulations
    assert min(figures, differences) / SAMPLES >= 0.93 - chance
