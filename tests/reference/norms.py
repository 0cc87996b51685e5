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


def mixed_moments_reference(x: Tensor, layer: nn.Module, alpha: float | Tensor) -> tuple[Tensor, Tensor]:
    """The paper's formula, literally, in float64: mix E[x] and E[x^2], subtract the squared mean."""
    x = x.double()
    mean, var = _double_columns(x, layer.running_mean, layer.running_var)
    share = _double_columns(x, alpha)[0] if isinstance(alpha, Tensor) else alpha
    positions = tuple(range(2, x.dim()))
    own, own_square = (t.mean(positions, keepdim=True) if positions else t for t in (x, x.square()))
    mixed = share * own + (1 - share) * mean
    mixed_square = share * own_square + (1 - share) * (var + mean.square())
    return mixed, mixed_square - mixed.square()


def example_weighted_reference(x: Tensor, layer: nn.Module, alpha: float | Tensor, eps: float = 1e-5) -> Tensor:
    mean, var = mixed_moments_reference(x, layer, alpha)
    y = (x.double() - mean) / (var + eps).sqrt()
    if layer.weight is not None:
        y = y * _double_columns(x, layer.weight)[0]
    return y if layer.bias is None else y + _double_columns(x, layer.bias)[0]


def _double_columns(x: Tensor, *tensors: Tensor) -> list[Tensor]:
    """Values per channel in float64, shaped for broadcasting against x."""
    return [t.detach().double().reshape(1, -1, *[1] * (x.dim() - 2)) for t in tensors]


def instance_aware(layer: nn.Module, x: Tensor) -> Tensor:
    """By the options k and weight of the layer; alpha then mixes in the example's own E[x] and E[x^2]."""
    options = layer.rewrites["instance-aware"]
    own_mean, own_var = over(x, *positions(x))
    alpha, mean, var = (columns(t, x) for t in (layer.alpha.double(), layer.running_mean, layer.running_var))
    count = x[0, 0].numel()
    corrected_mean = mean + options.weight * shrunk(own_mean - mean, options.k * (var / count) ** 0.5)
    corrected_var = var
    if count > 1:
        corrected_var = var + options.weight * shrunk(own_var - var, options.k * var * (2 / (count - 1)) ** 0.5)
        corrected_var = torch.maximum(corrected_var, torch.zeros_like(corrected_var))
    mixed = alpha * own_mean + (1 - alpha) * corrected_mean
    square = alpha * (own_var + own_mean**2) + (1 - alpha) * (corrected_var + corrected_mean**2)
    return normalised(x, (mixed, square - mixed**2), layer)


def shrunk(d: Tensor, t: Tensor) -> Tensor:
    """S(d; t): d moved towards 0 by t, and 0 where that would go beyond it."""
    return torch.where(d > t, d - t, torch.where(d < -t, d + t, torch.zeros_like(d)))


def mode_gates(x: Tensor, gate: nn.Module) -> Tensor:
    """(N, K), from the mean over positions."""
    means = over(x, *positions(x))[0].reshape(x.shape[:2])
    return (means @ gate.weight.to(x).t() + gate.bias.to(x)).softmax(1)


def weighted_moments(x: Tensor, shares: Tensor) -> Moments:
    """Mean and two-pass biased variance per channel, with one share (N,) for each example."""
    weights = (shares / (shares.sum() * x[0, 0].numel())).reshape(-1, *[1] * (x.dim() - 1))
    mean = (weights * x).sum((0, *positions(x)), keepdim=True)
    return mean, (weights * (x - mean) ** 2).sum((0, *positions(x)), keepdim=True)


def by_modes(x: Tensor, modes: nn.Module, eps: float, training: bool) -> tuple[Tensor, list[Moments]]:
    """`sum_k g_k (x - mu_k) / sqrt(var_k + eps)`, and the statistics of each mode, of the batch or running."""
    shares = mode_gates(x, modes.gate)
    if training:
        each = [weighted_moments(x, shares[:, k]) for k in range(shares.shape[1])]
    else:
        running = zip(modes.running_mean.to(x), modes.running_var.to(x), strict=True)
        each = [(columns(mean, x), columns(var, x)) for mean, var in running]
    y = torch.zeros_like(x)
    for k, (mean, var) in enumerate(each):
        y = y + shares[:, k].reshape(-1, *[1] * (x.dim() - 1)) * (x - mean) / (var + eps).sqrt()
    return y, each


def mode_training(layer: nn.Module, x: Tensor) -> Tensor:
    y, modes = by_modes(x, layer.modes, layer.epsilon, training=True)
    with torch.no_grad():
        running = layer.modes
        for k, (mean, var) in enumerate(modes):
            old = running.running_var[k] + running.running_mean[k] ** 2
            square = (1 - FACTOR) * old + FACTOR * (var + mean**2).flatten()
            running.running_mean[k] += FACTOR * (mean.flatten() - running.running_mean[k])
            running.running_var[k] = square - running.running_mean[k] ** 2
    return y * columns(layer.weight, x) + columns(layer.bias, x)


def mode_evaluation(layer: nn.Module, x: Tensor) -> Tensor:
    y, _ = by_modes(x, layer.modes, layer.epsilon, training=False)
    return y * columns(layer.weight, x) + columns(layer.bias, x)


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


def group_norm(layer: nn.Module, x: Tensor) -> Tensor:
    """GroupNorm of two groups that keeps moving averages of E[x] and E[x^2] in training."""
    if layer.training:
        mean, var = over(x, 0, *positions(x))
        with torch.no_grad():
            layer.running_mean += layer.momentum * (mean.flatten() - layer.running_mean)
            square = (1 - layer.momentum) * 1 + layer.momentum * (var + mean**2).flatten()
            layer.running_var.copy_(square - layer.running_mean**2)
    grouped = x.reshape(len(x), 2, -1)
    mean, var = over(grouped, 2)
    y = ((grouped - mean) / (var + layer.epsilon).sqrt()).reshape(x.shape)
    return y * columns(layer.weight, x) + columns(layer.bias, x)


Reference = Callable[[nn.Module, Tensor], Tensor]

REFERENCES: dict[str, tuple[Reference, Reference]] = {
    "example-weighted:alpha=0.3": (plain_training, example_weighted),
    "instance-aware:k=2.0,weight=1.0": (plain_training, instance_aware),
    "ghost:size=3,running=batch": (ghost_of_the_batch, plain_evaluation),
    "ghost:size=3,running=groups": (ghost_of_the_groups, plain_evaluation),
    "batch-group:channel_groups=3,examples_per_group=3": (batch_group_training, batch_group_evaluation),
    "mode:modes=3": (mode_training, mode_evaluation),
    "mode-group:modes=3": (mode_group, mode_group),
    "split:shared_affine=False": (plain_training, plain_evaluation),
    "split:shared_affine=True": (plain_training, plain_evaluation),
}
"""By spec: in training, where running statistics move too, and in evaluation."""
