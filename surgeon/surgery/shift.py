"""Whether images are shifted for a network: how far the statistics of its layers' inputs are from the stored ones.

Two distances meet in every layer: that between the stored statistics and those of the images, and that which would be
found without any shift because the images are a sample. The second is measured between random halves of the images.
Half of the difference of two halves varies as the statistics of all images do around those of their source, so both
distances are comparable, and how channels and positions depend on each other need not be known: what is drawn at
random are images. The distance is the local one of Gaussians (Fisher's information metric), per channel
`sqrt(d^2 + log(r)^2 / 2)` with d the shift of the mean in stored standard deviations and r the ratio of variances; a
layer's is the root of the mean square over its channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, count
from surgeon.core.readable import Readable
from surgeon.layers.router import Branch
from surgeon.layers.running import evaluating
from surgeon.layers.statistics import example_statistics, wide
from surgeon.layers.surgical import SurgicalNorm
from surgeon.layers.wrapped import input_of
from surgeon.surgery.adapters import NormLayer, batch_norm_layers

SPLITS = 40
"""Random pairs of halves: without a shift, the measured distance is above all of them in one of 41 cases."""
FEWEST = 8
"""Halves of fewer images say nothing about noise."""
USUAL, USUAL_IN_A_LAYER = 0.25, 0.4
"""Standard deviations. Stored statistics are of augmented training images, and of weights that still moved, so held-out
images of the same source differ from them, however many there are. Measured: 0.19 for a ResNet-20 and 0.23 for a
ResNet-56 on CIFAR-10, 0.20 for an EfficientNet-Lite0 on ImageNet; few single layers are beyond 0.4."""


class Verdict(StrEnum):
    """What the distances of a layer, or of all, say."""

    NONE = "no shift"
    SLIGHT = "usual"
    SHIFTED = "shifted"
    UNCLEAR = "unclear"


class Distance(BaseModel):
    """How far statistics are from the stored ones, in standard deviations."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    distance: float
    """As measured, noise included."""
    noise: float
    """Expected from sampling alone: root mean square over random halves."""
    noise_high: float
    """The largest of the random halves."""
    excess: float
    """The distance without the noise in it: sqrt(distance^2 - noise^2), or 0."""
    low: float
    high: float
    """About a 95% interval of the excess."""
    verdict: Verdict
    """`no shift`: not beyond sampling noise. `usual`: beyond it, but not beyond what is usual between training and
    held-out images. `shifted`: beyond that as well. `unclear`: too few images to tell the last two apart."""


class LayerShift(Distance):
    """One layer: its distance, and what it is made of."""

    name: str
    channels: int
    mean_shift: float
    """Root mean square over channels of the mean's shift, in stored standard deviations."""
    variance_ratio: float
    """Median over channels of the variance of the images by the stored one."""
    worst_channel: int
    """The channel with the largest distance."""
    worst_distance: float


class Shift(Readable, BaseModel):
    """How far images are from what a network's stored statistics describe."""

    model_config = ConfigDict(frozen=True)

    images: int
    overall: Distance
    """Over all layers: the root of the mean square of their distances."""
    layers: list[LayerShift]
    """In the order of the network."""

    @property
    def shifted(self) -> list[LayerShift]:
        return [layer for layer in self.layers if layer.verdict is Verdict.SHIFTED]


def measure_shift(model: nn.Module, batches: Iterable[Any], *, seed: int = 0) -> Shift:
    """Compare the stored statistics of every BatchNorm layer with those of images; nothing in the network changes.

    The network evaluates as it is, so what shifts in one layer is also seen by those after it.

    Args:
        model: A network with BatchNorm layers that have running statistics.
        batches: Of images, labels not needed: each the network's input, or a tuple or list that starts with it.
        seed: Of the random halves.
    """
    watched = {layer: _Sums(layer) for layer in _layers(model)}
    if not watched:
        raise SurgeonError(
            "The network has no BatchNorm layer with running statistics, so it stores nothing to compare images with."
        )
    images = _watch(model, watched.values(), batches, np.random.default_rng(seed))
    if images < FEWEST:
        raise SurgeonError(
            f"{count(images, 'image')} cannot tell a shift from sampling noise: at least {FEWEST} are needed.",
            "A hundred or more give a clear answer.",
        )
    found = {layer.name: sums.distances() for layer, sums in watched.items() if sums.seen}
    return Shift(
        images=images,
        overall=Distance(**_judged(list(found.values()), USUAL)),
        layers=[_layer_shift(name, distances) for name, distances in found.items()],
    )


def _layer_shift(name: str, found: _Distances) -> LayerShift:
    channels = _squared(found.mean_shift, found.log_ratio).sqrt()
    return LayerShift(
        name=name,
        channels=len(channels),
        mean_shift=float(found.mean_shift.square().mean().sqrt()),
        variance_ratio=float(found.log_ratio.median().exp()),
        worst_channel=int(channels.argmax()),
        worst_distance=float(channels.max()),
        **_judged([found], USUAL_IN_A_LAYER),
    )


def _judged(found: list[_Distances], usual: float) -> dict[str, Any]:
    """The distance over layers, each of which counts the same, and what it says."""
    measured, noise, moved = (
        np.mean(of_layers, axis=0)
        for of_layers in zip(*((one.measured, one.noise, one.moved) for one in found), strict=True)
    )
    distance, expected, largest = math.sqrt(measured[0]), math.sqrt(noise.mean()), math.sqrt(noise.max())
    excess = math.sqrt(max(measured[0] - noise.mean(), 0.0))
    spread = 1.96 * float(np.sqrt(moved).std())
    beyond_noise = distance > largest
    low, high = max(excess - spread, 0.0) if beyond_noise else 0.0, excess + spread
    if low > usual:
        verdict = Verdict.SHIFTED
    elif high > usual:
        verdict = Verdict.UNCLEAR
    else:
        verdict = Verdict.SLIGHT if beyond_noise else Verdict.NONE
    return {
        "distance": distance,
        "noise": expected,
        "noise_high": largest,
        "excess": excess,
        "low": low,
        "high": high,
        "verdict": verdict,
    }


def has_stored_statistics(model: nn.Module) -> bool:
    """Whether any layer normalises by running statistics, to which images can be compared."""
    return bool(_layers(model))


def _layers(model: nn.Module) -> list[NormLayer]:
    return [layer for layer in batch_norm_layers(model) if _normalises_by_stored(layer.module)]


def _normalises_by_stored(module: nn.Module) -> bool:
    if isinstance(module, SurgicalNorm) and module.whole_rule is not None:
        return False  # its own statistics lie idle
    return isinstance(getattr(module, "running_mean", None), Tensor)


def _watch(model: nn.Module, watched: Iterable[_Sums], batches: Iterable[Any], generator: np.random.Generator) -> int:
    device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    images = 0
    with evaluating(model), torch.inference_mode(), _hooks(watched):
        for batch in batches:
            inputs = input_of(batch).to(device)
            # Coins for each image, not equal halves of each batch: batches may be of one class each.
            coins = torch.from_numpy(generator.integers(0, 2, (SPLITS, len(inputs)))).double()
            for sums in watched:
                sums.coins = coins
            model(inputs)
            images += len(inputs)
    return images


@contextmanager
def _hooks(watched: Iterable[_Sums]) -> Iterator[None]:
    handles = [sums.layer.module.register_forward_pre_hook(sums.see) for sums in watched]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Distances(NamedTuple):
    """Mean squares over channels, and where the images are."""

    measured: NDArray[np.float64]
    """One: of the images from the stored statistics."""
    noise: NDArray[np.float64]
    """Of each pair of halves."""
    moved: NDArray[np.float64]
    """Of the images from the stored statistics, had their noise been that of a pair of halves, or the opposite."""
    mean_shift: Tensor
    log_ratio: Tensor


class _Sums:
    """Sums over the images of one layer's input, in units of its stored statistics: of all, and of each half."""

    def __init__(self, layer: NormLayer) -> None:
        module = layer.module
        self.layer = layer
        self.coins = torch.empty(SPLITS, 0)
        self.seen = False
        epsilon = module.epsilon if isinstance(module, SurgicalNorm) else cast("float", module.eps)
        self.mean, var = (cast("Tensor", getattr(module, f"running_{of}")).double().cpu() for of in ("mean", "var"))
        self.deviation = (var + epsilon).sqrt()
        self.smallest = epsilon / self.deviation.square()
        channels = len(self.mean)
        # Of values, their squares, and how many there are; rows: all images, then the first half of each split.
        self.sums = torch.zeros(3, 1 + SPLITS, channels, dtype=torch.float64)

    def see(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, SurgicalNorm) and module.router.branch is not Branch.MAIN:
            return
        x, images = wide(inputs[0]), self.coins.shape[1]
        if len(x) % images:
            raise SurgeonError(
                f"The layer {self.layer.name!r} gets {len(x)} rows for {count(images, 'image')}: which belong to one "
                "image is not known."
            )
        own = example_statistics(x)  # of each row; some networks make several rows of an image
        values = x.numel() // (len(x) * x.shape[1])
        mean = (own.mean.double().cpu() - self.mean) / self.deviation
        square = own.var.double().cpu() / self.deviation.square() + mean.square()
        rows = len(x) // images
        of_images = torch.stack([mean, square, torch.ones_like(mean)]) * values
        of_images = of_images.reshape(3, images, rows, -1).sum(2)
        self.sums[:, 0] += of_images.sum(1)
        self.sums[:, 1:] += self.coins @ of_images
        self.seen = True

    def distances(self) -> _Distances:
        everything, first = self.sums[:, :1], self.sums[:, 1:]
        second = everything - first
        filled = (first[2].amin(-1) > 0) & (second[2].amin(-1) > 0)  # among few images a half may be empty
        first, second = first[:, filled], second[:, filled]
        place = self._moments(everything)
        halves = [self._moments(half) for half in (first, second)]
        # Scaled so that it varies as the statistics of all images do, whatever the sizes of the halves.
        scale = (first[2] * second[2]).sqrt() / everything[2]
        noise = [scale * (a - b) for a, b in zip(*halves, strict=True)]
        moved = [_squared(*(p + sign * e for p, e in zip(place, noise, strict=True))) for sign in (1, -1)]
        measured, expected, imagined = (
            square.mean(-1).numpy() for square in (_squared(*place), _squared(*noise), torch.cat(moved))
        )
        if not np.isfinite(measured).all():
            raise SurgeonError(
                f"The layer {self.layer.name!r} gets NaN or infinite values from these images, or its stored "
                "statistics are not valid.",
                "surgeon inspect without --data checks the statistics.",
            )
        return _Distances(measured, expected, imagined, place[0][0], place[1][0])

    def _moments(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Shift of the mean and logarithm of the ratio of variances, the layer's eps included in both."""
        mean, square = sums[0] / sums[2], sums[1] / sums[2]
        variance = (square - mean.square()).clamp(min=0)
        return mean, (variance + self.smallest).log()


def _squared(mean_shift: Tensor, log_ratio: Tensor) -> Tensor:
    return mean_shift.square() + log_ratio.square() / 2
