"""Recipes, descriptions of data and images that somebody else made: bounded, local, and told in a sentence."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

import surgeon
from surgeon.checkpoint import open_model
from surgeon.commands.publish import check_card
from surgeon.core.bounded_yaml import parse_yaml
from surgeon.core.errors import SurgeonError
from surgeon.data.opening import open_data
from surgeon.measuring.journal import Journal
from surgeon.training.recipe import load_recipe
from tests.cli.running import invoke, refusal

LEVELS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
BOMB = f"a0: &a0 [1, 1, 1]\n{LEVELS}"
SAME_HASH = "".join(f"{n * (2**61 - 1)}: 0\n" for n in range(1, 4000))
DOCUMENTS = {
    "aliases of aliases": (BOMB, "more than 10,000 values"),
    "aliases of aliases as a merge": (BOMB + "<<: *a11\n", "more than 10,000 values"),
    "an alias to itself": ("epochs: &a [*a]\n", "refers to itself"),
    "an alias to nothing": ("epochs: *a\n", "or to nothing"),
    "sixty thousand keys": ("".join(f"k{n}: 0\n" for n in range(16_000)), "more than 10,000 values"),
    "four thousand keys": ("".join(f"k{n}: 0\n" for n in range(4000)), "and 3,980 more"),
    "keys with the same hash": (SAME_HASH, "is too large"),
    "more than it may have": ("# " + "x" * 300_000, "too large"),
    "a great depth": ("epochs: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    "a key twice": ("epochs: 1\nepochs: 2\n", "'epochs' appears twice"),
    "a mapping as a key": ("? {a: 1}\n: 2\n", "not readable YAML"),
    "an endless number": ("epochs: " + "9" * 10_000, "not readable YAML"),
    "an endless time": ("epochs: 1" + ":59" * 10_000, "is too large"),
    "a date that is none": ("epochs: 2020-99-99", "not readable YAML"),
    "a long text": ("epochs: " + "x" * 100_000, "epochs='xxx"),
    "a call": ("epochs: !!python/object/apply:os.system [touch trace]", "not readable YAML"),
    "two documents": ("epochs: 1\n---\nepochs: 2\n", "not readable YAML"),
    "no text": ("epochs: \0", "not readable YAML"),
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_a_hostile_recipe_is_told(case: str, here: Path) -> None:
    text, expected = DOCUMENTS[case]
    (here / "recipe.yaml").write_text(text)
    with pytest.raises(SurgeonError) as told:
        load_recipe("recipe.yaml")
    assert expected in str(told.value)
    assert len(str(told.value)) < 5000
    assert not (here / "trace").exists()


def test_aliases_of_ordinary_size_are_read() -> None:
    assert parse_yaml("a: &a [1, 2]\nb: *a\n", 100) == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize("value", [BOMB.replace("\n", ", ").join("{}"), "9" * 10_000, "[" * 5000, "2020-99-99"])
def test_a_hostile_setting_is_told(value: str, here: Path) -> None:
    changes = ["--set", f"epochs={value}", "-o", here / "out"]
    assert "--set epochs" in refusal("finetune", "digits-resnet8", "--data", "digits", *changes)


# --- what is no ordinary file ---------------------------------------------------------------------------


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("special", [pipe, device])
@pytest.mark.parametrize(
    "command",
    [
        "recipe check FILE.yaml",
        "recipe show FILE.yaml",
        "recipe copy FILE.yaml out.yaml",
        "finetune digits-resnet8 --data digits --recipe FILE.yaml -o out",
        "convert test_resnet -w FILE.pth --bn ghost -o out",
        "convert test_resnet -w FILE.safetensors --bn ghost -o out",
        "eval digits-resnet8 --data FILE.parquet",
        "eval digits-resnet8 --data FILE",
        "inspect FILE",
        "verify FILE",
        "card FILE",
        "merge FILE",
        "export FILE --to timm -o out",
        "ensemble FILE digits-resnet8 --data digits",
    ],
)
def test_a_pipe_or_a_device_as_an_argument(command: str, special: Callable[[Path], None], here: Path) -> None:
    name = next(word for word in command.split() if word.startswith("FILE")).replace("FILE", "special")
    special(here / name)
    outcome = invoke(*(name if word.startswith("FILE") else word for word in command.split()))
    assert outcome.code == 2
    assert "Unexpected" not in outcome.stderr


def images(folder: Path, number: int = 3) -> Path:
    for name in ("cat", "dog"):
        (folder / "test" / name).mkdir(parents=True)
        for index in range(number):
            Image.new("L", (8, 8), 20 * index).save(folder / "test" / name / f"{index}.png")
    return folder


@pytest.mark.parametrize("special", [pipe, device])
def test_a_pipe_among_the_images(special: Callable[[Path], None], here: Path) -> None:
    special(images(here / "data") / "test" / "cat" / "9.png")
    opened = open_data("data")
    assert opened.fingerprint
    with pytest.raises(SurgeonError, match=r"cat/9.png of data cannot be read: it is not a regular file"):
        opened.image(3)


def test_an_image_without_end(here: Path) -> None:
    with (images(here / "data") / "test" / "cat" / "9.png").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SurgeonError, match=r"cat/9.png of data cannot be read: it has more than"):
        open_data("data").image(3)


# --- tables and their descriptions ----------------------------------------------------------------------


def table(path: Path, labels: list[int], paths: list[str | None] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = images(path.parent / ".images") / "test" / "cat" / "0.png"
    cells = [
        {"bytes": None if elsewhere else image.read_bytes(), "path": elsewhere}
        for elsewhere in paths or [None] * len(labels)
    ]
    shutil.rmtree(path.parent / ".images")
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pa.parquet.write_table(pa.table({"image": pa.array(cells, kind), "label": labels}), path)
    return path


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was used")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


DESCRIPTIONS = {
    "README.md": f"---\n{BOMB}---\n",
    "README.md with other ends of lines": f"---\r{BOMB}---\n".replace("\n", "\r") + "\n",
    "README.md with hashes": f"---\n{SAME_HASH}---\n",
    "README.md with addresses": "---\nconfigs:\n- config_name: a\n  data_files: https://example.com/x.parquet\n---\n",
    "README.md with addresses of splits": (
        "---\nconfigs:\n- config_name: a\n  data_files:\n  - split: test\n    path: [hf://datasets/a/b/x.parquet]\n---\n"
    ),
    ".huggingface.yaml": BOMB,
    "dataset_infos.json": "[" * 100_000,
}


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_a_hostile_description_is_told(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_network(monkeypatch)
    table(tmp_path / "test.parquet", [0, 1])
    (tmp_path / case.split()[0]).write_text(DESCRIPTIONS[case], newline="")
    with pytest.raises(SurgeonError, match=r"The description of a data set .* (cannot be read|refers to remote files)"):
        open_data(str(tmp_path))


@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml", "dataset_infos.json", "state.json"])
@pytest.mark.parametrize("special", [pipe, device])
def test_a_pipe_in_a_folder_of_tables(name: str, special: Callable[[Path], None], tmp_path: Path) -> None:
    table(tmp_path / "test.parquet", [0, 1])
    special(tmp_path / name)
    if name == "state.json":  # without it, the folder is no saved set
        (tmp_path / "dataset_dict.json").write_text('{"splits": []}')
    with pytest.raises(SurgeonError, match=r"is a (named pipe|device), not a"):
        open_data(str(tmp_path))


def test_a_saved_set_with_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "x.arrow"}]}))
    (tmp_path / "dataset_info.json").write_text("{}")
    pipe(tmp_path / "x.arrow")
    with pytest.raises(SurgeonError, match="is a named pipe, not a table"):
        open_data(str(tmp_path))


def test_a_label_that_would_make_a_billion_classes(tmp_path: Path) -> None:
    with pytest.raises(SurgeonError, match="The label 1000000000000 is not a class number"):
        open_data(str(table(tmp_path / "test.parquet", [0, 10**12])))


@pytest.mark.parametrize(
    "path", ["https://example.com/a.png", "hf://datasets/a/b/c.png", "zip://a.png::https://example.com/a.zip", "PIPE"]
)
def test_images_that_a_table_places_elsewhere(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_network(monkeypatch)
    pipe(tmp_path / "pipe")
    place = path.replace("PIPE", str(tmp_path / "pipe"))
    opened = open_data(str(table(tmp_path / "data" / "test.parquet", [0, 1], [place, None])))
    with pytest.raises(SurgeonError, match=r"which is not fetched|which are not fetched|not a regular file"):
        opened.image(0)


# --- what surgeon itself has left in folders ------------------------------------------------------------


def test_a_journal_that_is_a_pipe(tmp_path: Path) -> None:
    pipe(tmp_path / "journal")
    with pytest.raises(SurgeonError, match="is a named pipe, not a journal"):
        Journal(tmp_path / "journal", {}, overwrite=False)


def test_a_card_with_a_bomb_is_not_sent(tmp_path: Path) -> None:
    folder = surgeon.save(surgeon.convert(open_model("digits-resnet8").model, "ghost"), tmp_path / "net")
    (folder / "README.md").write_text(f"---\n{BOMB}---\n")
    with pytest.raises(SurgeonError, match="is not valid: it has more than"):
        check_card(folder, "")
