"""What each rewrite computes, written out from its formula with plain operations, for float64 and autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Moments = tuple[Tensor, Tensor]
FACTOR = 0.1  # BatchNorm's momentum


def columns(t: Tensor, x: Tensor) -> Tensor:
    """(C,) or (N, C) for (N, C, ...)."""
    return t.reshape(-1, x.shape[1], *[1] * (x.dim() - 2))


def over(x: Tensor, *dims: int) -> Moments:
    """Mean and biased variance, reduced dimensions kept."""
    mean = x.mean(dims, keepdim=True) if dims else x
    return mean, ((x - mean) ** 2).mean(dims, keepdim=True) if dims else torch.zeros_like(x)


def positions(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.dim()))


def normalised(x: Tensor, moments: Moments, layer: nn.Module) -> Tensor:
    y = (x - moments[0]) / (moments[1] + layer.epsilon).sqrt()
    return y * columns(layer.weight, x) + columns(layer.bias, x)


def plain_evaluation(layer: nn.Module, x: Tensor) -> Tensor:
    return normalised(x, (columns(layer.running_mean, x), columns(layer.running_var, x)), layer)


def keep(layer: nn.Module, mean: Tensor, var: Tensor) -> None:
    with torch.no_grad():
        layer.running_mean += FACTOR * (mean.flatten() - layer.running_mean)
        layer.running_var += FACTOR * (var.flatten() - layer.running_var)


def keep_moments(layer: nn.Module, mean: Tensor, var: Tensor) -> None:
    """By E[x] and E[x^2]."""
    with torch.no_grad():
        square = (1 - FACTOR) * (layer.running_var + layer.running_mean**2) + FACTOR * (var + mean**2)
        mixed = (1 - FACTOR) * layer.running_mean + FACTOR * mean
        layer.running_mean.copy_(mixed)
        layer.running_var.copy_(square - mixed**2)


def plain_training(layer: nn.Module, x: Tensor) -> Tensor:
    moments = over(x, 0, *positions(x))
    count = x.numel() // x.shape[1]
    keep(layer, moments[0], moments[1] * count / (count - 1))
    return normalised(x, moments, layer)


def groups_of_three(x: Tensor) -> list[Tensor]:
    """Of seven examples; the last one alone joins its neighbours if it is a single value."""
    single = x[0, 0].numel() == 1
    return [x[:3], x[3:]] if single else [x[:3], x[3:6], x[6:]]


def ghost_of_the_batch(layer: nn.Module, x: Tensor) -> Tensor:
    mean, var = over(x, 0, *positions(x))
    keep_moments(layer, mean.flatten(), var.flatten())
    return torch.cat([normalised(part, over(part, 0, *positions(x)), layer) for part in groups_of_three(x)])


def ghost_of_the_groups(layer: nn.Module, x: Tensor) -> Tensor:
    parts = groups_of_three(x)
    each = [over(part, 0, *positions(x)) for part in parts]
    sizes = [part.numel() // part.shape[1] for part in parts]
    unbiased = [var * size / (size - 1) for (_, var), size in zip(each, sizes, strict=True)]
    keep(layer, torch.stack([m for m, _ in each]).mean(0), torch.stack(unbiased).mean(0))
    return torch.cat([normalised(part, m, layer) for part, m in zip(parts, each, strict=True)])


def by_channel_groups(x: Tensor) -> Tensor:
    """(N, 3, C / 3, ...)."""
    return x.reshape(len(x), 3, -1, *x.shape[2:])


def batch_group_training(layer: nn.Module, x: Tensor) -> Tensor:
    mean, var = over(x, 0, *positions(x))
    keep_moments(layer, mean.flatten(), var.flatten())
    outputs = []
    for part in (x[:3], x[3:6], x[6:]):
        grouped = by_channel_groups(part)
        mean, var = (t.expand_as(grouped).reshape(part.shape) for t in over(grouped, 0, *range(2, grouped.dim())))
        outputs.append(normalised(part, (mean, var), layer))
    return torch.cat(outputs)


def batch_group_evaluation(layer: nn.Module, x: Tensor) -> Tensor:
    mean = layer.running_mean.reshape(3, -1).mean(1).repeat_interleave(x.shape[1] // 3)
    square = (layer.running_var + layer.running_mean**2).reshape(3, -1).mean(1).repeat_interleave(x.shape[1] // 3)
    return normalised(x, (columns(mean, x), columns(square - mean**2, x)), layer)


def example_weighted(layer: nn.Module, x: Tensor) -> Tensor:
    own_mean, own_var = over(x, *positions(x))
    alpha, mean, var = (columns(t, x) for t in (layer.alpha.double(), layer.running_mean, layer.running_var))
    mixed = alpha * own_mean + (1 - alpha) * mean
    square = alpha * (own_var + own_mean**2) + (1 - alpha) * (var + mean**2)
    return normalised(x, (mixed, square - mixed**2), layer)


def gates(layer: nn.Module, x: Tensor) -> Tensor:
    means = over(x, *positions(x))[0].flatten(1)
    return (means @ layer.modes.gate.weight.t() + layer.modes.gate.bias).softmax(1)


def by_modes(layer: nn.Module, x: Tensor, shares: Tensor, modes: list[Moments]) -> Tensor:
    y = torch.zeros_like(x)
    for k, (mean, var) in enumerate(modes):
        y = y + columns(shares[:, k : k + 1].expand(-1, x.shape[1]), x) * (x - mean) / (var + layer.epsilon).sqrt()
    return y * columns(layer.weight, x) + columns(layer.bias, x)


def mode_training(layer: nn.Module, x: Tensor) -> Tensor:
    shares = gates(layer, x)
    modes = []
    for k in range(shares.shape[1]):
        weights = columns(shares[:, k : k + 1].expand(-1, x.shape[1]), x) / (shares[:, k].sum() * x[0, 0].numel())
        mean = (weights * x).sum((0, *positions(x)), keepdim=True)
        modes.append((mean, (weights * (x - mean) ** 2).sum((0, *positions(x)), keepdim=True)))
    with torch.no_grad():
        running = layer.modes
        for k, (mean, var) in enumerate(modes):
            old = running.running_var[k] + running.running_mean[k] ** 2
            square = (1 - FACTOR) * old + FACTOR * (var + mean**2).flatten()
            running.running_mean[k] += FACTOR * (mean.flatten() - running.running_mean[k])
            running.running_var[k] = square - running.running_mean[k] ** 2
    return by_modes(layer, x, shares, modes)


def mode_evaluation(layer: nn.Module, x: Tensor) -> Tensor:
    running = zip(layer.modes.running_mean, layer.modes.running_var, strict=True)
    return by_modes(layer, x, gates(layer, x), [(columns(m, x), columns(v, x)) for m, v in running])


def mode_group(layer: nn.Module, x: Tensor) -> Tensor:
    means = over(x, *positions(x))[0]
    logits = [means * w + b for w, b in zip(layer.modes.gate.weight, layer.modes.gate.bias, strict=True)]
    y = torch.zeros_like(x)
    for shares in torch.stack(logits).softmax(0):
        weights = (shares / shares.sum(1, keepdim=True)).expand_as(x) / x[0, 0].numel()
        mean = (weights * x).sum((1, *positions(x)), keepdim=True)
        var = (weights * (x - mean) ** 2).sum((1, *positions(x)), keepdim=True)
        y = y + (x - mean) / (var + layer.epsilon).sqrt() / len(logits)
    return y * columns(layer.weight, x) + columns(layer.bias, x)


Reference = Callable[[nn.Module, Tensor], Tensor]

REFERENCES: dict[str, tuple[Reference, Reference]] = {
    "example-weighted:alpha=0.3": (plain_training, example_weighted),
    "ghost:size=3,running=batch": (ghost_of_the_batch, plain_evaluation),
    "ghost:size=3,running=groups": (ghost_of_the_groups, plain_evaluation),
    "batch-group:channel_groups=3,examples_per_group=3": (batch_group_training, batch_group_evaluation),
    "mode:modes=3": (mode_training, mode_evaluation),
    "mode-group:modes=3": (mode_group, mode_group),
    "split:shared_affine=False": (plain_training, plain_evaluation),
    "split:shared_affine=True": (plain_training, plain_evaluation),
}
"""By spec: in training, where running statistics move too, and in evaluation."""
