"""Figures of predicted masks against the formula, and what is kept of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.data.masks import VOID
from surgeon.measuring.comparison import gain_of_temperature, gain_over
from surgeon.metrics import Scores, metrics, summarise
from surgeon.metrics.interval import figure_interval
from surgeon.metrics.mask_figures import iou_by_class, of_masks
from surgeon.metrics.mask_scores import MaskScores, scores_from_bytes
from surgeon.metrics.pooling import ScoresUnder, weighted_error, wrong
from tests.reference.segmentation import MASK_METRICS, bootstrap, iou_of_classes

CLASSES, IMAGES, HEIGHT, WIDTH = 5, 12, 9, 14


def predictions(images: int = IMAGES, seed: int = 0, skill: float = 2.0) -> tuple[Tensor, Tensor]:
    """Logits that are better than chance, and masks with void pixels; nothing is of the last class."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randint(0, CLASSES - 1, (images, 1, 3, 4), generator=generator).float()
    masks = torch.nn.functional.interpolate(coarse, size=(HEIGHT, WIDTH), mode="nearest")[:, 0].long()
    logits = torch.randn(images, CLASSES, HEIGHT, WIDTH, generator=generator)
    logits += skill * torch.nn.functional.one_hot(masks, CLASSES).permute(0, 3, 1, 2)
    void = torch.rand(images, HEIGHT, WIDTH, generator=generator) < 0.1
    return logits, masks.masked_fill(void, VOID)


def scored(logits: Tensor, masks: Tensor, at_once: int = 5) -> MaskScores:
    scores = MaskScores()
    for start in range(0, len(masks), at_once):
        part = slice(start, start + at_once)
        scores.update(logits[part], masks[part], torch.arange(len(masks))[part])
    return scores


@pytest.mark.parametrize("name", MASK_METRICS)
def test_figures_are_those_of_the_formula(name: str) -> None:
    logits, masks = predictions()
    value = summarise(scored(logits, masks)).value(name)
    tolerance = 1e-6 if name == "scaled-cross-entropy" else 1e-12
    assert value == pytest.approx(MASK_METRICS[name](logits.numpy(), masks.numpy(), VOID), abs=tolerance)


def test_void_pixels_take_no_part() -> None:
    logits, masks = predictions()
    other = torch.where((masks == VOID)[:, None], torch.randn(logits.shape) * 100, logits)
    assert summarise(scored(other, masks)) == summarise(scored(logits, masks))


def test_metrics_of_masks_are_all_of_a_record() -> None:
    record = summarise(scored(*predictions()))
    assert set(record.model_extra or {}) >= {metrics[name].key for name in MASK_METRICS}
    assert record.value("top5") is None
    assert record.value("aurra") is None
    assert record.primary == "iou"


def test_classes_without_a_pixel_are_left_out_of_the_mean() -> None:
    logits, masks = predictions()
    images = of_masks(scored(logits, masks).images())
    ious = iou_by_class(images)
    np.testing.assert_allclose(ious, iou_of_classes(logits.numpy(), masks.numpy(), VOID), atol=1e-12)
    assert math.isnan(ious[-1])
    assert images.rows["predicted"][:, -1].sum() > 0  # although pixels were taken for it


def test_an_image_that_is_void_everywhere_changes_nothing() -> None:
    logits, masks = predictions()
    more, empty = torch.randn(1, CLASSES, HEIGHT, WIDTH), torch.full((1, HEIGHT, WIDTH), VOID)
    with_it = summarise(scored(torch.cat([logits, more]), torch.cat([masks, empty])))
    without = summarise(scored(logits, masks))
    assert with_it.images == without.images + 1
    for name in MASK_METRICS:
        assert with_it.value(name) == pytest.approx(without.value(name), abs=1e-12)


def test_parts_without_images_change_nothing() -> None:
    logits, masks = predictions()
    scores = MaskScores()
    scores.update(logits[:0], masks[:0], [])
    assert scores.absorb(MaskScores()) is scores
    scores.update(logits, masks, range(len(masks)))
    assert scores.merge(MaskScores()).to_bytes() == MaskScores().merge(scores).to_bytes() == scores.to_bytes()


def test_nothing_but_void_has_no_figures() -> None:
    scores = scored(torch.randn(2, 3, 4, 4), torch.full((2, 4, 4), VOID))
    with pytest.raises(SurgeonError, match="All pixels of 2 images are void"):
        summarise(scores)
    classes, confidence = scores.images().answers()  # which recalibration asks for
    assert set(classes.tolist()) <= {-1, 0, 1, 2}
    assert (confidence > 1 / 3).all()


def test_not_a_number_is_wrong() -> None:
    logits, masks = predictions()
    logits[3, 0, 2, 2] = math.nan
    record = summarise(scored(logits, masks))
    known = (masks[3] != VOID).sum()
    right = (logits.argmax(1) == masks)[torch.arange(IMAGES) != 3].sum()
    assert record.nan_images == 1
    assert record.cross_entropy == math.inf
    assert record.accuracy == pytest.approx(float(right / (masks != VOID).sum()))
    assert int(known) > 0


def test_order_batches_and_processes_make_no_difference() -> None:
    logits, masks = predictions()
    whole = scored(logits, masks)
    first, second = MaskScores(), MaskScores()
    places = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(1))
    first.update(logits[places[:7]], masks[places[:7]], places[:7])
    second.update(logits[places[7:]], masks[places[7:]], places[7:])
    second.update(logits[places[7:9]], masks[places[7:9]], places[7:9])  # which counts once
    both = first.merge(second)
    assert summarise(both) == summarise(whole)
    assert both.to_bytes() == whole.to_bytes()
    assert isinstance(Scores().merge(whole), MaskScores)


def test_scores_can_be_stored() -> None:
    whole = scored(*predictions())
    again = scores_from_bytes(whole.to_bytes())
    assert isinstance(again, MaskScores)
    assert summarise(again) == summarise(whole)
    plain = Scores()
    plain.update(torch.randn(4, 3), torch.tensor([0, 1, 2, 0]), range(4))
    assert summarise(scores_from_bytes(plain.to_bytes())) == summarise(plain)


def test_memory_does_not_grow_with_the_number_of_pixels() -> None:
    sizes = []
    for side in (16, 64):
        logits, masks = torch.randn(4, 3, side, side), torch.randint(0, 3, (4, side, side))
        sizes.append(scored(logits, masks)._images.nbytes)
    assert sizes[0] == sizes[1]


def test_large_images_have_the_temperature_of_a_grid_of_their_pixels() -> None:
    generator = torch.Generator().manual_seed(3)
    masks = torch.randint(0, 3, (2, 96, 96), generator=generator)
    logits = 3 * torch.randn(2, 3, 96, 96, generator=generator)
    logits += 4 * torch.nn.functional.one_hot(masks, 3).permute(0, 3, 1, 2)
    record = summarise(scored(logits, masks))

    def losses(temperature: float) -> Tensor:
        return torch.nn.functional.cross_entropy(logits.double() / temperature, masks, reduction="none").flatten(1)

    whole = losses(1)
    changes = [losses(each) - whole for each in np.geomspace(2.0, 2.6, 80)]
    for step, near in ((3, 1e-5), (1, 1e-2)):  # the formula on the grid, and on all pixels
        best = min(change[:, ::step].mean().item() for change in changes)
        assert record.scaled_cross_entropy == pytest.approx(whole.mean().item() + best, abs=near)
    assert record.scaled_cross_entropy < record.cross_entropy


def test_the_interval_is_that_of_drawing_images() -> None:
    logits, masks = predictions(60, seed=5, skill=1.5)
    low, high = figure_interval(metrics["iou"], scored(logits, masks).images())
    expected = bootstrap(logits.numpy(), masks.numpy(), VOID, draws=1500, seed=0)
    width = expected[1] - expected[0]
    assert low == pytest.approx(expected[0], abs=0.25 * width)
    assert high == pytest.approx(expected[1], abs=0.25 * width)
    assert low < summarise(scored(logits, masks)).iou < high


def test_gains_are_paired() -> None:
    logits, masks = predictions(40)
    better = logits + torch.nn.functional.one_hot(masks.clamp_min(0), CLASSES).permute(0, 3, 1, 2)
    plain, improved = scored(logits, masks), scored(better, masks)
    gain = gain_over(plain, improved, metrics["iou"])
    assert gain.difference == pytest.approx(summarise(improved).iou - summarise(plain).iou)
    assert gain.better
    none = gain_over(plain, scored(logits, masks), metrics["iou"])
    assert (none.difference, none.low, none.high) == (0, 0, 0)


def test_a_temperature_helps_the_overconfident() -> None:
    logits, masks = predictions(30)
    gain = gain_of_temperature(scored(4 * logits, masks))
    assert gain.better
    assert gain.difference < 0


def test_errors_under_conditions() -> None:
    scores = [scored(*predictions(seed=seed)) for seed in (0, 0)]
    errors = wrong(scores)
    value, (low, high) = weighted_error(errors, np.array([0.5, 0.5]), right_or_wrong=False)
    assert value == pytest.approx(1 - summarise(scores[0]).iou)
    assert low < value < high
    under = ScoresUnder(dict(zip("ab", scores, strict=True)))
    assert summarise(under).iou == pytest.approx(summarise(scores[0]).iou)


def test_what_does_not_fit() -> None:
    with pytest.raises(SurgeonError, match="do not fit masks"):
        MaskScores().update(torch.randn(2, 3, 4, 4), torch.zeros(2, 4, 5, dtype=torch.long), range(2))
    with pytest.raises(SurgeonError, match="Labels from 0 to 3"):
        MaskScores().update(torch.randn(1, 3, 2, 2), torch.tensor([[[0, 3], [1, 2]]]), range(1))
    scores = scored(*predictions())
    with pytest.raises(SurgeonError, match="came after logits of 5 classes"):
        scores.update(torch.randn(1, 3, 4, 4), torch.zeros(1, 4, 4, dtype=torch.long), [IMAGES])
