"""Every kind of source, built in a temporary folder; no test needs a network."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.data.arrow import ArrowImages
from surgeon.data.images import ImageSet
from surgeon.data.opening import open_data
from surgeon.data.presets import PRESETS
from surgeon.models.hub import Reach

PETS = ["cat", "dog", "fox"]


@pytest.fixture(autouse=True)
def no_hub_and_own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))


def png(shade: int, size: int = 4) -> bytes:
    stream = BytesIO()
    Image.new("L", (size, size), shade).save(stream, "PNG")
    return stream.getvalue()


def shades(images: ImageSet) -> list[int]:
    return [images.image(index).getpixel((0, 0)) for index in range(len(images))]  # type: ignore[misc]


def table(labels: list[int], image: str = "image", label: str = "label", names: list[str] | None = None) -> Any:
    """Images in the hub's form; image i has the shade i."""
    kinds = {image: datasets.Image(), label: datasets.ClassLabel(names=names or PETS)}
    cells = [{"bytes": png(index % 256), "path": None} for index in range(len(labels))]
    return datasets.Dataset.from_dict({image: cells, label: labels}, features=datasets.Features(kinds))


def write(data: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data.to_parquet(path)
    return path


def class_folders(root: Path, counts: dict[str, int]) -> Path:
    for name, number in counts.items():
        (root / name).mkdir(parents=True)
        for index in range(number):
            (root / name / f"{index}.png").write_bytes(png(index))
    return root


# Digits and folders


def test_digits() -> None:
    images = open_data("digits")
    assert (images.name, images.split, len(images), len(images.class_names)) == ("digits", "test", 450, 10)
    assert images.image(0).size == (8, 8)
    assert open_data("digits", "val").split == "validation"


def test_class_folders(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "pets", {"dog": 2, "cat": 3, ".cache": 1})
    (root / "cat" / "notes.txt").write_text("not an image")
    images = open_data(str(root))
    assert (images.name, images.split, images.class_names) == ("pets", "all", ("cat", "dog"))
    assert images.labels.tolist() == [0, 0, 0, 1, 1]
    assert images.labels.dtype == np.int64
    assert images.identity(4) == "dog/1.png of pets"
    with pytest.raises(SurgeonError, match="has no splits"):
        open_data(str(root), "test")


@pytest.mark.parametrize("ending", ["png", "tiff"])
def test_sixteen_bits_become_eight(tmp_path: Path, ending: str) -> None:
    ramp = np.linspace(0, 65535, 256 * 4).round().astype(np.uint16).reshape(4, 256)
    (tmp_path / "a").mkdir()
    Image.fromarray(ramp).save(tmp_path / "a" / f"ramp.{ending}")
    image = open_data(str(tmp_path)).image(0)
    assert image.mode == "L"
    assert np.array_equal(np.asarray(image), (ramp / 257).round())


def test_split_folders_share_their_classes(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", {"cat": 1, "dog": 1, "fox": 1})
    class_folders(tmp_path / "val", {"cat": 1, "dog": 0, "fox": 2})
    images = open_data(str(tmp_path))
    assert (images.split, images.class_names, images.labels.tolist()) == ("val", ("cat", "dog", "fox"), [0, 2, 2])
    assert open_data(str(tmp_path), "validation").split == "val"
    with pytest.raises(SurgeonError, match=r"no split 'test' .*one of: train and val"):
        open_data(str(tmp_path), "test")


def test_a_folder_without_images(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SurgeonError, match="holds no class folders"):
        open_data(str(tmp_path / "empty"))
    (tmp_path / "empty" / "1.jpg").touch()
    with pytest.raises(SurgeonError, match=r"holds no class folders .*, so its images have no labels"):
        open_data(str(tmp_path / "empty"))
    with pytest.raises(SurgeonError, match="holds no images"):
        open_data(str(class_folders(tmp_path / "pets", {"cat": 0})))


def test_a_mistyped_name() -> None:
    with pytest.raises(SurgeonError, match="Did you mean cifar10"):
        open_data("cifar-10")


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b")
    with pytest.raises(SurgeonError, match="not a Parquet file"):
        open_data(str(tmp_path / "data.csv"))


# Parquet and saved sets


def test_a_parquet_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write(table([2, 0, 1]), tmp_path / "pets.parquet")
    capfd.readouterr()
    images = open_data(str(path))
    assert (images.name, images.split, images.class_names) == ("pets", "all", tuple(PETS))
    assert images.labels.tolist() == [2, 0, 1]
    assert shades(images) == [0, 1, 2]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("folder", ["", "data", "plain_text"])
def test_a_folder_in_the_layout_of_the_hub(tmp_path: Path, folder: str) -> None:
    root = tmp_path / "pets"
    write(table([0, 1]), root / folder / "train-00000-of-00001.parquet")
    write(table([2, 2]), root / folder / "test-00000-of-00002.parquet")
    write(table([1]), root / folder / "test-00001-of-00002.parquet")
    images = open_data(str(root))
    assert (images.name, images.split, images.labels.tolist()) == ("pets", "test", [2, 2, 1])
    assert shades(images) == [0, 1, 0]
    assert open_data(str(root), "train").labels.tolist() == [0, 1]
    with pytest.raises(SurgeonError, match=r"no split 'dev' in 'pets'.*train and test"):
        open_data(str(root), "dev")


def test_many_rows_are_read_from_their_own_places(tmp_path: Path) -> None:
    images = open_data(str(write(table([0] * 2500), tmp_path / "test-pets.parquet")))
    assert shades(images) == [index % 256 for index in range(2500)]
    assert shades(images.subset([2499, 0, 1000])) == [2499 % 256, 0, 1000 % 256]


def test_a_rewritten_file_is_read_again(tmp_path: Path) -> None:
    path = write(table([0, 1]), tmp_path / "pets.parquet")
    before = open_data(str(path))
    write(table([1, 1, 1]), path)
    after = open_data(str(path))
    assert len(after) == 3
    assert before.fingerprint != after.fingerprint


def test_saved_sets(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"train": table([0, 1]), "valid": table([2])})
    both.save_to_disk(tmp_path / "both")
    images = open_data(str(tmp_path / "both"))
    assert (images.split, images.labels.tolist(), images.class_names) == ("valid", [2], tuple(PETS))
    table([1, 0]).select([1, 0]).save_to_disk(tmp_path / "one")
    images = open_data(str(tmp_path / "one"))
    assert (images.split, images.labels.tolist(), shades(images)) == ("all", [0, 1], [1, 0])


def test_an_empty_split(tmp_path: Path) -> None:
    write(table([0]), tmp_path / "pets" / "train-00000-of-00001.parquet")
    write(table([]), tmp_path / "pets" / "test-00000-of-00001.parquet")
    with pytest.raises(SurgeonError, match="'pets' holds no images in this split"):
        open_data(str(tmp_path / "pets"))


def test_files_named_for_splits_of_any_name(tmp_path: Path) -> None:
    for split, labels in {"photo": [0, 1], "art_painting": [2, 2, 1]}.items():
        write(table(labels), tmp_path / "pets" / f"{split}-00000-of-00001.parquet")
    assert list(open_data(str(tmp_path / "pets"), "art_painting").labels) == [2, 2, 1]
    with pytest.raises(SurgeonError, match="art_painting"):
        open_data(str(tmp_path / "pets"), "sketch")
    write(table([0]), tmp_path / "pets" / "more.parquet")
    with pytest.raises(SurgeonError, match="one of: train"):
        open_data(str(tmp_path / "pets"), "photo")


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    (tmp_path / "pets.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(SurgeonError, match=r"'pets\.parquet' cannot be read"):
        open_data(str(tmp_path / "pets.parquet"))


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(table([0]), tmp_path / "pets.parquet")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(SurgeonError, match="No space left") as caught:
        open_data(str(path))
    assert caught.value.exit_code == ExitCode.FAILED
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(SurgeonError, match="No space left"):
        open_data("hf:owner/pets")


# Columns


def plain_parquet(path: Path, **columns: Any) -> str:
    parquet.write_table(pa.table(columns), path)
    return str(path)


def test_columns_without_the_types_of_the_hub(tmp_path: Path) -> None:
    images = open_data(plain_parquet(tmp_path / "a.parquet", id=[7, 8], photo=[png(0), png(1)], target=[3, 0]))
    assert (images.labels.tolist(), images.class_names, images.names_known) == ([3, 0], ("0", "1", "2", "3"), False)
    assert shades(images) == [0, 1]
    structs = [{"bytes": png(0), "path": None}]
    images = open_data(plain_parquet(tmp_path / "b.parquet", picture=structs, label=["dog"], caption=["a dog"]))
    assert (images.labels.tolist(), images.class_names, images.names_known) == ([0], ("dog",), True)


def test_text_labels_are_numbered_over_all_splits(tmp_path: Path) -> None:
    (tmp_path / "pets").mkdir()
    plain_parquet(tmp_path / "pets" / "train-0.parquet", image=[png(0)] * 3, label=["fox", "cat", "dog"])
    plain_parquet(tmp_path / "pets" / "test-0.parquet", image=[png(0)], label=["fox"])
    images = open_data(str(tmp_path / "pets"))
    assert (images.split, images.labels.tolist(), images.class_names) == ("test", [2], ("cat", "dog", "fox"))


def test_ambiguous_and_missing_columns_are_told_with_those_that_exist(tmp_path: Path) -> None:
    path = plain_parquet(tmp_path / "a.parquet", a=[png(0)], b=[png(1)], label=[0], target=[1], note=[0.5])
    with pytest.raises(SurgeonError, match=r"several image columns.*--image-column.*a \(binary\), b \(binary\)"):
        open_data(path)
    with pytest.raises(SurgeonError, match=r"several label columns.*--label-column"):
        open_data(path, image_column="b")
    assert shades(open_data(path, image_column="b", label_column="target")) == [1]
    with pytest.raises(SurgeonError, match="'lable' of 'a' does not exist"):
        open_data(path, image_column="b", label_column="lable")
    with pytest.raises(SurgeonError, match="'note' of 'a' holds no labels"):
        open_data(path, image_column="b", label_column="note")
    with pytest.raises(SurgeonError, match="no recognised label columns"):
        open_data(plain_parquet(tmp_path / "c.parquet", image=[png(0)], kind=[1]))


def test_missing_labels_and_images(tmp_path: Path) -> None:
    with pytest.raises(SurgeonError, match="1 row without a label"):
        open_data(plain_parquet(tmp_path / "a.parquet", image=[png(0)] * 2, label=[0, None]))
    with pytest.raises(SurgeonError, match="2 of 2 images in the split 'all' of 'b' have no label"):
        open_data(plain_parquet(tmp_path / "b.parquet", image=[png(0)] * 2, label=[-1, -1]))
    images = open_data(plain_parquet(tmp_path / "c.parquet", image=[png(0), None], label=[0, 1]))
    with pytest.raises(SurgeonError, match="The image number 1 of c cannot be read: the row is empty"):
        images.image(1)


# The hub and the presets


def hub_copy(cache: Path, repository: str, revision: str = "0" * 40) -> Path:
    """Where the hub's cache keeps a data set."""
    root = cache / f"datasets--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(revision)
    return root / "snapshots" / revision


def readme(folder: Path, configs: dict[str, str]) -> None:
    """The header by which a repository names its configurations."""
    parts = [
        {"config_name": name, "data_files": [{"split": s, "path": f"{sub}/{s}-*"} for s in ("train", "test")]}
        for name, sub in configs.items()
    ]
    (folder / "README.md").write_text(f"---\n{json.dumps({'configs': parts})}\n---\n")


def test_a_data_set_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    folder = hub_copy(tmp_path / "hub-cache", "owner/pets")
    write(table([0, 1]), folder / "data" / "train-00000-of-00001.parquet")
    images = open_data("hf:owner/pets")
    assert (images.name, images.split, images.labels.tolist()) == ("owner/pets", "train", [0, 1])


def test_configurations(tmp_path: Path) -> None:
    folder = hub_copy(tmp_path / "hub-cache", "owner/pets")
    for number, name in enumerate(("small", "large")):
        for split in ("train", "test"):
            write(table([number]), folder / name / f"{split}-00000-of-00001.parquet")
    readme(folder, {"small": "small", "large": "large"})
    assert open_data("hf:owner/pets:large").labels.tolist() == [1]
    with pytest.raises(SurgeonError, match="several configurations"):
        open_data("hf:owner/pets")


@pytest.mark.parametrize("spec", ["hf:owner/pets", "cifar10"])
def test_without_hub_and_cache_a_local_folder_is_suggested(spec: str) -> None:
    with pytest.raises(SurgeonError, match=r"hub cannot be reached.*local folder") as caught:
        open_data(spec)
    assert caught.value.exit_code == ExitCode.FAILED


def test_only_the_files_of_the_split_are_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    for split, label in (("train", 0), ("test", 1)):
        write(table([label]), remote / "data" / f"{split}-00000-of-00001.parquet")
    load_builder = datasets.load_dataset_builder

    def load_remote_builder(path: str, config: str | None) -> Any:
        if path != "owner/pets":
            return load_builder(path, config)
        builder = load_builder(str(remote), config)
        for files in builder.config.data_files.values():
            files[:] = [f"hf://datasets/owner/pets@abc/{Path(file).relative_to(remote)}" for file in files]
        return builder

    def download(repository: str, *, repo_type: str, revision: str, allow_patterns: list[str]) -> str:
        assert (repository, repo_type, revision) == ("owner/pets", "dataset", "abc")
        assert allow_patterns == ["README.md", "data/test-00000-of-00001.parquet"]
        (local / "data").mkdir(parents=True)
        shutil.copy(remote / allow_patterns[1], local / allow_patterns[1])
        return str(local)

    monkeypatch.setattr("surgeon.models.hub.reach_of_hub", lambda: Reach.RESOLVED)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset_builder", load_remote_builder)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert open_data("hf:owner/pets").labels.tolist() == [1]


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "mnist", "fashion-mnist", "cub200"])
def test_presets_keep_a_part_of_the_training_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    preset = PRESETS[name]
    if name != "cub200":
        monkeypatch.setattr(type(preset.rule), "choose", _with_fewer_images(preset.rule))
    folder = hub_copy(tmp_path / "hub-cache", preset.hub)
    place = preset.config or "data"
    for split, size in (("train", 48), ("test", 6)):
        data = table([index % 3 for index in range(size)], preset.image_column, preset.label_column)
        write(data, folder / place / f"{split}-00000-of-00001.parquet")
    readme(folder, {preset.config or "default": place})
    sets = {split: open_data(name, split) for split in ("train", "validation", "test")}
    assert {split: np.bincount(images.labels).tolist() for split, images in sets.items()} == {
        "train": [12, 12, 12],
        "validation": [4, 4, 4],
        "test": [2, 2, 2],
    }
    assert sorted(shades(sets["train"]) + shades(sets["validation"])) == list(range(48))
    assert open_data(name).split == "test"
    assert {(images.name, images.split) for images in sets.values()} == {(name, split) for split in sets}


def _with_fewer_images(rule: Any) -> Any:
    """The rule for 12 validation images instead of 5,000."""
    choose = type(rule).choose
    assert rule.images == 5000
    return lambda _, labels, split: choose(type(rule)(12), labels, split)


def test_caltech256_takes_40_10_30_of_every_class_from_the_pooled_images(tmp_path: Path) -> None:
    folder = hub_copy(tmp_path / "hub-cache", "ilee0022/Caltech-256")
    for split, size in (("train", 150), ("validation", 10), ("test", 20)):
        write(table([index % 2 for index in range(size)]), folder / "data" / f"{split}-00000-of-00001.parquet")
    sets = {split: open_data("caltech256", split) for split in ("train", "val", "test")}
    assert [np.bincount(images.labels).tolist() for images in sets.values()] == [[40, 40], [10, 10], [30, 30]]
    assert len(np.unique(np.concatenate([images.positions for images in sets.values()]))) == 160


def test_flowers102_and_imagenet_have_their_official_splits(tmp_path: Path) -> None:
    for preset, splits in (("flowers102", ("train", "validation", "test")), ("imagenet-1k", ("train", "validation"))):
        folder = hub_copy(tmp_path / "hub-cache", PRESETS[preset].hub)
        for number, split in enumerate(splits):
            write(table([number]), folder / "data" / f"{split}-00000-of-00001.parquet")
    assert open_data("flowers102").labels.tolist() == [2]
    assert open_data("imagenet-1k").split == "validation"
    with pytest.raises(SurgeonError, match="no split 'test' in 'imagenet-1k'"):
        open_data("imagenet-1k", "test")


# Fingerprints


def test_a_fingerprint_tells_sets_apart_and_does_not_depend_on_the_place(tmp_path: Path) -> None:
    here = open_data(str(class_folders(tmp_path / "a" / "pets", {"cat": 2, "dog": 1})))
    there = open_data(str(class_folders(tmp_path / "b" / "pets", {"cat": 2, "dog": 1})))
    assert here.fingerprint == there.fingerprint
    assert here.fingerprint != here.subset([0, 1]).fingerprint
    (tmp_path / "b" / "pets" / "cat" / "0.png").write_bytes(png(99))
    assert here.fingerprint != open_data(str(tmp_path / "b" / "pets")).fingerprint


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def test_one_arrow_file_at_a_time_stays_open(tmp_path: Path) -> None:
    table([0, 1, 2] * 8).save_to_disk(tmp_path / "saved", num_shards=3)
    files = sorted(map(str, (tmp_path / "saved").glob("*.arrow")))
    assert len(files) == 3
    images, before = ArrowImages(files, "image"), open_files()
    everywhere = [number * 7 % 24 for number in range(24)]
    expected = [png(number) for number in everywhere]
    assert [images.read(number) for number in everywhere] == expected
    assert open_files() <= before + 1
    copied = pickle.loads(pickle.dumps(images))
    assert [copied.read(number) for number in everywhere] == expected
    with ThreadPoolExecutor(8) as pool:  # each of them changes the file that is open
        assert list(pool.map(images.read, everywhere * 20)) == expected * 20
    del images, copied
    assert open_files() == before
