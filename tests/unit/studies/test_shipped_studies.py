"""The study files that come with the project can be read, and their header says how to run them."""

from __future__ import annotations

from pathlib import Path

import pytest

from surgeon.data.opening import is_known
from surgeon.studies.file import load_study
from surgeon.training.recipe_files import header_of

SHIPPED = Path(__file__).parents[3] / "recipes" / "studies"
COMMAND = "surgeon study"
LOCAL = ("pacs", "speech-moex", "transfer-defaults")
"""Studies of images that no preset gives: their header says where they have to be."""


def studies() -> list[Path]:
    return sorted(SHIPPED.glob("*.yaml"))


def test_there_are_some() -> None:
    assert {"flowers102", "cifar10-methods", "cifar10-mixes", "multi-task", "pacs", "variability"} <= {
        path.stem for path in studies()
    }


def test_nothing_else_lies_among_them() -> None:
    assert {path for path in SHIPPED.iterdir() if path.name != "__pycache__"} == set(studies())


@pytest.mark.parametrize("path", studies(), ids=lambda path: path.stem)
def test_a_study_can_be_read(path: Path) -> None:
    study = load_study(path)
    assert study.description
    assert len(study.seeds) >= 3
    header = header_of(path)
    assert header.summary
    assert header.expected
    assert header.command.startswith(f"{COMMAND} recipes/studies/{path.name} -o runs/")


@pytest.mark.parametrize("path", studies(), ids=lambda path: path.stem)
def test_a_study_takes_known_images_and_no_file_of_one_machine(path: Path) -> None:
    study = load_study(path)
    places = {variant.data for variant in study.variants}
    places |= {one.data for one in study.evaluations.values() if one.data is not None}
    assert path.stem in LOCAL or all(map(is_known, places))
    assert not any(place.startswith(("/", "~", "..")) for place in places)
    assert not any(variant.weights for variant in study.variants)


def test_mixes_are_all_that_there_are() -> None:
    """The study that ranks them leaves out none, and plain training is what they are compared with."""
    from surgeon.augment.base import Kind, augments

    ranked = {variant.name for variant in load_study(SHIPPED / "cifar10-mixes.yaml").variants}
    mixes = {name for name in augments if augments[name].kind is Kind.MIX} - {"cutmix"}  # which is in cifar10-methods
    assert ranked == {"none", *mixes}
