"""Whatever is compared on the same images, each image is decoded once, and equal questions get equal answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from surgeon.data.images import ImageSet
from tests.cli.running import document

DIGITS = ("--data", "digits", "--limit", 60)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[tuple[str, int]]]:
    """How often each image was decoded, by split and place."""
    times: Counter[tuple[str, int]] = Counter()
    read = ImageSet.content

    def counted(self: ImageSet, index: int) -> bytes:
        times[self.split, int(self.positions[index])] += 1
        return read(self, index)

    monkeypatch.setattr(ImageSet, "content", counted)
    return times


@pytest.mark.parametrize("views", ["flip", "ten-crop"], ids=["of the same image", "of a larger image"])
def test_one_view_and_many_are_measured_on_images_decoded_once(decoded: Counter[tuple[str, int]], views: str) -> None:
    told = document("eval", "digits-resnet8", *DIGITS, "--tta", views)
    assert len(decoded) == 60
    assert set(decoded.values()) == {1}
    assert told["against_one_view"]["metrics"] == document("eval", "digits-resnet8", *DIGITS)["metrics"]


def test_merging_measures_both_networks_on_images_decoded_once(
    decoded: Counter[tuple[str, int]], tmp_path: Path
) -> None:
    document("convert", "digits-resnet8", "--bn", "split", "-o", tmp_path / "split")
    document("merge", tmp_path / "split", *DIGITS, "-o", tmp_path / "merged")
    assert len(decoded) == 60
    assert set(decoded.values()) == {1}


def test_validation_in_training_is_what_eval_finds(tmp_path: Path) -> None:
    run = ("finetune", "digits-resnet8", *DIGITS, "--batch-size", 20, "--workers", 0, "--epochs", 1)
    result = document(*run, "--set", "sweep=null", "-o", tmp_path / "run")
    evaluated = document("eval", tmp_path / "run" / "checkpoint", *DIGITS, "--split", "validation")
    assert evaluated["metrics"] == result["validation"] == result["epochs"][0]["validation"]


def test_the_test_images_of_a_run_are_decoded_once(decoded: Counter[tuple[str, int]], tmp_path: Path) -> None:
    """As trained, as saved and with views: one look."""
    run = ("finetune", "digits-resnet8", *DIGITS, "--batch-size", 20, "--workers", 0, "--epochs", 1)
    result = document(*run, "--bn", "example-weighted", "--set", "sweep=0,0.5", "--tta", "flip", "-o", tmp_path / "run")
    times = {times for (split, _), times in decoded.items() if split == "test"}
    assert times == {1}
    on_test = [(figure["setting"], figure["tta"]) for figure in result["figures"] if figure["split"] == "test"]
    assert on_test == [("as trained", None), ("as saved", None), ("as saved", "flip")]
    saved = document("eval", tmp_path / "run" / "checkpoint", *DIGITS, "--split", "test", "--tta", "flip")
    assert saved["metrics"] == result["test"]
    assert saved["against_one_view"]["metrics"] == result["figures"][3]["metrics"]
