"""What the head of a network sees: of every layout, the mean over positions, and the network is left as it was."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from torch import nn

from surgeon.core.errors import SurgeonError
from surgeon.measuring.features import HeadInputs
from surgeon.training.network import head_of


@pytest.mark.parametrize("name", ["resnet10t", "test_vit", "test_efficientnet", "test_convnext", "cifar-resnet20"])
def test_features_are_those_of_the_network_itself(name: str) -> None:
    torch.manual_seed(0)
    if name == "cifar-resnet20":
        from surgeon.models.sources import load_model

        model = load_model(name, pretrained=False).model.eval()
    else:
        model = timm.create_model(name, num_classes=7).eval()
    images = torch.randn(3, *(model.pretrained_cfg["input_size"] if hasattr(model, "pretrained_cfg") else (3, 32, 32)))
    with torch.inference_mode():
        features = HeadInputs(model, head_of(model))(images)
        (head,) = head_of(model)
        assert torch.allclose(head(features), model(images), atol=1e-5)
        if hasattr(model, "forward_head"):
            expected = model.forward_head(model.forward_features(images), pre_logits=True)
            assert torch.allclose(features, expected, atol=1e-5)
    assert not head._forward_pre_hooks


def test_before_a_convolution_channels_come_second() -> None:
    model = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Conv2d(5, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = torch.randn(2, 3, 6, 6)
    assert torch.allclose(HeadInputs(model, head_of(model))(images), model[0](images).mean((2, 3)), atol=1e-6)


def test_before_a_linear_layer_channels_come_last() -> None:
    model = nn.Sequential(nn.Flatten(2), nn.Linear(36, 5), nn.Linear(5, 4))
    images = torch.randn(2, 3, 6, 6)
    assert torch.allclose(HeadInputs(model, [model[2]])(images), model[1](model[0](images)).mean(1), atol=1e-6)


def test_a_head_that_is_not_called_is_told() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, given: Any) -> Any:
            return nn.functional.linear(given, self.head.weight)

    with pytest.raises(SurgeonError, match="cannot be captured"):
        HeadInputs(Own(), [Own().head])(torch.randn(2, 4))
