"""The networks of our own, listed without importing torch: `surgeon ls models` must answer at once.

The networks themselves are in `surgeon.models.cifar`; a builder is named here as `module:function`.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

# The published CIFAR ResNet weights were trained with ImageNet's statistics, so all CIFAR networks keep them.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class CatalogEntry:
    """What is known about a network before it is built."""

    summary: str
    builder: str
    input_size: tuple[int, int, int] = (3, 32, 32)
    num_classes: int = 10
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD

    def build(self, num_classes: int | None = None, in_chans: int | None = None) -> nn.Module:
        """The network with random weights, by default for its own data."""
        model: nn.Module = pkgutil.resolve_name(self.builder)(
            num_classes=num_classes or self.num_classes, in_chans=in_chans or self.input_size[0]
        )
        return model


CATALOG: dict[str, CatalogEntry] = {
    "cifar-resnet8": CatalogEntry(
        "ResNet-8 with zero-padded shortcuts (He et al. 2016), 0.08M parameters",
        "surgeon.models.cifar:resnet8",
    ),
    "cifar-resnet14": CatalogEntry(
        "ResNet-14 with zero-padded shortcuts (He et al. 2016), 0.17M parameters",
        "surgeon.models.cifar:resnet14",
    ),
    "cifar-resnet20": CatalogEntry(
        "ResNet-20 with zero-padded shortcuts (He et al. 2016), 0.27M parameters",
        "surgeon.models.cifar:resnet20",
    ),
    "cifar-resnet32": CatalogEntry(
        "ResNet-32 with zero-padded shortcuts (He et al. 2016), 0.46M parameters",
        "surgeon.models.cifar:resnet32",
    ),
    "cifar-resnet44": CatalogEntry(
        "ResNet-44 with zero-padded shortcuts (He et al. 2016), 0.66M parameters",
        "surgeon.models.cifar:resnet44",
    ),
    "cifar-resnet56": CatalogEntry(
        "ResNet-56 with zero-padded shortcuts (He et al. 2016), 0.85M parameters",
        "surgeon.models.cifar:resnet56",
    ),
    "cifar-resnet110": CatalogEntry(
        "ResNet-110 with zero-padded shortcuts (He et al. 2016), 1.7M parameters",
        "surgeon.models.cifar:resnet110",
    ),
    "cifar-wideresnet28-2": CatalogEntry(
        "WideResNet-28-2 (Zagoruyko & Komodakis 2016), 1.5M parameters",
        "surgeon.models.cifar:wideresnet28_2",
    ),
    "cifar-wideresnet28-10": CatalogEntry(
        "WideResNet-28-10 (Zagoruyko & Komodakis 2016), 36.5M parameters",
        "surgeon.models.cifar:wideresnet28_10",
    ),
    "cifar-wideresnet40-2": CatalogEntry(
        "WideResNet-40-2 (Zagoruyko & Komodakis 2016), 2.2M parameters",
        "surgeon.models.cifar:wideresnet40_2",
    ),
    "cifar-preact-resnet18": CatalogEntry(
        "Pre-activation ResNet-18 with a CIFAR stem (He et al. 2016), 11.2M parameters",
        "surgeon.models.cifar:preact_resnet18",
    ),
    "digits-resnet8": CatalogEntry(
        "ResNet-8 for 8x8 grey digits, 0.08M parameters",
        "surgeon.models.cifar:digits_resnet8",
        input_size=(1, 8, 8),
        mean=(0.5,),
        std=(0.5,),
    ),
}
