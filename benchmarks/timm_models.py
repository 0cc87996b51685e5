"""What timm asks of every network, asked of converted ones: which checks fail that pass before the conversion?

    python benchmarks/timm_models.py [ARCHITECTURE ...]

The checks are those of timm's tests of its models, TorchScript aside: forward and backward pass, state
dictionaries, features, classifiers that are taken off and put on, tracing with torch.fx. Images are small.
"""

from __future__ import annotations

import argparse
import copy
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache

import timm
import torch
from timm.models._features_fx import GraphExtractNet, get_graph_node_names
from torch import Tensor, nn

import surgeon

SMALL = (
    "bat_resnext26ts", "botnet26t_256", "coatnet_nano_rw_224", "cs3darknet_s", "cspresnet50", "densenet121", "dla34",
    "dpn48b", "ecaresnet26t", "efficientformer_l1", "efficientformerv2_s0", "efficientnet_b0", "efficientvit_b0",
    "efficientvit_m0", "ese_vovnet19b_dw", "fastvit_t8", "fbnetc_100", "gcresnext26ts", "gernet_s", "ghostnet_050",
    "ghostnetv2_100", "halonet26t", "hardcorenas_a", "hgnetv2_b0", "hrnet_w18_small", "inception_next_atto",
    "lambda_resnet26t", "lcnet_035", "legacy_seresnet18", "levit_128s", "levit_conv_128s", "mixnet_s",
    "mnasnet_small", "mobilenetv2_035", "mobilenetv3_small_050", "mobilenetv4_conv_small", "mobileone_s0",
    "mobilevit_xxs", "mobilevitv2_050", "regnetx_002", "regnety_002", "repghostnet_050", "repvgg_a0", "repvit_m0_9",
    "resnest14d", "resnet18", "rexnet_100", "semnasnet_050", "shvit_s1", "skresnet18", "starnet_s1", "test_resnet",
    "tiny_vit_5m_224", "tinynet_e", "xcit_nano_12_p16_224",
)  # fmt: skip
CONVERSIONS = {
    "unconverted": "",
    "example-weighted": "example-weighted:alpha=0.05",
    "ghost": "ghost:size=2",
    "split": "split",
}
SIZE, CLASSES, EXAMPLES = 64, 7, 4

Make = Callable[..., nn.Module]
"""Gives a converted network, with `features_only=True` the one that timm builds for its features."""


def images_for(model: nn.Module) -> Tensor:
    config = model.pretrained_cfg
    smallest = (config.get("min_input_size") or (3, SIZE, SIZE))[1]
    side = config["input_size"][1] if config.get("fixed_input_size") else max(SIZE, smallest)
    return torch.rand(EXAMPLES, 3, side, side, generator=torch.Generator().manual_seed(1))


def finite(outputs: Tensor) -> None:
    assert torch.isfinite(outputs).all(), "outputs are NaN or infinite"


def every_parameter_learns(model: nn.Module, outputs: Tensor) -> None:
    finite(outputs)
    outputs.mean().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without, f"no gradient: {_kinds(without)}"
    assert all(torch.isfinite(p.grad).all() for p in model.parameters()), "gradients are NaN or infinite"


def _kinds(names: list[str]) -> str:
    return ", ".join(sorted({".".join(name.split(".")[-2:]) for name in names}))


def check_forward(make: Make) -> None:
    model = make().eval()
    outputs = model(images_for(model))
    assert outputs.shape == (EXAMPLES, CLASSES)
    finite(outputs)


def check_backward(make: Make) -> None:
    model = make().train()
    every_parameter_learns(model, model(images_for(model)))


def check_state_dict(make: Make) -> None:
    model, again = make().eval(), make().eval()
    again.load_state_dict(copy.deepcopy(model.state_dict()), strict=True)
    images = images_for(model)
    assert torch.equal(again(images), model(images)), "other outputs with the same weights"


def check_plain_state_dict(make: Make) -> None:
    """Into the unconverted network, which conversions promise whose state is that of the original."""
    model = make()
    timm.create_model(model.pretrained_cfg["architecture"], num_classes=CLASSES).load_state_dict(model.state_dict())


def check_copy(make: Make) -> None:
    model = make().eval()
    images = images_for(model)
    assert torch.equal(copy.deepcopy(model)(images), model(images))


def check_classifier(make: Make) -> None:
    model = make().eval()
    images = images_for(model)
    model.reset_classifier(0)
    assert model(images).ndim == 2
    features = model.forward_features(images)
    finite(features if isinstance(features, Tensor) else features[0])
    model.reset_classifier(CLASSES + 1)
    assert model(images).shape == (EXAMPLES, CLASSES + 1)


def check_features_only(make: Make) -> None:
    model = make(features_only=True).eval()
    maps = model(images_for(make()))
    assert len(maps) == len(model.feature_info.channels())
    for one in maps:
        finite(one)


def check_intermediates(make: Make) -> None:
    model = make().eval()
    final, intermediates = model.forward_intermediates(images_for(model))
    finite(final if isinstance(final, Tensor) else final[0])
    assert intermediates


def check_fx(make: Make) -> None:
    model = make().eval()
    traced = GraphExtractNet(model, [_last(model)]).eval()
    images = images_for(model)
    torch.testing.assert_close(traced(images), model(images))


def check_fx_backward(make: Make) -> None:
    model = make().train()
    traced = GraphExtractNet(model, [_last(model)]).train()
    every_parameter_learns(traced, traced(images_for(model)))


def _last(model: nn.Module) -> str:
    in_training, in_evaluation = get_graph_node_names(model)
    return str((in_training if model.training else in_evaluation)[-1])


CHECKS: dict[str, Callable[[Make], None]] = {
    "forward": check_forward,
    "backward": check_backward,
    "state dict": check_state_dict,
    "plain state dict": check_plain_state_dict,
    "copy": check_copy,
    "classifier": check_classifier,
    "features only": check_features_only,
    "intermediates": check_intermediates,
    "fx forward": check_fx,
    "fx backward": check_fx_backward,
}


def maker(architecture: str, rewrite: str) -> Make:
    """Each call gives another copy, because most of the time goes into drawing weights."""

    @cache
    def made(features_only: bool) -> nn.Module:
        torch.manual_seed(0)
        options = {"features_only": True} if features_only else {"num_classes": CLASSES}
        model = timm.create_model(architecture, **options)
        return surgeon.convert(model, rewrite, inplace=True) if rewrite else model

    return lambda features_only=False: copy.deepcopy(made(features_only))


def outcome(check: Callable[[Make], None], make: Make) -> str:
    """Empty if the check passes, the reason if it fails."""
    try:
        check(make)
    except Exception as error:  # whatever is wrong is what this is about
        return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), 'no message')}"
    return ""


def is_by_design(conversion: str, check: str, reason: str) -> bool:
    """Split BatchNorm has an auxiliary branch, which learns only from what is sent through it."""
    if conversion != "split":
        return False
    return check == "plain state dict" or reason == "AssertionError: no gradient: aux.bias, aux.weight"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("architectures", nargs="*", default=SMALL)
    asked = parser.parse_args().architectures
    warnings.simplefilter("ignore")
    passed, by_design, unexpected = Counter[str](), Counter[tuple[str, str]](), Counter[str]()
    for number, architecture in enumerate(asked, 1):
        print(f"{number} of {len(asked)}: {architecture}", file=sys.stderr, flush=True)
        makers = {name: maker(architecture, rewrite) for name, rewrite in CONVERSIONS.items()}
        for name, check in CHECKS.items():
            reasons = {conversion: outcome(check, make) for conversion, make in makers.items()}
            if reasons.pop("unconverted"):  # the architecture does not have what the check is about
                continue
            passed["unconverted"] += 1
            for conversion, reason in reasons.items():
                passed[conversion] += not reason
                if reason and is_by_design(conversion, name, reason):
                    by_design[conversion, name] += 1
                elif reason:
                    unexpected[conversion] += 1
                    print(f"{architecture}: {name}, {conversion}: {reason}", flush=True)
    print(f"{len(asked)} architectures, {passed['unconverted']} checks that pass unconverted; of these fail converted:")
    for conversion in list(CONVERSIONS)[1:]:
        designed = {name: number for (kind, name), number in by_design.items() if kind == conversion}
        told = f" {dict(designed)}" if designed else ""
        print(f"  {conversion:<18}{unexpected[conversion]:4}, and by design {sum(designed.values())}{told}", flush=True)
    return int(bool(unexpected.total()))


if __name__ == "__main__":
    sys.exit(main())
