"""`surgeon preview`: pictures of augmentations and conditions."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from surgeon.augment.base import Kind, augments
from surgeon.commands import preview
from surgeon.commands.condition_preview import preview_condition
from surgeon.commands.visible import visible
from surgeon.conditions.base import ask
from surgeon.core.media import Medium
from surgeon.report.gallery import CAPTION_SIZE, Gallery, LabelShare, Row, Tile, cut_to_width, draw_gallery
from tests.cli.running import contents, done, refusal

OF_IMAGES = [name for name in augments if Medium.IMAGE in augments[name].media]


def pictures(count: int = 4, input_size: int | None = None) -> preview.Pictures:
    image_set = preview.open_training_data("digits", None, None, None)
    return preview.take_pictures(image_set, count, 0, input_size)


def test_writes_a_picture_and_says_where(here: Path) -> None:
    outcome = done("preview", "vh-mixup:alpha=0.3", "--data", "digits", "--count", "3")
    assert outcome.stdout == ""
    assert "vh-mixup:alpha=0.3 · digits (train), 8 px: preview.png" in outcome.stderr
    assert Image.open(here / "preview.png").format == "PNG"
    assert list(contents(here)) == ["preview.png"]


@pytest.mark.parametrize(
    "name", ["all", "strong", "cutmix", "mixup|none", "randaugment|augmix|none", "gaussian-noise", "noise:severity=5"]
)
def test_is_the_same_for_the_same_seed_and_another_for_another(name: str, here: Path) -> None:
    for file, seed in (("a", 0), ("b", 0), ("c", 1)):
        done("preview", name, "--data", "digits", "--count", "2", "--seed", str(seed), "-o", f"new/folder/{file}.png")
    a, b, c = (Image.open(here / f"new/folder/{file}.png") for file in "abc")
    assert a.tobytes() == b.tobytes()
    assert a.tobytes() != c.tobytes()


def test_one_image_and_a_size_of_ones_own(here: Path) -> None:
    done("preview", "mixup", "--data", "digits", "--count", "1", "--input-size", "96", "--split", "test")
    assert Image.open(here / "preview.png").width > 200


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["vh-mixupp", "--data", "digits"], "vh-mixup"),
        (["mixup:alfa=1", "--data", "digits"], "alpha"),
        (["mixup|cutmixx", "--data", "digits"], "cutmix"),
        (["strong|mixup", "--data", "digits"], "does not work on single images"),
        (["gaussian-nose", "--data", "digits"], "Did you mean gaussian-noise"),
        (["qqqq", "--data", "digits"], "ls conditions"),
        (["fog:severity=0", "--data", "digits"], "severity='0'"),
        (["gaussian-noise:sigma=-1", "--data", "digits"], "sigma='-1'"),
        (["spatter", "--data", "digits", "--input-size", "4"], "at least 8 pixels a side"),
        (["mixup", "--data", "nothing"], "There is no data 'nothing'"),
        (["mixup", "--data", "digits", "--split", "nothing"], "There is no split 'nothing'"),
        (["mixup", "--data", "digits", "-o", "picture.jpg"], "ends in .png"),
        (["mixup", "--data", "digits", "-o", "."], "ends in .png"),
        (["mixup", "--data", "digits", "-o", "file/picture.png"], "is not a folder"),
    ],
)
def test_refusals(arguments: list[str], says: str, here: Path) -> None:
    (here / "file").write_text("")
    assert says in refusal("preview", *arguments)
    assert list(contents(here)) == ["file"]


def test_an_unreadable_image_is_passed_over(here: Path) -> None:
    for name in ("cat", "dog"):
        (here / "data" / name).mkdir(parents=True)
        Image.new("RGB", (40, 30), "red").save(here / "data" / name / "good.png")
        (here / "data" / name / "bad.png").write_bytes(b"nothing")
    notes = done("preview", "mixup", "--data", "data").stderr
    assert "note: left out as unreadable:" in notes
    assert all(f"{name}/bad.png" in notes for name in ("cat", "dog"))
    for name in ("cat", "dog"):
        (here / "data" / name / "good.png").unlink()
    assert "None of the images" in refusal("preview", "mixup", "--data", "data")


def test_takes_an_image_of_every_class_before_the_second_of_any() -> None:
    assert sorted(pictures(10).class_names) == [str(digit) for digit in range(10)]
    assert len(set(pictures(25).class_names[10:20])) == 10


def test_grey_and_small_pictures_keep_their_size_and_others_do_not() -> None:
    assert pictures().preprocessing.input_size == (1, 8, 8)
    assert pictures(input_size=24).preprocessing.input_size == (1, 24, 24)


def test_the_bar_tells_what_the_soft_targets_say() -> None:
    taken = pictures(6)
    gallery = preview.preview("horizontal-concat", taken, "digits", 0)
    images, partners, mixed = gallery.rows
    for image, partner, tile in zip(images.tiles, partners.tiles, mixed.tiles, strict=True):
        assert image is not None
        assert tile is not None
        assert sum(share.weight for share in tile.label) == pytest.approx(1)
        assert image.label[0].name == tile.label[0].name
        own = round(tile.label[0].weight * 8)
        assert np.array_equal(tile.pixels[:, :own], image.pixels[:, :own])
        if partner is not None:
            assert partner.label[0] == LabelShare(tile.label[1].name, 1.0, 1)
            assert np.array_equal(tile.pixels[:, own:], partner.pixels[:, own:])


def test_without_a_partner_the_place_stays_empty() -> None:
    gallery = preview.preview("mixup:p=0", pictures(), "digits", 0)
    assert gallery.rows[1].tiles == (None,) * 4
    assert all(tile is not None and len(tile.label) == 1 for tile in gallery.rows[2].tiles)


def test_a_single_image_is_not_mixed_and_the_rest_is_drawn(here: Path) -> None:
    (here / "data" / "cat").mkdir(parents=True)
    Image.new("RGB", (40, 30), "red").save(here / "data" / "cat" / "one.png")
    assert "mixes images, so it needs two of them, and there is one." in refusal(
        "preview", "vh-mixup", "--data", "data"
    )
    done("preview", "all", "--data", "data")
    only = preview.take_pictures(preview.open_training_data("data", None, None, None), 8, 0, None)
    rows = {row.name for row in preview.preview_all(only, "data", 0).rows}
    assert rows == {"original", *(name for name in OF_IMAGES if augments[name].kind is not Kind.MIX)}


def test_all_has_a_row_for_every_augmentation() -> None:
    gallery = preview.preview_all(pictures(3), "digits", 0)
    assert {row.name for row in gallery.rows} == {"original", "partner", *OF_IMAGES}
    assert all(len(row.tiles) == 3 for row in gallery.rows)


def test_all_mixes_with_the_partners_that_it_shows() -> None:
    taken = pictures(8)
    original, partner, *others = preview.preview_all(taken, "digits", 0).rows
    assert all(tile is not None for tile in partner.tiles)
    mixes = [row for row in others if row.remark == "mix"]
    assert len(mixes) > 10
    for row in mixes:
        for own, theirs, tile in zip(original.tiles, partner.tiles, row.tiles, strict=True):
            assert own is not None and theirs is not None and tile is not None  # noqa: PT018
            assert {share.name for share in tile.label} <= {own.label[0].name, theirs.label[0].name}
            assert all(share.weight >= 0.005 for share in tile.label)


def test_many_pictures_go_below_one_another(tmp_path: Path) -> None:
    gallery = preview.preview("mixup", pictures(64), "digits", 0)
    assert sum(len(block[0].tiles) for block in gallery.blocks) == 64
    draw_gallery(gallery, tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").width < 2000


def test_brighter_than_white_is_white() -> None:
    stated = pictures().preprocessing
    brighter, darker = visible(torch.full((2, 1, 8, 8), 3.0) * torch.tensor([1, -1]).view(2, 1, 1, 1), stated)
    assert brighter.min() == 255
    assert darker.max() == 0


def test_small_pictures_are_enlarged_without_blur(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 2, (32, 32, 3), dtype=np.uint8) * 255
    gallery = Gallery("title", (Row("name", "", (Tile(pixels),)),))
    draw_gallery(gallery, tmp_path / "a.png")
    drawn = np.asarray(Image.open(tmp_path / "a.png").convert("RGB"))
    assert gallery.side == 192
    enlarged = pixels.repeat(6, axis=0).repeat(6, axis=1)
    places = [(y, x) for y in range(drawn.shape[0] - 191) for x in range(drawn.shape[1] - 191)]
    assert any(np.array_equal(drawn[y : y + 192 : 6, x : x + 192 : 6], pixels) for y, x in places)
    assert any(np.array_equal(drawn[y : y + 192, x : x + 192], enlarged) for y, x in places)


def test_long_names_are_cut_to_the_width() -> None:
    assert cut_to_width("rose", 192) == "rose"
    cut = cut_to_width("52% a flower with a very long name indeed, longer than fits", 192)
    assert cut.endswith("…")
    assert 15 < len(cut) < 40
    assert cut_to_width("any", 0, CAPTION_SIZE) == "…"


def test_a_condition_has_a_row_for_every_severity_and_a_column_for_every_image() -> None:
    gallery = preview_condition("contrast", pictures(3), "digits", 0)
    assert [(row.name, row.remark) for row in gallery.rows] == [
        ("original", ""),
        *(("contrast", f"severity {severity}") for severity in range(1, 6)),
    ]
    assert gallery.columns == 3
    spread = [np.mean([tile.pixels.std() for tile in row.tiles if tile]) for row in gallery.rows]
    assert spread == sorted(spread, reverse=True)


def test_several_conditions_are_a_grid_of_severities() -> None:
    gallery = preview_condition("corruptions", pictures(2), "digits", 0)
    assert [row.name for row in gallery.rows] == [each.condition.name for each in ask(["corruptions:severity=1"])]
    assert gallery.columns == 6
    first = [tile.label[0].name for tile in gallery.rows[0].tiles if tile]
    assert first == ["original", *(f"severity {severity}" for severity in range(1, 6))]


@pytest.mark.parametrize(("spec", "rows"), [("gaussian-noise", 6), ("gaussian-noise:sigma=0.1", 5)])
def test_options_tell_an_augmentation_from_a_condition_of_the_same_name(
    spec: str, rows: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Gallery] = []
    monkeypatch.setattr("surgeon.report.gallery.draw_gallery", lambda gallery, path: _draw(gallery, path, drawn))
    done("preview", spec, "--data", "digits", "--count", "2")
    assert len(drawn[0].rows) == rows
    assert (here / "preview.png").is_file()


def _draw(gallery: Gallery, path: Path, drawn: list[Gallery]) -> None:
    drawn.append(gallery)
    draw_gallery(gallery, path)


def test_classes_are_named_as_people_call_them() -> None:
    def drawn(name: str) -> bytes:
        tile = Tile(np.zeros((8, 8, 3), dtype=np.uint8), (LabelShare(name, 1.0),))
        draw_gallery(Gallery("title", (Row("original", "", (tile,)),)), file := BytesIO())
        return file.getvalue()

    assert drawn("n02099429 curly-coated_retriever") == drawn("curly-coated retriever") != drawn("retriever")
