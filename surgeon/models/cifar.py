"""Networks for small images, of our own: CIFAR ResNets, WideResNets and a pre-activation ResNet.

Deep Residual Learning for Image Recognition, He et al., CVPR 2016 (arXiv:1512.03385), section 4.2.
Identity Mappings in Deep Residual Networks, He et al., ECCV 2016 (arXiv:1603.05027).
Wide Residual Networks, Zagoruyko and Komodakis, BMVC 2016 (arXiv:1605.07146).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def conv3x3(in_chans: int, out_chans: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_chans, out_chans, kernel_size=3, stride=stride, padding=1, bias=False)


def zero_padded_shortcut(x: Tensor, out_chans: int, stride: int) -> Tensor:
    """Shortcut 'option A': drop pixels, add channels of zeros on both sides; it has no parameters."""
    missing = out_chans - x.shape[1]
    before = missing // 2
    return functional.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, before, missing - before))


class BasicBlock(nn.Module):
    """Two convolutions, each followed by BatchNorm, around an option A shortcut."""

    def __init__(self, in_chans: int, out_chans: int, stride: int) -> None:
        super().__init__()
        self.out_chans = out_chans
        self.stride = stride
        self.changes_shape = stride != 1 or in_chans != out_chans
        self.conv1 = conv3x3(in_chans, out_chans, stride)
        self.bn1 = nn.BatchNorm2d(out_chans)
        self.conv2 = conv3x3(out_chans, out_chans)
        self.bn2 = nn.BatchNorm2d(out_chans)

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        shortcut = zero_padded_shortcut(x, self.out_chans, self.stride) if self.changes_shape else x
        return functional.relu(out + shortcut, inplace=True)


class PreActBlock(nn.Module):
    """BatchNorm and ReLU before each of two convolutions; a 1x1 convolution where the shape changes."""

    def __init__(self, in_chans: int, out_chans: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_chans)
        self.conv1 = conv3x3(in_chans, out_chans, stride)
        self.bn2 = nn.BatchNorm2d(out_chans)
        self.conv2 = conv3x3(out_chans, out_chans)
        changes_shape = stride != 1 or in_chans != out_chans
        self.shortcut = nn.Conv2d(in_chans, out_chans, 1, stride, bias=False) if changes_shape else None

    def forward(self, x: Tensor) -> Tensor:
        activated = functional.relu(self.bn1(x))  # not in place: without a norm this would be x, which is passed on
        out = self.conv1(activated)
        out = self.conv2(functional.relu(self.bn2(out), inplace=True))
        # Both papers project the activated input, but pass the raw one on where the shape stays.
        shortcut = x if self.shortcut is None else self.shortcut(activated)
        total: Tensor = out + shortcut
        return total


def stage(
    block: Callable[[int, int, int], nn.Module], depth: int, in_chans: int, out_chans: int, stride: int
) -> nn.Sequential:
    """`depth` blocks, the first of which changes width and resolution."""
    first = block(in_chans, out_chans, stride)
    return nn.Sequential(first, *(block(out_chans, out_chans, 1) for _ in range(depth - 1)))


def initialise(network: nn.Module) -> None:
    """He et al.'s normal initialisation; BatchNorm keeps PyTorch's."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)


class CifarResNet(nn.Module):
    """The ResNet of 6n+2 layers: three stages of n blocks with 16, 32 and 64 channels."""

    def __init__(self, blocks_per_stage: int, num_classes: int, in_chans: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(in_chans, 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(BasicBlock, blocks_per_stage, 16, 16, stride=1)
        self.layer2 = stage(BasicBlock, blocks_per_stage, 16, 32, stride=2)
        self.layer3 = stage(BasicBlock, blocks_per_stage, 32, 64, stride=2)
        self.linear = nn.Linear(64, num_classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits


class PreActResNet(nn.Sequential):
    """Pre-activation blocks, then the BatchNorm and ReLU that the last block still lacks."""

    def __init__(
        self, stem_chans: int, widths: Sequence[int], blocks_per_stage: int, num_classes: int, in_chans: int
    ) -> None:
        super().__init__()
        self.add_module("conv1", conv3x3(in_chans, stem_chans))
        before = stem_chans
        for number, width in enumerate(widths, start=1):
            stride = 1 if number == 1 else 2
            self.add_module(f"layer{number}", stage(PreActBlock, blocks_per_stage, before, width, stride))
            before = width
        self.add_module("bn", nn.BatchNorm2d(before))
        self.add_module("relu", nn.ReLU(inplace=True))
        self.add_module("pool", nn.AdaptiveAvgPool2d(1))
        self.add_module("flatten", nn.Flatten())
        self.add_module("linear", nn.Linear(before, num_classes))
        initialise(self)


def wide_resnet(depth: int, widen: int, num_classes: int, in_chans: int) -> PreActResNet:
    """WideResNet-depth-widen: 6n+4 layers, the CIFAR ResNet's channels times `widen`."""
    widths = (16 * widen, 32 * widen, 64 * widen)
    return PreActResNet(16, widths, (depth - 4) // 6, num_classes, in_chans)


def resnet8(num_classes: int = 10, in_chans: int = 3) -> CifarResNet:
    return CifarResNet(1, num_classes, in_chans)


def resnet14(num_classes: int = 10, in_chans: int = 3) -> CifarResNet:
    return CifarResNet(2, num_classes, in_chans)


def resnet20(num_classes: int = 10, in_chans: int = 3) -> CifarResNet:
    return CifarResNet(3, num_classes, in_chans)


def resnet32(num_classes: int = 10, in_chans: int = 3) -> CifarResNet:
    return CifarResNet(5, num_classes, in_chans)


def resnet44(num_classes: int = 10, in_chans: int = 3) -> CifarResNet:
    return CifarResNet(7, num_classes, in_chans)


def resnet56(num_classes: int = 10, in_chans: int = 3) -> CifarResNet:
    return CifarResNet(9, num_classes, in_chans)


def resnet110(num_classes: int = 10, in_chans: int = 3) -> CifarResNet:
    return CifarResNet(18, num_classes, in_chans)


def wideresnet28_2(num_classes: int = 10, in_chans: int = 3) -> PreActResNet:
    return wide_resnet(28, 2, num_classes, in_chans)


def wideresnet28_10(num_classes: int = 10, in_chans: int = 3) -> PreActResNet:
    return wide_resnet(28, 10, num_classes, in_chans)


def wideresnet40_2(num_classes: int = 10, in_chans: int = 3) -> PreActResNet:
    return wide_resnet(40, 2, num_classes, in_chans)


def preact_resnet18(num_classes: int = 10, in_chans: int = 3) -> PreActResNet:
    return PreActResNet(64, (64, 128, 256, 512), 2, num_classes, in_chans)


def digits_resnet8(num_classes: int = 10, in_chans: int = 1) -> CifarResNet:
    return CifarResNet(1, num_classes, in_chans)
