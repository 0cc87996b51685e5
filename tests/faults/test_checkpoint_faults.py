"""Damaged checkpoints: `load` and `verify` say what is wrong, and never hand out another network."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import surgeon
from surgeon.checkpoint import open_model
from surgeon.checkpoint.record import find_problems
from surgeon.core.errors import SurgeonError
from tests.cli.running import FILES, invoke
from tests.faults.conftest import converted

Damage = Callable[[Path], None]


def header_length(weights: bytes) -> int:
    return 8 + int.from_bytes(weights[:8], "little")


def flip(path: Path, place: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def edit(name: str, change: Callable[[Any], None]) -> Damage:
    def damage(folder: Path) -> None:
        content = json.loads((folder / name).read_text("utf-8"))
        change(content)
        (folder / name).write_text(json.dumps(content, indent=2))

    return damage


def write(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content) and None


def cut(name: str, keep: float) -> Damage:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(keep * len(content))])

    return damage


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def flip_first_data_bit(folder: Path) -> None:
    path = folder / "model.safetensors"
    flip(path, header_length(path.read_bytes()))


def flip_last_data_bit(folder: Path) -> None:
    flip(folder / "model.safetensors", -1, bit=7)


def put_plain_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path), path, {"format": "pt"})


def put_weights_of_another_surgery(folder: Path) -> None:
    other = surgeon.save(converted("example-weighted:alpha=0.25"), folder.parent / "other")
    shutil.copy(other / "model.safetensors", folder)


def put_other_weights_of_the_same_surgery(folder: Path) -> None:
    model = converted()
    with torch.no_grad():
        model.get_parameter("linear.bias").add_(1)
    other = surgeon.save(model, folder.parent / "other")
    shutil.copy(other / "model.safetensors", folder)


def put_weights_with_edited_record(folder: Path) -> None:
    """The same tensors under another alpha, in both records: only the hash can tell."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    edited = {**metadata, "surgeon": metadata["surgeon"].replace('"alpha":0.5', '"alpha":0.25')}
    assert edited != metadata
    save_file(load_file(path), path, edited)
    record = folder / "surgery.json"
    record.write_text(record.read_text().replace('"alpha": 0.5', '"alpha": 0.25'))


def first_rewrite(record: Any) -> dict[str, Any]:
    (rewrite,) = (r for r in record["plan"]["operations"][0]["rewrites"] if r["name"] == "example-weighted")
    return rewrite["options"]


FAULTS: dict[str, tuple[Damage, str]] = {
    "weights cut in the data": (cut("model.safetensors", 0.9), "model.safetensors is truncated"),
    "weights cut in the header": (cut("model.safetensors", 0.001), "model.safetensors is truncated"),
    "weights empty": (write("model.safetensors", b""), "model.safetensors is truncated or not a safetensors file"),
    "weights of another format": (write("model.safetensors", b"PK\x03\x04" * 50), "not a safetensors file"),
    "first data bit flipped": (flip_first_data_bit, "model.safetensors .* sha256 has changed"),
    "last data bit flipped": (flip_last_data_bit, "model.safetensors .* sha256 has changed"),
    "plain weights": (put_plain_weights, "carries no surgery record"),
    "weights of another surgery": (put_weights_of_another_surgery, r"alpha is 0.5 there, but 0.25 inside"),
    "other weights of the same surgery": (put_other_weights_of_the_same_surgery, "sha256 has changed"),
    "both records edited": (put_weights_with_edited_record, "model.safetensors .* sha256 has changed"),
    "alpha edited": (
        edit("surgery.json", lambda record: first_rewrite(record).update(alpha=0.9)),
        r"surgery.json was edited: plan.operations\[0\].rewrites\[\d\].options.alpha is 0.9 there, but 0.5 inside",
    ),
    "layer removed": (
        edit("surgery.json", lambda record: record["plan"]["operations"].pop()),
        "surgery.json was edited: plan.operations",
    ),
    "base weights edited": (
        edit("surgery.json", lambda record: record["base_weights"].update(origin="mine")),
        "base_weights.origin is 'mine' there",
    ),
    "architecture edited": (
        edit("surgery.json", lambda record: record["source"].update(architecture="cifar-resnet20")),
        "source.architecture is 'cifar-resnet20' there",
    ),
    "unknown rewrite": (
        edit("surgery.json", lambda record: record["plan"]["operations"][0]["rewrites"][0].update(name="magic")),
        "surgery.json was edited: .*name is 'magic' there",
    ),
    "hash edited": (
        edit("surgery.json", lambda record: record["files"].update({"model.safetensors": "0" * 64})),
        "sha256",
    ),
    "hashes removed": (edit("surgery.json", lambda record: record["files"].clear()), "sha256|files"),
    "field removed": (edit("surgery.json", lambda record: record.pop("plan")), "surgery.json .*plan: Field required"),
    "field added": (edit("surgery.json", lambda record: record.update(note="hi")), "surgery.json .*note: Extra"),
    "record cut": (cut("surgery.json", 0.5), "surgery.json is not readable JSON"),
    "record empty": (write("surgery.json", b""), "surgery.json is not readable JSON"),
    "record no text": (write("surgery.json", b"\xff\xfe\x00\x81"), "surgery.json is not readable JSON"),
    "record a list": (write("surgery.json", b"[]"), "surgery.json is not a valid surgery record"),
    "record nothing": (write("surgery.json", b"null"), "surgery.json is not a valid surgery record"),
    "newer schema": (edit("surgery.json", lambda record: record.update(schema_version=999)), "newer surgeon .*999"),
    "older schema": (edit("surgery.json", lambda record: record.update(schema_version=0)), "schema_version is 0"),
    "config edited": (edit("config.json", lambda c: c.update(num_classes=7)), "config.json .* sha256 has changed"),
    "config empty": (write("config.json", b""), "config.json .* sha256 has changed"),
    **{f"no {name}": (remove(name), f"has no {name}") for name in FILES if name != "README.md"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_damage_is_told_by_load_and_verify(fault: str, checkpoint: Path) -> None:
    damage, expected = FAULTS[fault]
    damage(checkpoint)
    with pytest.raises(SurgeonError, match=expected) as caught:
        surgeon.load(checkpoint)
    assert "\n" not in str(caught.value)
    outcome = invoke("verify", checkpoint)
    assert outcome.code == 3
    assert re.search(expected, outcome.stderr)
    assert "FAILED" in outcome.stdout


@pytest.mark.parametrize("fault", ["record cut", "newer schema", "first data bit flipped"])
def test_damage_is_told_by_inspect_and_convert(fault: str, checkpoint: Path) -> None:
    damage, expected = FAULTS[fault]
    damage(checkpoint)
    for arguments in (["inspect", checkpoint], ["convert", checkpoint, "--bn", "ghost", "-o", checkpoint.parent / "x"]):
        outcome = invoke(*arguments)
        assert outcome.code == 2
        assert re.search(expected, outcome.stderr)
        assert "surgeon verify" in outcome.stderr  # and how to learn more


def test_an_undamaged_copy_loads_and_verifies(checkpoint: Path) -> None:
    assert surgeon.load(checkpoint).surgery == converted().surgery
    assert invoke("verify", checkpoint).code == 0


def test_the_card_may_go(checkpoint: Path) -> None:
    (checkpoint / "README.md").unlink()
    surgeon.load(checkpoint)


def test_a_flipped_bit_anywhere_in_the_header_is_told(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    whole = path.read_bytes()
    length = header_length(whole)
    places = [*range(16), *range(16, length, length // 100)]
    for number, place in enumerate(places):
        flip(path, place, bit=number % 8)
        assert find_problems(checkpoint), f"bit {number % 8} of byte {place}"
        path.write_bytes(whole)


def test_a_flipped_bit_anywhere_in_the_record_is_told_or_harmless(checkpoint: Path) -> None:
    """A changed space is harmless; whatever loads must be the same network."""
    path = checkpoint / "surgery.json"
    whole = path.read_bytes()
    plan = open_model(str(checkpoint)).model.surgery
    for number, place in enumerate(range(0, len(whole), 29)):
        flip(path, place, bit=number % 7)
        if not find_problems(checkpoint):
            assert surgeon.load(checkpoint).surgery == plan
        path.write_bytes(whole)


def test_a_newer_rewrite_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema is the same, but a rewrite has learnt something since."""
    model = converted()
    operations = tuple(
        operation.model_copy(
            update={"rewrites": tuple(r.model_copy(update={"version": r.version + 1}) for r in operation.rewrites)}
        )
        for operation in model.surgery.operations
    )
    with monkeypatch.context() as patch:
        patch.setattr("surgeon.checkpoint.writing.model_card", lambda *_: "")
        model.surgery = model.surgery.model_copy(update={"operations": operations})
        surgeon.save(model, tmp_path / "newer")
    with pytest.raises(SurgeonError, match="has version 2, this surgeon supports up to 1"):
        surgeon.load(tmp_path / "newer")
    outcome = invoke("verify", tmp_path / "newer")
    assert outcome.code == 3
    assert "has version 2" in outcome.stderr


def test_what_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SurgeonError, match="is not a folder"):
        surgeon.load(tmp_path / "nowhere")
