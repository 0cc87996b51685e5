"""Where units go in networks of different make, and where they cannot."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from surgeon.core.errors import SurgeonError
from surgeon.layers.running import evaluate_once
from surgeon.models import cifar
from surgeon.surgery.apply import convert
from surgeon.surgery.inserting import units_of
from surgeon.surgery.residual import residual_blocks
from surgeon.surgery.sites import stages
from tests.helpers import Block, randn, randomise, small_images, small_resnet

# Network, how many residual additions, the first and the last block with one, the size of an image.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, str, str, int]] = {
    "timm resnet18": (lambda: timm.create_model("resnet18", num_classes=10), 8, "layer1.0", "layer4.1", 64),
    "timm resnet14t": (lambda: timm.create_model("resnet14t", num_classes=10), 4, "layer1.0", "layer4.0", 128),
    "timm resnetv2": (
        lambda: timm.create_model("resnetv2_18", num_classes=10), 8, "stages.0.blocks.0", "stages.3.blocks.1", 64,
    ),
    "timm mobilenetv3": (  # the blocks of EfficientNet, with squeeze and excitation
        lambda: timm.create_model("mobilenetv3_small_050", num_classes=10), 7, "blocks.1.1", "blocks.4.2", 96,
    ),
    "timm mobilenetv2": (
        lambda: timm.create_model("mobilenetv2_035", num_classes=10), 10, "blocks.1.1", "blocks.5.2", 64,
    ),
    "timm regnet": (lambda: timm.create_model("regnetx_002", num_classes=10), 13, "s1.b1", "s4.b7", 64),
    "timm convnext": (
        lambda: timm.create_model("test_convnext", num_classes=10), 9, "stages.0.blocks.0", "stages.3.blocks.1", 128,
    ),
    "torchvision resnet18": (lambda: torchvision.models.resnet18(num_classes=10), 8, "layer1.0", "layer4.1", 64),
    "torchvision mobilenet": (
        lambda: torchvision.models.mobilenet_v2(num_classes=10), 10, "features.3", "features.16", 64,
    ),
    "cifar resnet": (lambda: cifar.resnet20(), 9, "layer1.0", "layer3.2", 32),
    "cifar preact": (lambda: cifar.wide_resnet(10, 1, 10, 3), 3, "layer1.0", "layer3.0", 32),
}  # fmt: skip
SLOW = {"timm regnet", "timm resnet14t", "timm mobilenetv2", "torchvision mobilenet"}


def make(name: str) -> tuple[nn.Module, Tensor]:
    build, *_, size = NETWORKS[name]
    torch.manual_seed(0)
    return randomise(build()).eval(), randn(2, 3, size, size)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in NETWORKS]
)
def test_residual_additions_are_found_and_take_units(name: str) -> None:
    model, x = make(name)
    _, number, first, last, _ = NETWORKS[name]
    blocks = residual_blocks(model)
    assert (len(blocks), blocks[0], blocks[-1]) == (number, first, last)
    converted = convert(model, "crossnorm:p=1,active=99", "selfnorm", inputs=(x,))
    assert torch.equal(*(evaluate_once(each, (x,))[0] for each in (model, converted)))
    x = torch.cat([x, randn(4, *x.shape[1:], seed=1)])
    sums = {}
    for insertion, unit in units_of(converted):
        unit.register_forward_hook(lambda _, i, o, key=insertion: sums.__setitem__((key.site, key.unit.name), (i, o)))
    converted.train()(x).square().sum().backward()
    assert len(sums) == 2 * number
    for (site, kind), (inputs, output) in sums.items():
        if kind == "crossnorm":  # passes on what selfnorm then gets
            assert not torch.equal(inputs[0], output)
            assert sums[site, "selfnorm"][0][0] is output
    gates = [p for n, p in converted.named_parameters() if "inserted_" in n and "g_bn" in n]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in gates)


@pytest.mark.parametrize("name", ["timm resnet18", "torchvision resnet18", "cifar resnet"])
def test_a_unit_stands_between_addition_and_activation(name: str) -> None:
    model, x = make(name)
    converted = convert(model, "crossnorm", inputs=(x,))
    seen = {}
    for insertion, unit in units_of(converted):
        block = converted.get_submodule(insertion.site)
        unit.register_forward_hook(lambda _, i, __, key=insertion.site: seen.update({key: [i[0].clone()]}))
        block.register_forward_hook(lambda _, __, o, key=insertion.site: seen[key].append(o))
    evaluate_once(converted, (x,))
    for before, after in seen.values():
        assert (before < 0).any()
        assert torch.equal(after, F.relu(before))


@pytest.mark.parametrize(
    ("name", "stem", "last_stage"),
    [
        ("timm resnet18", "before layer1.0", "after layer4.1"),
        ("timm resnet14t", "before layer1.0", "after layer4.0"),
        ("timm mobilenetv3", "before blocks.0.0", "after blocks.5.0"),
        ("timm regnet", "before s1.b1", "after s4.b7"),
        ("timm convnext", "before stages.0", "after stages.3"),
        ("torchvision resnet18", "before layer1.0", "after layer4.1"),
        ("torchvision mobilenet", "after features.0.2", None),
        ("cifar resnet", "before layer1.0", "after layer3.2"),
        ("cifar preact", "after conv1", "after layer3.0"),
    ],
)
def test_stem_and_stages(name: str, stem: str, last_stage: str | None) -> None:
    model, x = make(name)
    assert convert(model, "moex", inputs=(x,)).surgery.insertions[0].where == stem
    if last_stage is not None:
        converted = convert(model, "moex", site=f"stage{len(stages(model))}", inputs=(x,))
        assert converted.surgery.insertions[0].where == last_stage
    with pytest.raises(SurgeonError, match="no stage 9"):
        convert(model, "moex:site=stage9", inputs=(x,))


def test_the_stem_of_networks_without_stages_and_of_dense_ones() -> None:
    for build, where in (("vgg11_bn", "after features.2"), ("densenet121", "after features.pool0")):
        model = getattr(torchvision.models, build)(num_classes=10)
        assert convert(model, "moex", inputs=(randn(2, 3, 32, 32),)).surgery.insertions[0].where == where


def test_the_first_stage_of_hrnet_is_called_otherwise() -> None:
    model = timm.create_model("hrnet_w18_small", num_classes=10)
    assert stages(model) == ["layer1", "stage2", "stage3", "stage4"]
    for site, where in (("stem", "before layer1.0"), ("stage1", "after layer1.0")):
        insertions = convert(model, f"moex:site={site}", inputs=(randn(2, 3, 64, 64),)).surgery.insertions
        assert insertions[0].where == where


def test_blocks_with_several_inputs_are_told_as_such() -> None:
    with pytest.raises(SurgeonError, match=r"these units: a DlaBasic is given more than one input.*site=NAME"):
        convert(timm.create_model("dla34", num_classes=10), "crossnorm", inputs=(randn(2, 3, 64, 64),))


def test_sites_by_name_selector_and_image() -> None:
    model, images = small_resnet(), (small_images(),)

    def where(*specs: str) -> list[str]:
        return [i.where for i in convert(model, *specs, inputs=images).surgery.insertions]

    assert where("moex:site=bn1") == ["after bn1"]
    assert where("moex:site=layer2") == where("moex:site=stage2") == ["after layer2.0"]
    assert where("crossnorm:site=layer?") == [f"after layer{i}.0" for i in (1, 2, 3)]
    assert where("crossnorm@layer[12].*") == [f"after the addition in layer{i}.0" for i in (1, 2)]
    assert where("crossnorm:site=image") == ["before the network"]
    assert where("crossnorm", "crossnorm:site=image")[-1] == "before the network"
    assert where("pono-moex:lam=0.8") == where("moex")


def test_without_inputs_only_what_learns_needs_them() -> None:
    assert convert(small_resnet(), "crossnorm").surgery.insertions[0].channels is None
    with pytest.raises(SurgeonError, match=r"without an input.*inputs=\(images,\)"):
        convert(small_resnet(), "selfnorm")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("moex:site=residual", "one site"),
        ("moex:site=layer*", "matches"),
        ("moex:site=layr2", "no module 'layr2'.*layer2"),
        ("moex:norm=gn,groups=4", "cannot be cut"),
        ("moex:site=layer1.0.relu", "no module"),
        ("crossnorm@stem:site=layer1", "does not go with site="),
        ("crossnorm:crop=both,mode=one-instance", "cannot take crop=both"),
        ("moex:p=2", "p="),
        ("selfnorm:sides=2", "no option 'sides'"),
    ],
)
def test_refusals(spec: str, says: str) -> None:
    with pytest.raises(SurgeonError, match=says):
        convert(small_resnet(), spec, inputs=(small_images(),))


def test_a_network_without_residual_additions() -> None:
    with pytest.raises(SurgeonError, match=r"no residual addition.*site=NAME"):
        convert(torchvision.models.vgg11_bn(num_classes=10), "crossnorm", inputs=(randn(2, 3, 32, 32),))


def test_tokens_are_no_images() -> None:
    model = timm.create_model("test_vit", num_classes=10)
    with pytest.raises(SurgeonError, match="second dimension is not the channels"):
        convert(model, "crossnorm")


@pytest.mark.parametrize("spec", ["selfnorm:site=stem", "moex", "moex:site=stage2", "crossnorm"])
@pytest.mark.parametrize("name", ["levit_128s", "resmlp_12_224"])
def test_tokens_without_a_layer_norm_are_no_images_either(name: str, spec: str) -> None:
    with pytest.raises(SurgeonError, match="second dimension is not the channels"):
        convert(timm.create_model(name, num_classes=10), spec)


def test_a_signal_is_no_sequence_of_tokens() -> None:
    model = nn.Sequential(nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Flatten(), nn.Linear(180, 4))
    assert convert(model, "selfnorm:site=stem", inputs=(randn(2, 2, 32),)).surgery.insertions[0].channels == 6


def test_a_module_that_is_used_more_than_once_is_no_single_site() -> None:
    model = torchvision.models.resnet18(num_classes=10)
    with pytest.raises(SurgeonError, match="is called 2 times"):
        convert(model, "moex:site=layer1.0.relu", inputs=(randn(2, 3, 64, 64),))


def test_one_position_has_no_style() -> None:
    with pytest.raises(SurgeonError, match=r"layer4.0: it has one position.*NAME@GLOB"):
        convert(timm.create_model("resnet10t", num_classes=10), "selfnorm", inputs=(randn(2, 3, 32, 32),))


# --- blocks whose code does something special


def network(block: nn.Module) -> nn.Module:
    model = small_resnet()
    model.layer2[0] = block
    return randomise(model).eval()


class Dropping(Block):
    def forward(self, x: Tensor) -> Tensor:
        branch = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if self.training:
            branch = 3 * branch
        return F.dropout(torch.relu(x + branch), 0.5, self.training)


class Skipping(Block):
    def forward(self, x: Tensor) -> Tensor:
        if self.training and random.random() < 0.5:
            return x
        return super().forward(x)


class Deciding(Block):
    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 0:
            return x
        return x + self.bn1(self.conv1(x))


class TwoInputs(Block):
    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        return torch.relu((x if shortcut is None else shortcut) + self.bn1(self.conv1(x)))


def test_code_that_asks_for_the_mode_goes_on_asking() -> None:
    model = network(Dropping(6, nn.BatchNorm2d))
    converted = convert(model, "crossnorm:p=0,seed=0", inputs=(small_images(),))
    for training in (True, False, True):
        outputs = []
        for each in (model, converted):
            torch.manual_seed(0)
            outputs.append(each.train(training)(small_images()))
        assert torch.equal(*outputs)


@pytest.mark.parametrize(("block", "why"), [(Skipping, "draws random numbers"), (Deciding, "control flow")])
def test_a_block_that_cannot_be_read_is_named(block: type[Block], why: str) -> None:
    model = network(block(6, nn.BatchNorm2d))
    with pytest.raises(SurgeonError, match=rf"'layer2.0' .*{why}.*site=layer2.0"):
        convert(model, "crossnorm", inputs=(small_images(),))
    for spec, number in (("crossnorm:site=layer2.0", 1), ("crossnorm@layer1*,layer3*", 2)):
        assert len(convert(model, spec, inputs=(small_images(),)).surgery.insertions) == number


def test_an_input_that_may_be_left_out() -> None:
    model = network(TwoInputs(6, nn.BatchNorm2d))
    converted = convert(model, "crossnorm", inputs=(small_images(),))
    assert torch.equal(*(evaluate_once(each, (small_images(),))[0] for each in (model, converted)))
    with pytest.raises(RuntimeError, match="more than one input"):
        converted.layer2[0](randn(2, 6, 4, 4), randn(2, 6, 4, 4))


def test_a_norm_that_is_rewritten_later_keeps_the_unit_after_it() -> None:
    model = convert(convert(small_resnet(), "moex:site=bn1,p=1"), "ghost:size=2").train()
    unit = model.bn1.inserted_moex_output
    model(small_images())
    assert unit.last is not None
