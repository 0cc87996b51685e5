"""Records that somebody else wrote: each is loaded as what it says, or refused in a sentence."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import constants

import surgeon
from surgeon.checkpoint import open_model, save_checkpoint
from surgeon.commands.verify import verify
from surgeon.core.errors import SurgeonError
from surgeon.models.allocation import TooLargeError, bounded_by
from tests.cli.running import invoke
from tests.faults.forging import CONFIG, SURGERY, WEIGHTS, forge, forge_text, mutations, nested, record_of
from tests.histories import every_step

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that uses every part of the record."""
    rewrites = ("example-weighted:alpha=0.5", "ghost:size=4", "split", "moex", "crossnorm")
    loaded = open_model("digits-resnet8")
    loaded.model = surgeon.convert(loaded.model, *rewrites)
    surgeon.mix_branches(loaded.model, 0.25)
    return save_checkpoint(loaded, tmp_path_factory.mktemp("rich") / "checkpoint", *every_step())


@pytest.fixture(scope="session")
def of_timm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    model = surgeon.convert(timm.create_model("test_resnet"), "example-weighted:alpha=0.5")
    return surgeon.save(model, tmp_path_factory.mktemp("timm") / "checkpoint")


# --- what happens meanwhile -----------------------------------------------------------------------------

_events: list[tuple[str, str]] | None = None


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _events is not None and (event == "open" or event.startswith(("socket.", "subprocess.", "os.system"))):
        _events.append((event, str(arguments[0]) if arguments else ""))


sys.addaudithook(_listen)


@contextmanager
def nothing_but(folder: Path) -> Iterator[None]:
    """Fail if a file outside the folder and the installed libraries is opened, or if the network is used."""
    global _events
    _events = seen = []
    try:
        yield
    finally:
        _events = None
    libraries = [ROOT, *(Path(path) for path in sysconfig.get_paths().values()), Path(timm.__file__).parents[1]]
    places = [folder.resolve(), *(place.resolve() for place in libraries)]
    for event, name in seen:
        if event == "open" and not name.isdigit() and not name.startswith(("/proc/", "/sys/", "/dev/null")):
            path = Path(name).resolve()
            assert any(path.is_relative_to(place) for place in places), f"{name} was opened"
        else:
            assert not event.startswith(("socket.", "subprocess.", "os.")), (event, name)


def test_the_watch_sees_a_file_outside(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with pytest.raises(AssertionError, match="secret was opened"), nothing_but(tmp_path / "folder"):
        (tmp_path / "secret").read_text()


def test_an_honest_checkpoint_needs_nothing_else(of_timm: Path) -> None:
    with nothing_but(of_timm):
        surgeon.load(of_timm)
        assert verify(of_timm).passed


SOURCES: dict[str, tuple[dict[str, Any], str]] = {
    "a name on the hub": ({"architecture": "hf-hub:timm/resnet18.a1_in1k"}, "not an architecture of timm"),
    "the old form of it": ({"architecture": "hf_hub:timm/resnet18.a1_in1k"}, "not an architecture of timm"),
    "a folder": ({"architecture": "local-dir:OTHER"}, "not an architecture of timm"),
    "a tag": ({"architecture": "resnet18.a1_in1k"}, "not an architecture of timm"),
    "no name": ({"architecture": ""}, "not an architecture of timm"),
    "a name of torchvision's that is none": (
        {"library": "torchvision", "architecture": "get_model"},
        "not an architecture of torchvision",
    ),
    "a name of ours that is none": ({"library": "surgeon", "architecture": "__class__"}, "not an architecture"),
    "a file": ({"arguments": {"checkpoint_path": "SECRET"}}, "'checkpoint_path', which a file may not ask for"),
    "pretrained weights": ({"arguments": {"pretrained": True}}, "'pretrained', which a file may not ask for"),
    "settings": ({"arguments": {"pretrained_cfg": {"file": "SECRET"}}}, "'pretrained_cfg', which a file may not"),
    "settings on top": ({"arguments": {"pretrained_cfg_overlay": {"file": "SECRET"}}}, "which a file may not ask for"),
    "a cache": ({"arguments": {"cache_dir": "OTHER"}}, "'cache_dir', which a file may not ask for"),
    "weights of torchvision": (
        {"library": "torchvision", "architecture": "resnet18", "arguments": {"weights": "DEFAULT"}},
        "'weights', which a file may not ask for",
    ),
    "a backbone of torchvision": (
        {"library": "torchvision", "architecture": "fcn_resnet50", "arguments": {"weights_backbone": "DEFAULT"}},
        "'weights_backbone', which a file may not ask for",
    ),
    "a path as a value": ({"arguments": {"global_pool": "SECRET"}}, "cannot be built with global_pool="),
    "a URL as a value": ({"arguments": {"act_layer": "https://example.com/x"}}, "cannot be built with act_layer="),
    "a mapping as a value": ({"arguments": {"act_layer": {"a": 1}}}, "cannot be built with act_layer="),
    "a layer that is none": ({"arguments": {"act_layer": "nothing_of_that_name"}}, "timm cannot build 'test_resnet'"),
    "a terabyte of classes": ({"arguments": {"num_classes": 16_000_000}}, "far larger than its weights file"),
    "a terabyte of channels": ({"arguments": {"in_chans": 16_000_000}}, "far larger than its weights file"),
    "a million layers": ({"arguments": {"layers": [1_000_000, 1, 1, 1]}}, "far larger than its weights file"),
    "more than all memory": ({"arguments": {"num_classes": 2**62}}, "cannot be built with num_classes="),
}


@pytest.mark.parametrize("case", SOURCES)
def test_a_record_cannot_ask_for_anything_else(
    case: str, of_timm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    changes, expected = SOURCES[case]
    for name in ("secret.pth", "other/config.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(of_timm / CONFIG, tmp_path / name)
    text = json.dumps(changes).replace("SECRET", str(tmp_path / "secret.pth")).replace("OTHER", str(tmp_path / "other"))
    folder = shutil.copytree(of_timm, tmp_path / "folder")
    record = record_of(folder)
    record["source"].update(json.loads(text))
    forge(folder, record)
    with nothing_but(folder):
        with pytest.raises(SurgeonError, match=expected):
            surgeon.load(folder)
        outcome = invoke("verify", folder)
    assert outcome.code == 3
    assert "failed verification" in outcome.stderr


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"architecture": "hf-hub:timm/resnet18"}, "not an architecture of timm"),
        ({"architecture": 7}, "names no architecture"),
        ({"model_args": {"checkpoint_path": "SECRET"}}, "which a file may not ask for"),
        ({"model_args": {"cache_dir": "SECRET"}}, "which a file may not ask for"),
        ({"model_args": [1]}, "names no architecture"),
        ({"model_args": {"num_classes": 16_000_000}}, "far larger than its weights file"),
        ({"pretrained_cfg": {"architecture": "hf-hub:timm/resnet18"}}, "not an architecture of timm"),
        ({"pretrained_cfg": {"mean": "x"}}, "is damaged"),
        ({"pretrained_cfg": {"input_size": [3, 10**9, 10**9]}}, "is damaged"),
        ({"pretrained_cfg": {"nonsense": 1}}, "is damaged"),
        ({"pretrained_cfg": []}, "is damaged"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "local-dir:"])
def test_a_folder_of_timm_cannot_either(
    prefix: str, changes: dict[str, Any], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    folder = tmp_path / "folder"
    timm.models.save_for_hf(timm.create_model("test_resnet"), str(folder))
    config = json.loads((folder / CONFIG).read_text())
    for key, value in changes.items():
        config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
    (folder / CONFIG).write_text(json.dumps(config).replace("SECRET", str(tmp_path / "secret.pth")))
    (tmp_path / "secret.pth").write_bytes(b"secret")
    with nothing_but(folder), pytest.raises(SurgeonError, match=expected):
        open_model(f"{prefix}{folder}")


@pytest.mark.parametrize(
    "arguments", [{}, {"drop_rate": 0.1, "drop_path_rate": 0.1}, {"in_chans": 1}, {"act_layer": "silu"}]
)
def test_ordinary_arguments_are_kept(arguments: dict[str, Any], tmp_path: Path) -> None:
    """What people do build networks with goes from timm's folder into a checkpoint and back."""
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=7, **arguments).eval()
    timm.models.save_for_hf(model, str(tmp_path / "theirs"), model_args={"num_classes": 7, **arguments})
    loaded = open_model(str(tmp_path / "theirs"))
    surgeon.save(surgeon.convert(loaded.model, "ghost"), tmp_path / "ours")
    again = surgeon.load(tmp_path / "ours")
    images = torch.randn(2, arguments.get("in_chans", 3), 32, 32)
    torch.testing.assert_close(again(images), model(images))
    assert verify(tmp_path / "ours").passed


def test_a_bound_on_memory_lets_ordinary_networks_be_built() -> None:
    for name in ("resnet50", "efficientnet_b0", "mobilevit_s"):
        free = timm.create_model(name)
        with bounded_by(4 * sum(p.numel() for p in free.parameters())):
            timm.create_model(name)


def test_a_bound_on_memory_is_kept() -> None:
    makers: list[Callable[[], object]] = [
        lambda: torch.empty(10**6, 10**6),
        lambda: torch.randn(10**12),
        lambda: torch.arange(10**12),
        lambda: torch.eye(10**6),
        lambda: torch.zeros(10**6, 1) + torch.zeros(1, 10**6),
        lambda: [torch.zeros(10**6) for _ in range(10**9)],
    ]
    for make in makers:
        with pytest.raises(TooLargeError), bounded_by(10):
            make()


# --- made-up records ------------------------------------------------------------------------------------


def attempt(folder: Path, told: str) -> None:
    """Load and verify, which succeed or say why not."""
    said = ""
    try:
        surgeon.load(folder)
    except SurgeonError as error:
        said = str(error)
    except BaseException as error:
        raise AssertionError(f"load raised {type(error).__name__} on {told}") from error
    assert said.isprintable(), told
    assert len(said) < 3000, told
    outcome = invoke("verify", folder)
    assert outcome.code in (0, 2, 3), (told, outcome.stderr)
    assert "Unexpected" not in outcome.stderr, (told, outcome.stderr)
    assert outcome.stderr.count("\n") == (outcome.code != 0), (told, outcome.stderr)


@pytest.mark.parametrize("seed", range(4))
def test_made_up_records_are_told(seed: int, rich: Path, of_timm: Path, tmp_path: Path) -> None:
    """Every field with other types, huge numbers, nulls, deep lists, wrong names, more and fewer entries."""
    for number, pristine in enumerate((rich, of_timm)):
        for told, record in mutations(record_of(pristine), 40, seed=2 * seed + number):
            folder = shutil.copytree(pristine, tmp_path / "folder")
            forge(folder, record)
            attempt(folder, told)
            shutil.rmtree(folder)


def test_made_up_histories_are_told_and_have_a_card(rich: Path, tmp_path: Path) -> None:
    """Also a history that is as good as any other one is shown without trouble, whatever its figures and names."""
    record, shown = record_of(rich), 0
    for told, changed in mutations({"history": record["history"]}, 160, seed=7):
        folder = shutil.copytree(rich, tmp_path / "folder")
        forge(folder, {**record, **changed})
        attempt(folder, told)
        outcome = invoke("card", folder)
        assert outcome.code in (0, 3), (told, outcome.stderr)
        assert "Unexpected" not in outcome.stderr, (told, outcome.stderr)
        shown += outcome.code == 0
        shutil.rmtree(folder)
    assert shown > 5


def test_records_that_were_edited_without_skill_are_told(rich: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(rich, tmp_path / "folder")
    for told, record in mutations(record_of(rich), 100, seed=99):
        (folder / SURGERY).write_text(json.dumps(record))
        attempt(folder, told)


TEXTS: dict[str, Callable[[str], str]] = {
    "a key twice": lambda text: text.replace('"source"', '"surgeon_version": "0", "source"', 1),
    "not a number": lambda text: text.replace("0.25", "NaN", 1),
    "infinity": lambda text: text.replace("0.25", "-Infinity", 1),
    "an endless number": lambda text: text.replace("0.25", "9" * 100_000, 1),
    "a great exponent": lambda text: text.replace("0.25", "1e999999999", 1),
    "a great depth": lambda text: text.replace("0.25", "[" * 200_000 + "]" * 200_000, 1),
    "a depth that Python reads": lambda text: text.replace("0.25", json.dumps(nested(300)), 1),
    "a hundred thousand keys": lambda text: text.replace("{", "{" + "".join(f'"k{i}": 0,' for i in range(10**5)), 1),
    "half a character": lambda text: text.replace("digits", "\\ud800", 1),
    "control characters": lambda text: text.replace("digits", "\\u0000\\u001b[31m\\n\\u202e", 1),
    "a text instead": lambda _: '"surgery"',
    "more than it may have": lambda text: text + " " * (1 << 24),
}


@pytest.mark.parametrize("case", TEXTS)
def test_odd_json_is_told(case: str, rich: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(rich, tmp_path / "folder")
    text = (folder / SURGERY).read_text()
    assert TEXTS[case](text) != text
    (folder / SURGERY).write_text(TEXTS[case](text))
    attempt(folder, case)
    (folder / SURGERY).write_text(text)
    forge_text(folder, TEXTS[case](text))
    attempt(folder, f"{case}, inside the weights")
    assert not verify(folder).passed


@pytest.mark.parametrize("seed", range(2))
def test_headers_of_weights_that_were_tampered_with_are_told(seed: int, rich: Path, tmp_path: Path) -> None:
    draw = random.Random(seed)
    folder = shutil.copytree(rich, tmp_path / "folder")
    whole = (folder / WEIGHTS).read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(25):
        content = bytearray(whole)
        for _ in range(draw.choice((1, 2, 8))):
            content[draw.choice((draw.randrange(8), draw.randrange(8, header)))] = draw.randrange(256)
        if draw.random() < 0.3:
            del content[draw.randrange(len(content)) :]
        (folder / WEIGHTS).write_bytes(content)
        attempt(folder, f"seed {seed}")


@pytest.mark.parametrize("name", [SURGERY, CONFIG, WEIGHTS])
def test_what_is_no_file_is_told(name: str, rich: Path, tmp_path: Path) -> None:
    """Opening a pipe would wait for ever."""
    folder = shutil.copytree(rich, tmp_path / "folder")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    attempt(folder, name)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    attempt(folder, name)
