"""Several data sets as one, in a temporary folder."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest
import torch

import surgeon
from surgeon.checkpoint.reading import load_checkpoint
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.data.loaders import batches
from surgeon.data.named_splits import MissingSplitError
from surgeon.data.opening import is_known, open_data
from surgeon.data.union import parts_of
from surgeon.measuring.preparation import InferenceRequest, prepare
from surgeon.models.facts import DataKind
from surgeon.models.origin import Preprocessing
from surgeon.results.steps import data_set
from tests.unit.test_data_sources import class_folders, shades, table, write


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Grey images of 4 pixels: two cats and a dog to train on, one of each to test."""
    class_folders(tmp_path / "pets" / "train", {"cat": 2, "dog": 1})
    class_folders(tmp_path / "pets" / "test", {"cat": 1, "dog": 1})
    return tmp_path / "pets"


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("union:mnist+cifar10", ("mnist", "cifar10")),
        ("union:mnist + ../data/cifar10", ("mnist", "../data/cifar10")),
        ("union:mnist", ("mnist",)),
        ("union:c++++data/c++++", ("c++data/c++",)),
        ("union:a+++b", ("a+", "b")),
        ("union:hf:me/birds:large+digits", ("hf:me/birds:large", "digits")),
    ],
)
def test_the_parts_of_a_union(spec: str, parts: tuple[str, ...]) -> None:
    assert parts_of(spec) == parts


@pytest.mark.parametrize("spec", ["union:", "union:digits+", "union:+digits", "union: + "])
def test_a_part_without_a_name(spec: str) -> None:
    with pytest.raises(SurgeonError, match="a part without a name") as error:
        open_data(spec)
    assert error.value.exit_code is ExitCode.USAGE


def test_labels_go_on_where_those_of_the_part_before_end(pets: Path, tmp_path: Path) -> None:
    file = write(table([2, 0, 1]), tmp_path / "zoo" / "test-00000-of-00001.parquet")
    both = open_data(f"union:{pets}+{file.parent}", "test")
    assert both.name == "pets+zoo"
    assert both.split == "test"
    assert both.class_names == ("pets/cat", "pets/dog", "zoo/cat", "zoo/dog", "zoo/fox")
    assert both.names_known
    assert both.labels.tolist() == [0, 1, 4, 2, 3]
    assert shades(both) == [0, 0, 0, 1, 2]
    assert [both.identity(index) for index in (1, 3)] == [
        "test/dog/0.png of pets of pets+zoo",
        "number 1 of zoo of pets+zoo",
    ]


def test_every_image_is_that_of_its_part(pets: Path) -> None:
    """Also where images of the parts were left out or reordered before and after they were joined."""
    parts = [open_data("digits"), open_data(str(pets), "train")]
    both = open_data(f"union:digits+{pets}", "train")
    digits = open_data("digits", "train")
    assert len(both) == len(digits) + 3
    order = np.random.default_rng(0).permutation(len(both))[:50]
    chosen = both.subset([*order, len(digits) + 2])
    for place, index in enumerate([*order, len(digits) + 2]):
        first = index < len(digits)
        one, within = (digits, index) if first else (parts[1], index - len(digits))
        assert np.array_equal(np.asarray(chosen.image(place)), np.asarray(one.image(int(within))))
        name = chosen.class_names[chosen.labels[place]]
        assert name == f"{one.name}/{one.class_names[one.labels[int(within)]]}"


def test_sizes_and_modes_become_those_of_the_network(pets: Path) -> None:
    preprocessing = Preprocessing(
        input_size=(3, 6, 6), mean=(0.5,) * 3, std=(0.5,) * 3, crop_pct=1.0, interpolation="nearest"
    )
    (batch,) = batches(open_data(f"union:digits+{pets}", "test"), preprocessing, batch_size=1000)
    assert batch.images.shape == (452, 3, 6, 6)
    assert torch.equal(batch.images[:, 0], batch.images[:, 2])


def test_the_default_split_is_one_that_all_have(pets: Path) -> None:
    assert open_data(f"union:digits+{pets}").split == "test"
    assert len(open_data(f"union:digits+{pets}", "train")) == 898 + 3
    with pytest.raises(MissingSplitError, match="no split 'validation' in 'pets'"):
        open_data(f"union:digits+{pets}", "validation")


def test_parts_whose_splits_differ(pets: Path, tmp_path: Path) -> None:
    plain = class_folders(tmp_path / "plain", {"cat": 1, "dog": 1})
    with pytest.raises(SurgeonError, match="not have the same splits: 'test' of 'pets' and 'all' of 'plain'"):
        open_data(f"union:{pets}+{plain}")
    other = tmp_path / "other"
    class_folders(other / "val", {"cat": 1, "dog": 1})
    assert open_data(f"union:digits+{other}", "valid").labels.tolist()[-2:] == [10, 11]


def test_the_same_set_twice(pets: Path, tmp_path: Path) -> None:
    with pytest.raises(SurgeonError, match="several sets named 'digits'"):
        open_data("union:digits+digits")
    namesake = class_folders(tmp_path / "elsewhere" / "pets" / "test", {"cow": 1, "hen": 1}).parent
    with pytest.raises(SurgeonError, match="named 'pets', so their classes would be ambiguous"):
        open_data(f"union:{pets}+{namesake}", "test")


def test_a_union_in_a_union() -> None:
    with pytest.raises(SurgeonError, match="A union cannot hold another one: 'union:digits'"):
        open_data("union:union:digits+mnist")


def test_a_part_without_labels(pets: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "1.png").write_bytes((pets / "test" / "cat" / "0.png").read_bytes())
    with pytest.raises(SurgeonError, match="so its images have no labels"):
        open_data(f"union:{pets}+{bare}")
    negative = write(table([-1, 0]), tmp_path / "held" / "test-00000-of-00001.parquet").parent
    with pytest.raises(SurgeonError, match="in the split 'test' of 'held' have no label"):
        open_data(f"union:{pets}+{negative}")
    both = open_data(f"union:digits+{negative}", labelled=False)
    assert (len(both), both.class_names, set(both.labels.tolist())) == (452, ("0",), {0})


def test_a_missing_part_is_told_by_its_own_name() -> None:
    with pytest.raises(SurgeonError, match=r"There is no data 'mnits'.*Did you mean mnist"):
        open_data("union:digits+mnits")


def test_a_fingerprint_depends_on_every_part_and_on_their_order(pets: Path, tmp_path: Path) -> None:
    other = class_folders(tmp_path / "birds" / "test", {"owl": 2}).parent
    specs = [f"union:{pets}+{other}", f"union:{other}+{pets}", f"union:{pets}+digits", f"union:{pets}"]
    found = [open_data(spec, "test").fingerprint for spec in specs]
    assert len(set(found)) == 4
    assert open_data(specs[0], "test").fingerprint == found[0]


def test_what_a_union_is_called_in_a_history(pets: Path) -> None:
    assert is_known("union:digits+mnist")
    assert not is_known(f"union:digits+{pets}")
    assert data_set(f"union:digits+{pets}").name == "digits + pets"
    assert data_set(f"union:digits+{pets}").kind is DataKind.FILES


def test_one_network_for_two_tasks(tmp_path: Path) -> None:
    """Trained on the union, resumed with it, and evaluated on the union, and on one task by a union of one."""
    stripes = tmp_path / "stripes"
    for split in ("train", "test"):
        class_folders(stripes / split, {"a": 12, "b": 12})
    spec = f"union:digits+{stripes}"
    result = surgeon.finetune(
        "digits-resnet8", spec, tmp_path / "run", pretrained=False, epochs=1, train_images=100, sweep=None
    )
    assert result.test is not None
    assert result.test.images == 450 + 24
    model = surgeon.load(result.checkpoint)
    assert model(torch.zeros(1, 1, 8, 8)).shape == (1, 12)
    network = prepare(load_checkpoint(Path(result.checkpoint)), InferenceRequest(data=f"union:{stripes}"))
    assert (network.outputs or ())[:2] == (10, 11)
    assert network.matched_classes == (2, 12)
