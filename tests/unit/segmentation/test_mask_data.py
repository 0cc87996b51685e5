"""Images with masks: columns, folders, void, names of classes, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.data.loaders import batches
from surgeon.data.masks import VOID
from surgeon.data.opening import open_data
from surgeon.data.transforms import WholeImage, resized_mask
from surgeon.measuring.preparation import InferenceRequest
from surgeon.models.origin import Preprocessing
from surgeon.training.splits import open_splits
from tests.unit.segmentation.nets import HEIGHT, WIDTH, scene, write_folders, write_table

SMALL = Preprocessing(input_size=(3, HEIGHT, WIDTH), mean=(0.5,) * 3, std=(0.5,) * 3)


def expected(number: int) -> np.ndarray:
    _, mask = scene(number)
    return np.where(mask == 255, VOID, mask.astype(np.int64))


def test_folders(tmp_path: Path) -> None:
    write_folders(tmp_path / "set", {"train": 3, "test": 2})
    images = open_data(str(tmp_path / "set"), "test")
    assert len(images) == 2
    assert images.masks is not None
    np.testing.assert_array_equal(images.mask(1, (WIDTH, HEIGHT)), expected(4))


@pytest.mark.parametrize("layout", ["no splits", "splits below"])
def test_other_folders(tmp_path: Path, layout: str) -> None:
    write_folders(tmp_path / "one", {"test": 2})
    source, root = tmp_path / "one" / "test", tmp_path / "set"
    for kind in ("images", "masks"):
        place = root / kind / ("val" if layout == "splits below" else "")
        place.parent.mkdir(parents=True, exist_ok=True)
        (source / kind).rename(place)
    images = open_data(str(root), "validation" if layout == "splits below" else None)
    np.testing.assert_array_equal(images.mask(0, (WIDTH, HEIGHT)), expected(0))


def test_a_column(tmp_path: Path) -> None:
    file = write_table(tmp_path / "set" / "test.parquet", 5, void=3)
    images = open_data(str(file), void=(3,))
    assert images.masks is not None
    np.testing.assert_array_equal(images.mask(2, (WIDTH, HEIGHT)), expected(2))
    named = images.with_classes(["a", "b", "c"], known=True)
    assert named.masks is not None
    assert named.masks.void == {3, 255}


def test_rows_by_their_names(tmp_path: Path) -> None:
    file = str(write_table(tmp_path / "set" / "test.parquet", 7))
    dusk, day = (open_data(file, where=[where]) for where in ("name=dusk_*", "name!=dusk_*"))
    assert (dusk.positions.tolist(), day.positions.tolist()) == ([0, 3, 6], [1, 2, 4, 5])
    with pytest.raises(SurgeonError, match="no row of 'test' has that value"):
        open_data(file, where=["name=night_*"])


@pytest.mark.parametrize("kind", ["classes.txt", "id2label.json"])
def test_names_beside_the_data(tmp_path: Path, kind: str) -> None:
    root = write_folders(tmp_path / "set", {"test": 2})
    names = ["sky", "house", "road"]
    text = "\n".join(names) if kind == "classes.txt" else json.dumps({str(n): name for n, name in enumerate(names)})
    (root / kind).write_text(text)
    images = open_data(str(root))
    assert images.class_names == ("sky", "house", "road")
    assert images.about_masks == "3 classes for each pixel; void is 3 and 255"


def test_a_set_known_by_its_name(tmp_path: Path) -> None:
    write_table(tmp_path / "camvid" / "test-00000-of-00001.parquet", 2, void=11)
    images = open_data(str(tmp_path / "camvid"))
    assert len(images.class_names) == 11
    np.testing.assert_array_equal(images.mask(0, (WIDTH, HEIGHT)), expected(0))


def test_without_names_as_many_classes_as_numbers_occur(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "set", {"train": 3, "validation": 2, "test": 2})
    splits = open_splits(InferenceRequest(data=str(root)))
    assert splits.train.class_names == splits.validation.class_names == ("0", "1", "2")
    assert "which no file names" in splits.train.about_masks


def test_without_labels_masks_are_no_images(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "set", {"test": 3})
    assert len(open_data(str(root), labelled=False)) == 3


def test_the_problem_can_be_overridden(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "set", {"test": 2})
    images = open_data(str(root / "test"), problem="classification")
    assert images.class_names == ("images", "masks")
    with pytest.raises(SurgeonError, match="has no masks"):
        open_data("digits", problem="segmentation")
    with pytest.raises(SurgeonError, match="--void 7 is for masks"):
        open_data("digits", void=(7,))


def test_batches_hold_masks_of_the_input_size(tmp_path: Path) -> None:
    images = open_data(str(write_folders(tmp_path / "set", {"test": 3})))
    half = SMALL.model_copy(update={"input_size": (3, HEIGHT // 2, WIDTH // 2)})
    (batch,) = batches(images, [SMALL, half], 8, transform=WholeImage)
    assert batch.labels.shape == (3, HEIGHT, WIDTH)
    np.testing.assert_array_equal(batch.labels[1].numpy(), expected(1))
    other = batch.as_for(half)
    assert other.images.shape[2:] == other.labels.shape[1:] == (HEIGHT // 2, WIDTH // 2)
    np.testing.assert_array_equal(other.labels[1].numpy(), expected(1)[1::2, 1::2])


def test_masks_are_resized_without_new_classes() -> None:
    mask = np.array([[0, 4], [9, VOID]])
    assert (
        resized_mask(mask, (4, 4)).tolist()
        == torch.tensor(mask).repeat_interleave(2, 0).repeat_interleave(2, 1).tolist()
    )


def replaced(root: Path, picture: Image.Image) -> None:
    picture.save(root / "test" / "masks" / "000.png")


BAD = {
    "of another size": (Image.new("L", (WIDTH // 2, HEIGHT // 2)), "is 16x12, and the image 32x24"),
    "with other values": (Image.new("L", (WIDTH, HEIGHT), 7), "has the value 7, and there are 3 classes"),
    "in colours": (Image.effect_noise((WIDTH, HEIGHT), 90).convert("RGB").rotate(3), "has the Pillow mode RGB"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_masks(tmp_path: Path, what: str) -> None:
    root = write_folders(tmp_path / "set", {"test": 3})
    picture, message = BAD[what]
    if what == "in colours":
        picture = Image.merge("RGB", (picture.getchannel(0), Image.new("L", picture.size, 3), picture.getchannel(2)))
    replaced(root, picture)
    images = open_data(str(root)).with_classes(["a", "b", "c"], known=False)
    with pytest.raises(SurgeonError, match=message) as caught:
        list(batches(images, SMALL, 8, transform=WholeImage))
    assert caught.value.exit_code is ExitCode.USAGE
    left = batches(images, SMALL, 8, skip_bad=True, transform=WholeImage)
    assert sum(len(batch.labels) for batch in left) == 2
    assert len(left.bad) == 1


def test_a_damaged_mask(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "set", {"test": 2})
    (root / "test" / "masks" / "000.png").write_bytes(b"\x89PNG nothing")
    with pytest.raises(SurgeonError, match=r"The mask of the image test/images/000\.png of set cannot be read"):
        list(batches(open_data(str(root)), SMALL, 8, transform=WholeImage))


def test_images_and_masks_that_do_not_match(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "set", {"test": 3})
    (root / "test" / "masks" / "001.png").unlink()
    with pytest.raises(SurgeonError, match=r"1 of 3 images in .* have no mask, e.g. test/images/001.png"):
        open_data(str(root))
    (root / "test" / "images" / "001.png").unlink()
    (root / "test" / "images" / "002.png").unlink()
    with pytest.raises(SurgeonError, match=r"1 masks in .* have no image"):
        open_data(str(root))


def test_the_fingerprint_tells_masks_apart(tmp_path: Path) -> None:
    one, other = (write_folders(tmp_path / name / "set", {"test": 2}) for name in "ab")
    assert open_data(str(one)).fingerprint == open_data(str(other)).fingerprint
    replaced(other, Image.new("L", (WIDTH, HEIGHT), 1))
    assert open_data(str(one)).fingerprint != open_data(str(other)).fingerprint
