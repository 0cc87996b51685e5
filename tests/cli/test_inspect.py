"""`surgeon inspect`: every normalisation layer, and what state it is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file, save_file

from surgeon.cli import inspect, output
from surgeon.cli.layer_groups import stage_of
from surgeon.surgery.inspect import Inspection
from tests.cli.running import document, done


def test_one_json_document_with_every_layer() -> None:
    found = document("inspect", "cifar-resnet20", "--no-pretrained")
    assert (found["model"], found["parameters"], found["norm_parameters"]) == ("cifar-resnet20", 269_722, 1376)
    assert found["kinds"] == {"BatchNorm2d": 19}
    assert len(found["layers"]) == 19
    assert found["layers"][0] == {
        "name": "bn1",
        "kind": "BatchNorm2d",
        "channels": 16,
        "eps": 1e-5,
        "momentum": 0.1,
        "fused": [],
        "rewrites": [],
        "health": ["statistics never updated"],
        "norm_free_path": True,
    }
    assert Counter(layer["channels"] for layer in found["layers"]) == {16: 7, 32: 6, 64: 6}


def test_the_branch_end_of_each_block_has_a_norm_free_path() -> None:
    layers = document("inspect", "cifar-resnet20", "--no-pretrained")["layers"]
    open_paths = {layer["name"] for layer in layers if layer["norm_free_path"]}
    assert open_paths == {"bn1", *(f"layer{stage}.{block}.bn2" for stage in (1, 2, 3) for block in (0, 1, 2))}


def test_shows_what_is_fused() -> None:
    outcome = done("inspect", "efficientnet_b0", "--no-pretrained", "--all")
    rows = [row for row in outcome.stdout.splitlines() if "BatchNormAct2d" in row]
    assert len(rows) == 49
    assert sum("SiLU" in row for row in rows) == 33  # the 16 linear bottlenecks have no activation
    assert "49 BatchNormAct2d" in outcome.stderr
    assert "weights: random" in outcome.stderr


def test_a_summary_by_stage_and_kind() -> None:
    rows = done("inspect", "efficientnet_b0", "--no-pretrained").stdout.splitlines()
    assert len(rows) < 20
    (stage,) = (row for row in rows if "blocks.2 " in row)
    assert [cell.strip() for cell in stage.split("│")[1:-1]] == [
        *("blocks.2", "6", "BatchNormAct2d", "40–240", "4 of 6: SiLU", "statistics never updated", "0 of 6"),
    ]


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("bn1", "bn1"),
        ("", ""),
        ("layer1.0.bn2", "layer1"),
        ("layer2.0.downsample.1", "layer2"),
        ("blocks.3.0.bn1", "blocks.3"),
        ("features.denseblock1.denselayer2.norm1", "features.denseblock1"),
        ("features.17", "features"),
        ("stem.bn", "stem"),
    ],
)
def test_what_a_stage_is(name: str, stage: str) -> None:
    assert stage_of(name) == stage


def test_tells_sick_statistics(weights_of: Callable[[str], Path], here: Path) -> None:
    state = load_file(weights_of("test_resnet"))
    state["bn1.running_var"][:3] = 0
    state["layer1.0.bn1.running_mean"][1] = torch.nan
    state["layer1.0.bn2.running_var"][0] = -1
    save_file(state, here / "sick.safetensors")
    found = document("inspect", "test_resnet", "--weights", "sick.safetensors")
    health = {layer["name"]: layer["health"] for layer in found["layers"] if layer["health"]}
    channels = {layer["name"]: layer["channels"] for layer in found["layers"]}
    assert found["unhealthy"] == 3
    assert health == {
        "bn1": [f"zero variance in 3 of {channels['bn1']} channels"],
        "layer1.0.bn1": ["running_mean has 1 NaN or infinite"],
        "layer1.0.bn2": [f"negative variance in 1 of {channels['layer1.0.bn2']} channels"],
    }


def test_the_bundled_model_is_healthy_and_shows_its_rewrites() -> None:
    found = document("inspect", "digits-resnet8")
    assert found["kinds"] == {"BatchNorm2d": 7}
    assert found["unhealthy"] == 0
    assert {rewrite for layer in found["layers"] for rewrite in layer["rewrites"]} == {"ghost:size=4,running=batch"}


def test_the_bundled_model_can_have_random_weights() -> None:
    found = document("inspect", "digits-resnet8", "--no-pretrained")
    assert found["unhealthy"] == 7
    assert not any(layer["rewrites"] for layer in found["layers"])


def test_a_network_without_batchnorm_is_shown_too() -> None:
    assert document("inspect", "vit_tiny_patch16_224", "--no-pretrained")["kinds"] == {"LayerNorm": 25}


def test_a_narrow_terminal_gets_what_all_layers_have_in_common_in_the_title() -> None:
    inspection = Inspection.model_validate(document("inspect", "digits-resnet8"))

    def shown(width: int) -> Table:
        told: list[str | Table] = []
        with output.told_to(told.append, Console(width=width, file=StringIO())):
            inspect.tell(inspection, every=True)
        return next(one for one in told if isinstance(one, Table))

    wide, narrow = shown(160), shown(80)
    assert "All:" not in str(wide.title)
    assert len(wide.columns) == 9
    assert "All: kind BatchNorm2d, eps 1e-05, momentum 0.1" in str(narrow.title)
    assert [str(column.header) for column in narrow.columns] == ["layer", "channels", "norm-free path to output"]
    assert len(narrow.rows) == len(wide.rows) == 7
