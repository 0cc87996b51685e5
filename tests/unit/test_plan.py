"""From what is asked for to an explicit list of layers, and every way in which that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from surgeon.core.errors import SurgeonError, listing
from surgeon.norms import norms
from surgeon.surgery.apply import convert
from surgeon.surgery.plan import Operation, ResolvedPlan, Rewrite, RewriteRequest, resolve_plan
from surgeon.surgery.selectors import select
from tests.helpers import SMALL_RESNET_NORMS, Snapshot, small_resnet


def resolve(model: nn.Module, *rewrites: str, layers: str | None = None) -> ResolvedPlan:
    return resolve_plan(model, [RewriteRequest.parse(text) for text in rewrites], layers)


def options_by_layer(plan: ResolvedPlan, rewrite: str, option: str) -> dict[str, Any]:
    return {
        operation.layer: each.options[option]
        for operation in plan.operations
        for each in operation.rewrites
        if each.name == rewrite
    }


# ---- requests ----


@pytest.mark.parametrize(
    ("text", "name", "options", "selector"),
    [
        ("ghost", "ghost", {}, None),
        ("ghost:size=16", "ghost", {"size": "16"}, None),
        ("ghost: size = 16 , running=groups", "ghost", {"size": "16", "running": "groups"}, None),
        ("ghost@layer4.*", "ghost", {}, "layer4.*"),
        ("ghost@layer[34].*:size=4", "ghost", {"size": "4"}, "layer[34].*"),
        ("ghost@stem,last:size=4", "ghost", {"size": "4"}, "stem,last"),
        ("ghost@depth=0.5-1:size=4", "ghost", {"size": "4"}, "depth=0.5-1"),
    ],
)
def test_a_request_is_name_selector_and_options(
    text: str, name: str, options: Mapping[str, str], selector: str | None
) -> None:
    assert RewriteRequest.parse(text) == RewriteRequest(name=name, options=dict(options), selector=selector)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "has no name"), (":size=4", "has no name"), ("@layer1.*", "has no name"), ("ghost:16", "'16' is not of the")],
)
def test_a_malformed_request_is_refused(text: str, message: str) -> None:
    with pytest.raises(SurgeonError, match=message):
        RewriteRequest.parse(text)


# ---- selectors ----


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("*", SMALL_RESNET_NORMS),
        ("bn1", ["bn1"]),
        ("*.bn2", ["layer1.0.bn2", "layer2.0.bn2", "layer3.0.bn2"]),
        ("layer[23].*", SMALL_RESNET_NORMS[3:]),
        ("layer[!23].*", SMALL_RESNET_NORMS[1:3]),
        ("stem", ["bn1"]),
        ("stage2", ["layer2.0.bn1", "layer2.0.bn2"]),
        ("last", ["layer3.0.bn2"]),
        ("depth=0-1", SMALL_RESNET_NORMS),
        ("depth=0.5-1", SMALL_RESNET_NORMS[3:]),
        ("depth=0-0.5", SMALL_RESNET_NORMS[:4]),
        ("depth=1-1", SMALL_RESNET_NORMS[-1:]),
        ("last,stem", ["bn1", "layer3.0.bn2"]),
        ("layer1.*, layer1.0.bn1 ,last,", ["layer1.0.bn1", "layer1.0.bn2", "layer3.0.bn2"]),
    ],
)
def test_a_selector_picks_layers_in_the_networks_order(selector: str, expected: list[str]) -> None:
    assert select(SMALL_RESNET_NORMS, selector) == expected
    assert [o.layer for o in resolve(small_resnet(), "ghost", layers=selector).operations] == expected
    assert [o.layer for o in resolve(small_resnet(), f"ghost@{selector}").operations] == expected


def test_a_comma_inside_brackets_belongs_to_the_glob() -> None:
    assert select(["a1", "a,", "b"], "a[1,]") == ["a1", "a,"]


@pytest.mark.parametrize(
    ("names", "selector", "expected"),
    [
        (["bn1", "blocks.0.0.bn1", "blocks.0.1.bn1", "blocks.1.0.bn1", "bn2"], "stage1", [1, 2]),
        (["bn1", "blocks.0.0.bn1", "blocks.0.1.bn1", "blocks.1.0.bn1", "bn2"], "stage2", [3]),
        (["bn1", "blocks.0.0.bn1"], "stem", [0]),
        (["stem.bn", "stages.0.0.bn", "stages.1.0.bn"], "stem", [0]),
        (["features.denseblock1.norm", "features.denseblock2.norm"], "stage2", [1]),
        ([""], "last", [0]),
        (["only"], "depth=0.5-1", [0]),
    ],
)
def test_stages_are_read_off_the_names_that_libraries_use(names: list[str], selector: str, expected: list[int]) -> None:
    assert select(names, selector) == [names[i] for i in expected]


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        ("layer9.*", ["'layer9.*'", "layer3.0.bn2"]),
        ("backbone.*", ["'backbone.*'", "7 layers in bn1, layer1, layer2 and layer3"]),
        ("stage4", ["'stage4'", "7 layers"]),
        ("stage0", ["'stage0'", "7 layers"]),
        ("layer1.0.bn3", ["'layer1.0.bn3'", "Did you mean", "layer1.0.bn1"]),
        ("bn1,nothing", ["'nothing'", "7 layers"]),
        ("depth=0.9-0.1", ["depth=0.9-0.1"]),
    ],
)
def test_a_selector_without_a_match_shows_what_exists(selector: str, shown: list[str]) -> None:
    model = small_resnet()
    snapshot = Snapshot(model)
    for ask in (lambda: resolve(model, "ghost", layers=selector), lambda: resolve(model, f"ghost@{selector}")):
        with pytest.raises(SurgeonError) as refusal:
            ask()
        for text in shown:
            assert text in str(refusal.value)
    snapshot.assert_unchanged()


@pytest.mark.parametrize("selector", ["depth=0.1.2-1", "depth=.-1"])
def test_a_malformed_depth_is_refused_in_a_sentence(selector: str) -> None:
    with pytest.raises(SurgeonError, match="depth"):
        resolve(small_resnet(), "ghost", layers=selector)


@pytest.mark.parametrize(
    ("rewrite", "layers"), [("ghost@layer1.*", "layer2.*"), ("ghost", " "), ("ghost", ","), ("ghost@,", None)]
)
def test_a_plan_that_rewrites_nothing_is_an_error(rewrite: str, layers: str | None) -> None:
    with pytest.raises(SurgeonError):
        resolve(small_resnet(), rewrite, layers=layers)


def test_no_rewrite_is_an_error_that_names_the_choices() -> None:
    with pytest.raises(SurgeonError, match="ghost"):
        convert(small_resnet())


# ---- options per layer ----


def test_options_can_be_a_mapping_from_selectors_where_later_ones_win() -> None:
    model = convert(small_resnet(), "example-weighted", alpha={"*": 0.02, "layer3.*": 0.3, "last": 0.5})
    expected = dict.fromkeys(SMALL_RESNET_NORMS, 0.02) | {"layer3.0.bn1": 0.3, "layer3.0.bn2": 0.5}
    assert options_by_layer(model.surgery, "example-weighted", "alpha") == expected
    alphas = {name: model.get_submodule(name).alpha[0].item() for name in SMALL_RESNET_NORMS}
    assert alphas == pytest.approx(expected)


def test_layers_outside_a_mapping_keep_the_default() -> None:
    model = convert(small_resnet(), "example-weighted", alpha={"last": 0.5})
    assert options_by_layer(model.surgery, "example-weighted", "alpha") == dict.fromkeys(SMALL_RESNET_NORMS, 0.0) | {
        "layer3.0.bn2": 0.5
    }


def test_a_mapping_that_names_no_layer_is_an_error() -> None:
    with pytest.raises(SurgeonError, match="'layer7"):
        convert(small_resnet(), "example-weighted", alpha={"*": 0.1, "layer7.*": 0.5})


def test_options_can_be_a_list_with_one_value_per_selected_layer() -> None:
    values = [0.1, 0.2, 0.3]
    model = convert(small_resnet(), "example-weighted", alpha=values, layers="*.bn2")
    assert list(options_by_layer(model.surgery, "example-weighted", "alpha").values()) == values
    with pytest.raises(SurgeonError, match="lists 3 values, but 7 layers"):
        convert(small_resnet(), "example-weighted", alpha=values)


def test_a_tuple_is_one_value_per_channel() -> None:
    alpha = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    model = convert(small_resnet(), "example-weighted", alpha=alpha, layers="last")
    assert model.get_submodule("layer3.0.bn2").alpha.tolist() == pytest.approx(alpha)
    with pytest.raises(SurgeonError, match=r"bn1 has 6 channels, but alpha lists 2 values \(and 6 other layers"):
        convert(small_resnet(), "example-weighted", alpha=(0.1, 0.2))


def test_rewrites_can_go_to_different_layers() -> None:
    plan = resolve(
        small_resnet(),
        "ghost@stage1:size=2",
        "batch-group@stage2:channel_groups=3",
        "example-weighted@layer[23].*:alpha=0.1",
        "example-weighted@last:alpha=0.5",
    )
    assert {o.layer: tuple(r.name for r in o.rewrites) for o in plan.operations} == {
        "layer1.0.bn1": ("ghost",),
        "layer1.0.bn2": ("ghost",),
        "layer2.0.bn1": ("batch-group", "example-weighted"),
        "layer2.0.bn2": ("batch-group", "example-weighted"),
        "layer3.0.bn1": ("example-weighted",),
        "layer3.0.bn2": ("example-weighted",),
    }
    alphas = options_by_layer(plan, "example-weighted", "alpha")
    assert (alphas["layer3.0.bn1"], alphas["layer3.0.bn2"]) == (0.1, 0.5)


def test_a_selector_of_a_rewrite_and_the_layers_of_all_are_both_kept_to() -> None:
    plan = resolve(small_resnet(), "ghost@*.bn2", "example-weighted", layers="layer1.*")
    assert {o.layer: tuple(r.name for r in o.rewrites) for o in plan.operations} == {
        "layer1.0.bn1": ("example-weighted",),
        "layer1.0.bn2": ("ghost", "example-weighted"),
    }


def test_a_plan_spells_out_every_option_and_what_each_layer_was() -> None:
    plan = resolve(small_resnet(), "ghost:size=16", layers="bn1")
    rewrite = Rewrite(name="ghost", version=1, options={"size": 16, "running": "batch"})
    assert plan == ResolvedPlan(operations=(Operation(layer="bn1", source="BatchNorm2d", rewrites=(rewrite,)),))
    assert ResolvedPlan.model_validate_json(plan.model_dump_json()) == plan
    assert len(plan) == 1


@pytest.mark.parametrize(
    ("rewrites", "summary"),
    [
        (["ghost"], "ghost"),
        (["ghost:size=16", "example-weighted:alpha=0.05"], "ghost:size=16 + example-weighted:alpha=0.05"),
        (["example-weighted@stem:alpha=0.1", "example-weighted@last:alpha=0.2"], "example-weighted (per layer)"),
    ],
)
def test_a_plan_is_summed_up(rewrites: list[str], summary: str) -> None:
    assert resolve(small_resnet(), *rewrites).summary() == summary


def test_a_plan_from_a_later_version_is_refused() -> None:
    with pytest.raises(SurgeonError, match="version 99"):
        Rewrite(name="ghost", version=99, options={}).config()


# ---- refusals ----


class HomeMadeBatchNorm(nn.BatchNorm2d):
    """A subclass that may do anything besides normalising."""


class DuckTypedNorm(nn.Module):
    """No relative of BatchNorm, but it keeps the same buffers."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x


def untracked(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels, track_running_stats=False)


REFUSALS: dict[str, tuple[Any, list[str], dict[str, Any], list[str]]] = {
    "unknown rewrite": (nn.BatchNorm2d, ["gost"], {}, ["no rewrite 'gost'", "Did you mean ghost?"]),
    "rewrite like no other": (nn.BatchNorm2d, ["xyzzy"], {}, ["'xyzzy'", listing(norms)]),
    "unknown option": (nn.BatchNorm2d, ["ghost:sise=4"], {}, ["no option 'sise'", "Did you mean size?"]),
    "option like no other": (nn.BatchNorm2d, ["ghost:xyz=4"], {}, ["'xyz'", "size and running"]),
    "value of another type": (nn.BatchNorm2d, ["ghost:size=many"], {}, ["size='many'", "surgeon ls norms"]),
    "value out of range": (nn.BatchNorm2d, ["ghost:size=0"], {}, ["size='0'"]),
    "alpha out of range": (nn.BatchNorm2d, ["example-weighted:alpha=1.5"], {}, ["alpha='1.5'"]),
    "alpha not a number": (nn.BatchNorm2d, ["example-weighted:alpha=nan"], {}, ["alpha='nan'"]),
    "two rewrites of training": (
        nn.BatchNorm2d,
        ["ghost", "batch-group:channel_groups=3"],
        {},
        ["'ghost' and 'batch-group' both change training", "different layers"],
    ),
    "keywords with two rewrites": (
        nn.BatchNorm2d,
        ["ghost", "example-weighted"],
        {"size": 4},
        ["exactly one rewrite", "name:key=value"],
    ),
    "untracked": (
        untracked,
        ["example-weighted:alpha=0.1"],
        {},
        ["bn1 has no running statistics", "collect_statistics", "6 other layers"],
    ),
    "untracked batch-group": (untracked, ["batch-group:channel_groups=3"], {}, ["bn1 has no running statistics"]),
    "frozen ghost": (FrozenBatchNorm2d, ["ghost"], {}, ["bn1 is frozen", "--layers"]),
    "frozen batch-group": (FrozenBatchNorm2d, ["batch-group:channel_groups=3"], {}, ["bn1 is frozen"]),
    "indivisible": (
        nn.BatchNorm2d,
        ["batch-group:channel_groups=4"],
        {},
        ["bn1 has 6 channels, which channel_groups=4 does not divide", "1, 2, 3, 6"],
    ),
    "home-made": (HomeMadeBatchNorm, ["ghost"], {}, ["'bn1' is a HomeMadeBatchNorm", Path(__file__).name, "--layers"]),
    "duck-typed": (DuckTypedNorm, ["ghost"], {}, ["'bn1' is a DuckTypedNorm", Path(__file__).name]),
    "LayerNorm only": (
        lambda channels: nn.LayerNorm([channels, 6, 6]),
        ["example-weighted"],
        {},
        ["no BatchNorm layer", "7 LayerNorm"],
    ),
    "GroupNorm with ghost": (
        lambda channels: nn.GroupNorm(2, channels),
        ["ghost"],
        {},
        ["no BatchNorm layer", "7 GroupNorm", "example-weighted:alpha=1"],
    ),
    "GroupNorm without statistics": (
        lambda channels: nn.GroupNorm(2, channels),
        ["example-weighted:alpha=0.9"],
        {},
        ["bn1 is a GroupNorm without collected statistics", "alpha=1", "collect_statistics"],
    ),
    "no normalisation layers at all": (lambda _: nn.Identity(), ["ghost"], {}, ["no normalisation layers at all"]),
}


@pytest.mark.parametrize("inplace", [False, True], ids=["copy", "inplace"])
@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_says_why_and_leaves_the_network_as_it_was(case: str, inplace: bool) -> None:
    norm, rewrites, options, shown = REFUSALS[case]
    model = small_resnet(norm)
    snapshot = Snapshot(model)
    with pytest.raises(SurgeonError) as refusal:
        convert(model, *rewrites, inplace=inplace, **options)
    for text in shown:
        assert text in str(refusal.value)
    snapshot.assert_unchanged()
    assert not hasattr(model, "surgery")


def test_planning_leaves_the_modes_of_a_fused_layers_parts_alone() -> None:
    """Dropout kept active in evaluation (Monte Carlo dropout) stays active."""
    model = nn.Sequential(BatchNormAct2d(4, drop_layer=nn.Dropout)).eval()
    model[0].drop.train()
    snapshot = Snapshot(model)
    resolve(model, "ghost")
    snapshot.assert_unchanged()


def test_an_unknown_layer_can_be_left_out() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), HomeMadeBatchNorm(4), DuckTypedNorm(4))
    converted = convert(model, "ghost", layers="0")
    assert [o.layer for o in converted.surgery.operations] == ["0"]
    assert type(converted[1]) is HomeMadeBatchNorm


def test_one_bad_layer_among_many_refuses_the_whole() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), untracked(4))
    snapshot = Snapshot(model)
    with pytest.raises(SurgeonError, match="1 has no running statistics"):
        convert(model, "example-weighted:alpha=0.1", inplace=True)
    snapshot.assert_unchanged()


def test_other_norms_are_left_alone_beside_batchnorm() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, track_running_stats=True))
    converted = convert(model, "example-weighted")
    assert [o.layer for o in converted.surgery.operations] == ["0"]
    assert [type(m) for m in converted[1:]] == [nn.GroupNorm, nn.InstanceNorm2d]
