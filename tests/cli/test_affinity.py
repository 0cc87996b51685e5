"""`surgeon affinity`: how far augmentations lead from the images that a network knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from surgeon.augment.base import Kind, augments
from surgeon.commands.affinity import FEWEST_TO_MIX
from surgeon.core.media import Medium
from surgeon.data.loaders import cut
from tests.cli.running import document, done, refusal

DIGITS = ["affinity", "digits-resnet8", "--data", "digits"]


def rows(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["augment"]: row for row in result["augments"]}


@pytest.fixture(scope="module")
def everything() -> dict[str, Any]:
    return dict(document(*DIGITS, "--limit", "150"))


def test_all_augmentations_from_the_nearest_to_the_farthest(everything: dict[str, Any]) -> None:
    found = rows(everything)
    of_images = {name for name in augments if Medium.IMAGE in augments[name].media}
    assert set(found) | set(everything["left_out"]) == of_images
    assert set(augments) - of_images == {"spec-augment", "time-shift"}
    assert everything["left_out"] == {}
    differences = [row["difference"] for row in everything["augments"]]
    assert differences == sorted(differences, reverse=True)
    for row in found.values():
        assert row["accuracy"] - everything["clean_accuracy"] == pytest.approx(row["difference"])
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["accuracy"] <= row["ceiling"] + 1e-9
    assert everything["images"] == 150


def test_only_mixed_labels_have_a_ceiling_below_one(everything: dict[str, Any]) -> None:
    for name, row in rows(everything).items():
        assert (row["ceiling"] < 0.99) == (augments[name].kind is Kind.MIX)


def test_clean_accuracy_is_that_of_eval(everything: dict[str, Any]) -> None:
    evaluated = document("eval", "digits-resnet8", "--data", "digits", "--split", "validation", "--limit", "150")
    assert everything["clean_accuracy"] == pytest.approx(evaluated["metrics"]["accuracy"])


def test_flipping_digits_costs_more_than_not_flipping_them() -> None:
    found = rows(document(*DIGITS, "--augment", "standard", "--augment", "standard:flip=false", "--limit", "150"))
    assert found["standard"]["difference"] < found["standard:flip=false"]["difference"] - 0.05


def test_what_changes_nothing_has_an_affinity_of_zero() -> None:
    found = rows(document(*DIGITS, "--augment", "mixup:p=0", "--augment", "cutout:p=0", "--limit", "60"))
    assert all((row["difference"], row["ceiling"]) == (0, 1) for row in found.values())


def test_same_seed_same_result_whatever_the_workers() -> None:
    arguments = [*DIGITS, "--augment", "strong", "--augment", "cutmix", "--augment", "gaussian-noise:sigma=0.3"]
    first, again, other = (
        rows(document(*arguments, "--limit", "80", *more)) for more in ([], ["--workers", "1"], ["--seed", "1"])
    )
    for name in first:
        assert first[name]["accuracy"] == again[name]["accuracy"]
    assert any(first[name]["accuracy"] != other[name]["accuracy"] for name in first)


def test_a_choice_for_each_image_is_the_same_whatever_the_workers_and_batches() -> None:
    noise, choice = "gaussian-noise:sigma=0.6", "gaussian-noise:sigma=0.6|none"
    arguments = [*DIGITS, "--limit", "60", "--augment", noise, "--augment", choice]
    one, two = (
        rows(document(*arguments, *more)) for more in (["--workers", "1"], ["--workers", "2", "--batch-size", "7"])
    )
    assert [one[name]["accuracy"] for name in one] == [two[name]["accuracy"] for name in one]
    whole, half = (one[name]["difference"] for name in (noise, choice))
    assert whole < half < 0


def test_each_image_is_augmented_alike_in_any_batch() -> None:
    small, large = (
        rows(document(*DIGITS, "--augment", "strong", "--limit", "50", "--batch-size", size)) for size in ("7", "50")
    )
    assert small["strong"]["accuracy"] == large["strong"]["accuracy"]


def test_as_a_table() -> None:
    outcome = done(*DIGITS, "--augment", "mixup", "--augment", "weak:flip=false", "--limit", "40")
    assert "mixup" in outcome.stdout
    assert "weak:flip=false" in outcome.stdout
    assert "the weight of the predicted class in the label" in outcome.stderr
    assert "40 clean images" in outcome.stderr
    assert "predicted class" not in done(*DIGITS, "--augment", "cutout", "--limit", "20").stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*DIGITS, "--augment", "mixupp"], "mixup"),
        ([*DIGITS, "--augment", "cutout:sise=4"], "size"),
        ([*DIGITS, "--augment", "cutout:size=0"], "size='0'"),
        ([*DIGITS, "--augment", "mixup", "--batch-size", "1"], "at least two images"),
        (["affinity", "digits-resnet9", "--data", "digits"], "digits-resnet8"),
        (["affinity", "digits-resnet8", "--data", "nothing"], "There is no data"),
    ],
)
def test_refusals(arguments: list[str], says: str) -> None:
    assert says in refusal(*arguments)


def test_a_single_image_that_is_left_over_joins_the_last_batch() -> None:
    def sizes(images: int, batch_size: int) -> list[int]:
        indices = cut(images, batch_size, fewest=FEWEST_TO_MIX)
        assert [index for of_batch in indices for index in of_batch] == list(range(images))
        return [len(of_batch) for of_batch in indices]

    assert sizes(9, 4) == [4, 5]
    assert sizes(8, 4) == [4, 4]
    assert sizes(10, 4) == [4, 4, 2]
    assert sizes(1, 4) == [1]
    assert sizes(3, 1) == [1, 1, 1]
    assert sizes(5, 4) == [5]
    done(*DIGITS, "--augment", "mixup", "--limit", "9", "--batch-size", "8")


def test_unreadable_images_are_an_error_or_are_left_out(here: Path) -> None:
    for digit in range(10):
        folder = here / "data" / str(digit)
        folder.mkdir(parents=True)
        Image.new("L", (8, 8), 20 * digit).save(folder / "good.png")
    (here / "data" / "3" / "bad.png").write_bytes(b"nothing")
    arguments = ["affinity", "digits-resnet8", "--data", "data", "--split", "all", "--augment", "mixup"]
    assert "bad.png" in refusal(*arguments)
    result = document(*arguments, "--skip-bad")
    assert (result["images"], len(result["bad_images"])) == (10, 1)
