"""Networks for colour images that are to take fewer channels: timm's rule, for networks of torchvision too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError

COLOURS = 3


def fitted(weight: Tensor, shape: Sequence[int]) -> Tensor | None:
    """The weight of a first convolution with its filters summed over colours, if that gives it another one's shape."""
    summable = weight.dim() == 4 and weight.shape[1] == COLOURS and shape[1:2] == (1,)
    if not summable or (weight.shape[0], *weight.shape[2:]) != (shape[0], *shape[2:]):
        return None
    from timm.models import adapt_input_conv

    return adapt_input_conv(1, weight)


@torch.no_grad()
def with_channels(model: nn.Module, channels: int, name: str) -> nn.Module:
    """The network with a first convolution for one channel in the place of that for colours."""
    if channels == COLOURS:
        return model
    found = [(path, one) for path, one in model.named_modules() if isinstance(one, nn.Conv2d) and _takes_colours(one)]
    if channels != 1 or len(found) != 1:
        raise SurgeonError(f"{name!r} cannot be built for images with {channels} channels.", "Choose another network.")
    path, old = found[0]
    new = nn.Conv2d(
        1,
        old.out_channels,
        cast("tuple[int, int]", old.kernel_size),
        cast("tuple[int, int]", old.stride),
        cast("tuple[int, int] | str", old.padding),
        cast("tuple[int, int]", old.dilation),
        bias=old.bias is not None,
        padding_mode=old.padding_mode,
    )
    summed = fitted(old.weight, new.weight.shape)
    assert summed is not None
    new.weight.copy_(summed)
    if old.bias is not None and new.bias is not None:
        new.bias.copy_(old.bias)
    parent, _, own = path.rpartition(".")
    setattr(model.get_submodule(parent), own, new)
    if getattr(model, "transform_input", False):
        model.transform_input = False  # type: ignore[assignment]  # which looks at each colour by itself
    return model


def _takes_colours(layer: nn.Conv2d) -> bool:
    return layer.in_channels == COLOURS and layer.groups == 1
