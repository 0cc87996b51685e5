"""Climbing a loss within a box about each image, by gradients (FGSM, PGD) or without them (SPSA).

Pixels are between 0 and 1, the box is `pixels ± eps` cut to that range. Nothing that happens to an image depends on
the others in its batch: losses are summed, not averaged, and what is random is drawn from one generator per image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from surgeon.core.errors import SurgeonError

Logits = Callable[[Tensor], Tensor]
"""From pixels (N, C, H, W) to one row of logits per image."""

FIRST_DECAY, SECOND_DECAY, TINY = 0.9, 0.999, 1e-8
"""Adam's, which SPSA climbs with."""
DIFFERENCE = 0.01
"""How far from the image SPSA takes its differences, as in its paper."""


def loss_against(logits: Tensor, labels: Tensor) -> Tensor:
    """What attacks by gradients raise, per image: log odds for labels (N,), cross-entropy for shares (N, classes).

    Shares that are all of one class count as a label.
    """
    if labels.dim() == 1:
        return log_odds_against(logits, labels)
    shares = labels.to(logits.device, logits.dtype)
    mixed = logits.logsumexp(1) - (shares * logits).sum(1)
    return torch.where(shares.amax(1) == 1, log_odds_against(logits, shares.argmax(1)), mixed)


def log_odds_against(logits: Tensor, labels: Tensor) -> Tensor:
    """The log odds that a prediction is wrong, per image.

    Cross-entropy is the softplus of it, so both have gradients of the same direction, and their signs give the same
    steps. But the gradient of cross-entropy underflows where a network is sure, which makes it look robust, and this
    one does not.
    """
    return _without(logits, labels).logsumexp(1) - _of(logits, labels)


def margin_against(logits: Tensor, labels: Tensor) -> Tensor:
    """How far the best wrong class is ahead of the right one, per image: above 0 where the prediction is wrong."""
    return _without(logits, labels).amax(1) - _of(logits, labels)


def _of(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.gather(1, labels[:, None].to(logits.device))[:, 0]


def _without(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.scatter(1, labels[:, None].to(logits.device), -torch.inf)


def projected(candidates: Tensor, pixels: Tensor, eps: float) -> Tensor:
    """The nearest images that differ nowhere by more than eps and that a picture can show."""
    return Box.about(pixels, eps).projected(candidates)


class Box(NamedTuple):
    """The images that an attack may choose from: all pixels between two bounds."""

    lower: Tensor
    upper: Tensor

    @classmethod
    def about(cls, pixels: Tensor, eps: float) -> Box:
        """All that differ nowhere by more than eps and that a picture can show.

        A mix may have left pixels that are darker than black or brighter than white: these are not brought back.
        """
        lower, upper = (pixels - eps).clamp_min_(0), (pixels + eps).clamp_max_(1)
        return cls(torch.minimum(lower, pixels, out=lower), torch.maximum(upper, pixels, out=upper))

    def projected(self, candidates: Tensor) -> Tensor:
        """The nearest images in the box; what is given is changed."""
        return candidates.clamp_(self.lower, self.upper)


def gradient(logits: Logits, pixels: Tensor, labels: Tensor) -> Tensor:
    """Of the loss against each image, with respect to its pixels."""
    leaf = pixels.detach().requires_grad_()
    with torch.enable_grad():
        found = logits(leaf)
        loss = loss_against(found.float() if found.dtype.itemsize < 4 else found, labels).sum()
        if not loss.requires_grad:
            raise _without_gradients()
        (slope,) = torch.autograd.grad(loss, leaf, allow_unused=True)
    if slope is None:
        raise _without_gradients()
    return slope


def first_gradient(logits: Logits, pixels: Tensor, labels: Tensor) -> Tensor:
    """As `gradient`, but refuses a network that has none to follow: one that rounds, say, whose gradients are 0."""
    found = gradient(logits, pixels, labels)
    if not found.any():
        check_gradients(logits, pixels.shape[1:], pixels.device)
    return found


def check_gradients(logits: Logits, size: Sequence[int], device: torch.device) -> None:
    """Refuse a network whose gradients are 0 even for images of noise, though it does not say the same of all images.

    A network whose head is still all zeros, as some begin training, says the same: there is nothing to find.
    """
    noise = torch.rand((2, *size), generator=Generator().manual_seed(0)).to(device)
    if gradient(logits, noise, torch.zeros(len(noise), dtype=torch.int64)).any():
        return
    with torch.no_grad():
        first, second = logits(noise)
    if not torch.equal(first, second):
        raise _without_gradients()


def _without_gradients() -> SurgeonError:
    return SurgeonError(
        "The network gives no gradients with respect to its images, so an attack by gradients would find nothing.",
        "Use an attack without gradients (spsa), or transfer images from another network (source=MODEL).",
    )


def fgsm(logits: Logits, pixels: Tensor, labels: Tensor, *, eps: float) -> Tensor:
    """One step to the border of the box, by the sign of the gradient (Goodfellow et al., 2015)."""
    slope = first_gradient(logits, pixels, labels)
    return Box.about(pixels, eps).projected(torch.add(pixels, slope.sign_(), alpha=eps))


def pgd(
    logits: Logits,
    pixels: Tensor,
    labels: Tensor,
    generators: Sequence[Generator],
    *,
    eps: float,
    step: float,
    steps: int,
) -> Tensor:
    """From a random point of the box, steps by the sign of the gradient, each projected back (Madry et al., 2018)."""
    offsets = torch.stack([_uniform(pixels[0], generator) for generator in generators]).to(pixels.device)
    box = Box.about(pixels, eps)
    reached = box.projected(torch.add(pixels, offsets, alpha=eps))
    for number in range(steps):
        slope = (gradient if number else first_gradient)(logits, reached, labels)
        reached = box.projected(torch.add(reached, slope.sign_(), alpha=step))
    return reached


def _uniform(like: Tensor, generator: Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype) * 2 - 1


def spsa(
    logits: Logits,
    pixels: Tensor,
    labels: Tensor,
    generators: Sequence[Generator],
    *,
    eps: float,
    step: float,
    steps: int,
    samples: int,
) -> Tensor:
    """From the image, Adam on gradients that are estimated from pairs of predictions (Uesato et al., 2018)."""
    box = Box.about(pixels, eps)
    reached, first, second = pixels, torch.zeros_like(pixels), torch.zeros_like(pixels)
    for number in range(1, steps + 1):
        slope = estimated_gradient(logits, reached, labels, generators, samples)
        first = FIRST_DECAY * first + (1 - FIRST_DECAY) * slope
        second = SECOND_DECAY * second + (1 - SECOND_DECAY) * slope.square()
        deviation = (second / (1 - SECOND_DECAY**number)).sqrt() + TINY
        reached = box.projected(reached + step * first / (1 - FIRST_DECAY**number) / deviation)
    return reached


def estimated_gradient(
    logits: Logits, pixels: Tensor, labels: Tensor, generators: Sequence[Generator], samples: int
) -> Tensor:
    """Of the margin against each image, from `samples` central differences along random directions of ±1."""
    total = torch.zeros_like(pixels)
    with torch.no_grad():
        for _ in range(samples):
            signs = torch.stack([_signs(pixels[0], generator) for generator in generators]).to(pixels.device)
            above = margin_against(logits(pixels + DIFFERENCE * signs), labels)
            below = margin_against(logits(pixels - DIFFERENCE * signs), labels)
            total += (above - below)[:, None, None, None] / (2 * DIFFERENCE) * signs
    return total / samples


def _signs(like: Tensor, generator: Generator) -> Tensor:
    return torch.randint(0, 2, like.shape, generator=generator).to(like.dtype) * 2 - 1
