"""What several test files need: random layers, a small network, and what must not change about one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

RANGES = {"weight": (0.5, 1.5), "bias": (-0.5, 0.5), "running_mean": (-1.0, 1.0), "running_var": (0.5, 2.0)}


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def randomise(model: nn.Module, seed: int = 1) -> nn.Module:
    """Give every norm layer statistics and parameters that make each of its parts matter."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if "norm" in type(module).__name__.lower():
            for name, (low, high) in RANGES.items():
                if isinstance(value := getattr(module, name, None), Tensor):
                    value.data.copy_(torch.rand(value.shape, generator=generator) * (high - low) + low)
    return model


class Block(nn.Module):
    """A residual block whose shortcut carries no norm."""

    def __init__(self, channels: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = norm(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = norm(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class SmallResNet(nn.Module):
    """Named like torchvision's ResNets: bn1, layer1.0.bn1 ... layer3.0.bn2."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm2d, channels: int = 6) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 3, bias=False)
        self.bn1 = norm(channels)
        for stage in (1, 2, 3):
            self.add_module(f"layer{stage}", nn.Sequential(Block(channels, norm)))
        self.fc = nn.Linear(channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


SMALL_RESNET_NORMS = ["bn1", *(f"layer{stage}.0.bn{i}" for stage in (1, 2, 3) for i in (1, 2))]


def small_resnet(norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    torch.manual_seed(0)
    return randomise(SmallResNet(norm)).eval()


def small_images(count: int = 3, seed: int = 5) -> Tensor:
    return randn(count, 3, 8, 8, seed=seed)


class Snapshot:
    """Everything that could change about a model, to be compared later."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.before = self._take()

    def _take(self) -> dict[str, Any]:
        modules = dict(self.model.named_modules(remove_duplicate=False))
        return {
            "modules": {name: id(module) for name, module in modules.items()},
            "modes": {name: module.training for name, module in modules.items()},
            "attributes": {
                name: {k: v for k, v in vars(module).items() if not k.startswith("_")}
                for name, module in modules.items()
            },
            "tensors": {name: (t.data_ptr(), t.clone()) for name, t in self.model.state_dict().items()},
        }

    def assert_unchanged(self) -> None:
        before, after = self.before, self._take()
        for part in ("modules", "modes", "attributes"):
            assert after[part] == before[part], f"{part} changed"
        assert after["tensors"].keys() == before["tensors"].keys()
        for name, (pointer, value) in before["tensors"].items():
            assert after["tensors"][name][0] == pointer, f"{name} was moved"
            assert torch.equal(after["tensors"][name][1], value), f"{name} was changed"
