"""Whether the weights of a network belong where they are, as far as its BatchNorm layers can tell, without data.

A BatchNorm layer stores the mean of what it saw in training. What it sees follows from the weights before it and from
gamma and beta of the BatchNorm layers before those, if these normalise by the batch, as they did in training: the
images themselves hardly matter behind the first one. So for weights in their places the measured and the stored means
of a layer agree over its channels, and for two layers exchanged they do not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from surgeon.core.private import BatchNorm

EXAMPLES = 8
AGREEING = 0.8
"""Correlation between measured and stored means. Trained networks had 0.98 and more in every layer; two equally shaped
layers exchanged left 0.68 at most in one (86 pairs of a ResNet-20, 26 of EfficientNet-Lite0)."""
SURE = 0.95
"""Below this, two convolutions may be exchanged together with their BatchNorm layers: that left 0.94 at most (35 pairs
of a ResNet-20, 31 of a ResNet-56), and weights in their places 0.97 and more (0.95 in a ResNet-8 for 8x8 pixels)."""
FEWEST_CHANNELS = 4


@dataclass(frozen=True)
class Agreement:
    """How well a network agrees with its own statistics.

    Args:
        layers: The correlation in each layer that can be checked.
        finite: Whether its outputs are finite.
    """

    layers: dict[str, float]
    finite: bool

    @property
    def worst(self) -> str | None:
        """The layer that agrees least, if any could be checked."""
        return min(self.layers, key=lambda name: self.layers[name]) if self.layers else None

    @property
    def doubtful(self) -> str | None:
        """The layer that agrees least, if it agrees less than trained networks do."""
        return self.worst if self.worst and self.layers[self.worst] < SURE else None

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the network."""
        return self.finite and all(correlation >= AGREEING for correlation in self.layers.values())


def agreement(model: nn.Module, inputs: tuple[object, ...]) -> Agreement:
    """Run inputs through a copy of a network in evaluation mode whose BatchNorm layers normalise by the batch."""
    probe = copy.deepcopy(model).eval()
    found: dict[str, float | None] = {}
    for name, layer in probe.named_modules():
        if isinstance(layer, BatchNorm) and layer.running_mean is not None:
            layer.train()
            layer.register_forward_pre_hook(_comparing(name, layer.running_mean.detach().clone(), found))
    with torch.inference_mode():
        output = probe(*inputs)
    first = next(iter(found), None)  # sees the images themselves, which are not those of the training
    checked = {name: value for name, value in found.items() if value is not None and name != first}
    return Agreement(checked, _is_finite(output))


def _comparing(name: str, stored: Tensor, found: dict[str, float | None]) -> Callable[..., None]:
    def compare(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen = given[0].float()
        found.setdefault(name, _correlation(seen.mean([0, *range(2, seen.dim())]), stored.float()))

    return compare


def _correlation(measured: Tensor, stored: Tensor) -> float | None:
    """None where there is nothing to compare with: few channels, or the same value in all, as before training."""
    one, other = measured - measured.mean(), stored - stored.mean()
    if len(stored) < FEWEST_CHANNELS or other.norm() <= 1e-6 * stored.norm() or not other.any():
        return None
    value = (one @ other / (one.norm() * other.norm()).clamp_min(1e-30)).item()
    return value if value == value else -1.0  # not a number: as far from agreeing as can be


def _is_finite(output: object) -> bool:
    if isinstance(output, Tensor):
        return bool(output.isfinite().all())
    if isinstance(output, dict):
        return all(map(_is_finite, output.values()))
    return all(map(_is_finite, output)) if isinstance(output, list | tuple) else True


def like_images(inputs: tuple[object, ...]) -> tuple[object, ...]:
    """The inputs with each batch of images in place of noise: equally sized, smooth, of mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(0)
    return tuple(_smooth(one, generator) if isinstance(one, Tensor) and one.dim() == 4 else one for one in inputs)


def _smooth(like: Tensor, generator: torch.Generator) -> Tensor:
    """Noise of every scale, the more of it the larger the scale, as in photographs."""
    number, channels, height, width = like.shape
    images = torch.zeros_like(like)
    side = 1
    while side <= max(height, width):
        size = max(1, height // side), max(1, width // side)
        noise = torch.randn(number, channels, *size, generator=generator)
        grey = torch.randn(number, 1, *size, generator=generator)
        images += functional.interpolate(noise + 2 * grey, size=(height, width), mode="bilinear") * side**0.5
        side *= 2
    centred = images - images.mean((0, 2, 3), keepdim=True)
    return centred / centred.std().clamp_min(1e-6)
