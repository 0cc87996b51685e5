"""The one rule on which images a setting is chosen, for every layout of data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from surgeon.core.errors import SurgeonError
from surgeon.data.images import ImageSet
from surgeon.data.presets import PRESETS, HeldOut
from surgeon.measuring import choosing
from surgeon.measuring.choosing import Choosing, images_to_choose_on
from surgeon.measuring.preparation import InferenceRequest
from surgeon.training.splits import open_splits

EACH = 20


def layout(root: Path, *splits: str) -> str:
    """Twenty images of two classes in each split; "" is a folder without splits."""
    for split in splits:
        for name in ("a", "b"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(EACH):
                Image.new("L", (2, 2)).save(folder / f"{number}.png")
    return str(root)


def names(images: ImageSet | None) -> set[str]:
    return {images.identity(index) for index in range(len(images))} if images is not None else set()


def opened(found: Choosing) -> tuple[str, int, int]:
    return found.images.split, len(found.images), len(names(found.held_back))


@pytest.mark.parametrize(
    ("splits", "expected", "warning"),
    [
        (("train", "validation", "test"), ("validation", 40, 0), ""),
        (("train", "val", "test"), ("val", 40, 0), ""),
        (("validation",), ("validation", 40, 0), ""),
        (("train", "test"), ("test", 20, 20), "no validation images: settings are chosen on half of its test images"),
        (("test",), ("test", 20, 20), "chosen on half of its test images"),
        (("train",), ("train", 4, 0), "chosen on a tenth of its training images"),
        (("",), ("all", 20, 20), "no splits: settings are chosen on half of its images"),
    ],
)
def test_every_layout_has_images_to_choose_on(
    splits: tuple[str, ...], expected: tuple[str, int, int], warning: str, tmp_path: Path
) -> None:
    found = images_to_choose_on(InferenceRequest(layout(tmp_path / "data", *splits)))
    assert opened(found) == expected
    assert not names(found.images) & names(found.held_back)
    assert [warning in told for told in found.warnings] == ([True] if warning else [])


def test_the_test_images_choose_only_where_that_is_asked_for_and_with_a_warning(tmp_path: Path) -> None:
    data = layout(tmp_path / "data", "train", "validation", "test")
    asked = images_to_choose_on(InferenceRequest(data, split="test"))
    assert opened(asked) == ("test", 40, 0)
    assert "Settings are chosen on test images" in asked.warnings[0]
    halved = images_to_choose_on(InferenceRequest(data, split="test"), confirm=True)
    assert opened(halved) == ("test", 20, 20)
    assert "Settings are chosen on half of the test images" in halved.warnings[0]
    assert "trained on them" in images_to_choose_on(InferenceRequest(data, split="train")).warnings[0]
    assert images_to_choose_on(InferenceRequest(data, split="validation")).warnings == ()


def test_a_split_that_reports_does_not_choose(tmp_path: Path) -> None:
    data = layout(tmp_path / "data", "train", "test")
    found = images_to_choose_on(InferenceRequest(data), reserved="test")
    assert opened(found) == ("train", 4, 0)
    whole = layout(tmp_path / "whole", "train", "val", "test")
    assert images_to_choose_on(InferenceRequest(whole), reserved="val").images.split == "test"


def test_the_tenth_is_the_one_that_finetune_holds_back(tmp_path: Path) -> None:
    """A network that was fine-tuned on these data has not been trained on it; a limit takes some of it, no others."""
    data = layout(tmp_path / "data", "train")
    splits = open_splits(InferenceRequest(data))
    tenth = images_to_choose_on(InferenceRequest(data)).images
    assert names(tenth) == names(splits.validation)
    assert not names(tenth) & names(splits.train)
    few = images_to_choose_on(InferenceRequest(data, limit=2)).images
    assert len(few) == 2
    assert names(few) < names(tenth)


def test_confirming_holds_half_of_the_validation_images_back(tmp_path: Path) -> None:
    data = layout(tmp_path / "data", "validation", "test")
    found = images_to_choose_on(InferenceRequest(data), confirm=True)
    assert opened(found) == ("validation", 20, 20)
    assert np.bincount(found.images.labels).tolist() == [10, 10]


def test_several_splits_that_nobody_knows_have_to_be_named(tmp_path: Path) -> None:
    import datasets

    table = datasets.Dataset.from_dict({"image": [0], "label": [0]})
    datasets.DatasetDict({"new": table, "old": table}).save_to_disk(tmp_path / "data")
    with pytest.raises(SurgeonError, match="Pass --split with one of: new and old"):
        images_to_choose_on(InferenceRequest(str(tmp_path / "data")))


@pytest.mark.parametrize("name", PRESETS)
def test_validation_images_that_public_weights_were_trained_on_come_with_a_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = InferenceRequest(layout(tmp_path / "data", "validation"))
    images = images_to_choose_on(local).images
    monkeypatch.setattr(choosing, "open_images", lambda _: images)
    told = images_to_choose_on(InferenceRequest(name)).warnings
    assert bool(told) == isinstance(PRESETS[name].rule, HeldOut)
    assert all("--split test --confirm" in sentence for sentence in told)
