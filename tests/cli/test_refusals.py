"""Wrong input: one sentence that says what is wrong and what to do next, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.running import contents, refusal

RANDOM = "--no-pretrained"


@pytest.fixture(autouse=True)
def _nothing_is_written(here: Path) -> Iterator[None]:
    yield
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("model", "has"),
    [("vit_tiny_patch16_224", "25 LayerNorm"), ("convnext_atto", "17 LayerNorm2d")],
)
@pytest.mark.parametrize("options", [[], ["--dry-run"], ["-o", "a/b"]], ids=["plain", "dry", "deep"])
def test_a_network_without_batchnorm_says_what_it_has(model: str, has: str, options: list[str]) -> None:
    said = refusal("convert", model, RANDOM, "--bn", "example-weighted", *options)
    assert "no BatchNorm" in said
    assert has in said


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("resnet5O", "resnet50"),
        ("cifar-resnet2", "cifar-resnet20"),
        ("digit-resnet8", "digits-resnet8"),
        ("torchvision:resnet5O", "torchvision:resnet50"),
        ("torchvision:efficientnet-b0", "torchvision:efficientnet_b0"),
    ],
)
@pytest.mark.parametrize("command", [["inspect"], ["convert", "--bn", "ghost"]], ids=lambda command: command[0])
def test_an_unknown_model_is_answered_with_the_closest(model: str, meant: str, command: list[str]) -> None:
    said = refusal(*command, model, RANDOM)
    assert f"no model {model!r}" in said
    assert "Did you mean" in said
    assert meant in said


def test_a_model_like_no_other() -> None:
    assert "surgeon ls models" in refusal("inspect", "qqqqqqqqqqqq")


@pytest.mark.parametrize("model", ["./nowhere", "some/where", "/nowhere/at/all"])
def test_a_folder_that_is_not_there(model: str) -> None:
    assert f"no folder {model!r}" in refusal("inspect", model)


@pytest.mark.parametrize(
    ("rewrite", "expected"),
    [
        ("gost", ["no rewrite 'gost'", "Did you mean ghost?"]),
        (
            "qqqq",
            [
                "no rewrite 'qqqq'",
                "Known: batch-group, example-weighted, ghost, instance-aware, ",
            ],
        ),
        ("ghost:sise=4", ["no option 'sise'", "Did you mean size?"]),
        ("ghost:qqqq=4", ["no option 'qqqq'", "size", "running"]),
        ("ghost:size=0", ["size='0'", "greater than or equal to 1"]),
        ("ghost:size=-3", ["size='-3'"]),
        ("ghost:size=abc", ["size='abc'", "integer"]),
        ("ghost:size=2.5", ["size='2.5'", "integer"]),
        ("ghost:running=best", ["running='best'", "'batch' or 'groups'"]),
        ("batch-group:channel_groups=0", ["channel_groups='0'"]),
        ("example-weighted:alpha=1.5", ["alpha='1.5'", "less than or equal to 1"]),
        ("example-weighted:alpha=-0.1", ["alpha='-0.1'", "greater than or equal to 0"]),
        ("example-weighted:alpha=abc", ["alpha='abc'", "number"]),
        ("example-weighted:alpha=nan", ["alpha='nan'"]),
        ("example-weighted:alpha=inf", ["alpha='inf'"]),
        ("example-weighted:alpha=", ["alpha=''"]),
        ("ghost:size", ["'ghost:size'", "'size' is not of the form key=value"]),
        ("ghost:4", ["'4' is not of the form key=value"]),
        (":size=4", ["':size=4' has no name"]),
        ("", ["'' has no name"]),
    ],
)
def test_a_wrong_rewrite_is_told_before_the_model_is_opened(
    rewrite: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surgeon.checkpoint.open_model", lambda *_, **__: pytest.fail("the model was opened"))
    said = refusal("convert", "resnet18", RANDOM, "--bn", rewrite)
    for part in expected:
        assert part in said


def test_a_wrong_number_is_not_called_a_wrong_tuple() -> None:
    """Who types a number wants to hear about numbers, not about the type of a list."""
    assert "tuple" not in refusal("convert", "resnet18", RANDOM, "--bn", "example-weighted:alpha=1.5")


def test_two_rewrites_of_the_same_phase() -> None:
    said = refusal("convert", "cifar-resnet20", RANDOM, "--bn", "ghost", "--bn", "batch-group:channel_groups=4")
    assert "'ghost' and 'batch-group' both change training" in said


def test_channel_groups_that_do_not_divide() -> None:
    said = refusal("convert", "cifar-resnet20", RANDOM, "--bn", "batch-group:channel_groups=7")
    assert "has 16 channels" in said
    assert "possible up to 64: 1, 2, 4, 8, 16" in said


@pytest.mark.parametrize(
    ("options", "selector"),
    [
        (["--bn", "ghost", "--layers", "blocks.*"], "'blocks.*'"),
        (["--bn", "ghost", "--layers", "layer1.*,blocks.*"], "'blocks.*'"),
        (["--bn", "ghost", "--layers", "stage7"], "'stage7'"),
        (["--bn", "ghost@head.*"], "'head.*'"),
    ],
)
def test_a_selector_without_match_says_what_exists(options: list[str], selector: str) -> None:
    said = refusal("convert", "cifar-resnet20", RANDOM, *options)
    assert f"No norm layer matches {selector}" in said
    assert "19 layers in bn1, layer1, layer2 and layer3" in said


def test_a_mistyped_layer_is_answered_with_the_closest() -> None:
    said = refusal("convert", "cifar-resnet20", RANDOM, "--bn", "ghost", "--layers", "layer1.0.bn3")
    assert "Did you mean" in said
    assert "layer1.0.bn" in said


def test_selectors_that_exclude_each_other() -> None:
    said = refusal("convert", "cifar-resnet20", RANDOM, "--bn", "ghost@layer1.*", "--layers", "layer2.*")
    assert "No layer is left" in said


def test_groupnorm_says_how_to_start() -> None:
    said = refusal("convert", "resnet50_gn", RANDOM, "--bn", "example-weighted", "--dry-run")
    assert "alpha=1" in said
    assert "collect_statistics" in said


# --- weights


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "resnet18.pth").touch()
    said = refusal("convert", "resnet18", "--weights", tmp_path / "resnet81.pth", "--bn", "ghost")
    assert "no weights file" in said
    assert "Did you mean resnet18.pth?" in said


def test_weights_for_another_number_of_classes(weights_of: Callable[[str], Path]) -> None:
    weights = weights_of("test_resnet")
    said = refusal("convert", "test_resnet", "--weights", weights, "--num-classes", "10", "--bn", "ghost")
    assert "fc.weight 1000x96 instead of 10x96" in said
    assert "pass --num-classes 1000" in said


def test_weights_of_another_architecture(weights_of: Callable[[str], Path]) -> None:
    said = refusal("convert", "cifar-resnet20", "--weights", weights_of("test_resnet"), "--bn", "ghost")
    assert "missing (" in said
    assert "unexpected (" in said
    assert "another architecture" in said


def test_our_own_networks_have_no_pretrained_weights() -> None:
    said = refusal("convert", "cifar-resnet20", "--bn", "ghost")
    assert "no pretrained weights for 'cifar-resnet20'" in said
    assert "--weights" in said
    assert "--no-pretrained" in said


def test_the_classes_of_a_checkpoint_are_fixed() -> None:
    assert "--num-classes" in refusal("convert", "digits-resnet8", "--num-classes", "3", "--bn", "ghost")


# --- folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def test_a_folder_that_holds_no_model(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    said = refusal("convert", folder, "--bn", "ghost")
    assert "neither a surgeon checkpoint" in said
    assert contents(folder) == {"notes.txt": b"mine"}


def test_a_timm_folder_that_is_not_there(tmp_path: Path) -> None:
    said = refusal("convert", f"local-dir:{tmp_path / 'nowhere'}", "--bn", "ghost")
    assert "nowhere" in said
    assert "hub" not in said  # it has nothing to do with a local folder


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": b"{"},
        {"config.json": b"[]"},
        {"config.json": b'{"architecture": "resnet5O", "num_classes": 10, "pretrained_cfg": {}}'},
        {"config.json": b'{"architecture": "test_resnet", "num_classes": 10, "pretrained_cfg": {}}'},
        {
            "config.json": b'{"architecture": "test_resnet", "num_classes": 10, "pretrained_cfg": {}}',
            "model.safetensors": b"broken",
        },
    ],
    ids=["cut config", "list as config", "unknown architecture", "no weights", "broken weights"],
)
def test_a_damaged_timm_folder(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    said = refusal("convert", folder, "--bn", "ghost")
    assert "folder" in said
    assert "Unexpected" not in said
