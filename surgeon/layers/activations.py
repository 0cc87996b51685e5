"""Activations that the kernels of inference compute together with a normalisation.

Only modules of exactly these types, whose call nobody waits for, are left out in favour of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timm.layers.activations import GELU, GELUTanh
from torch import nn

from surgeon.core.private import calls_are_plain, children_of
from surgeon.layers.native import Activation

_KERNELS: dict[type[nn.Module], Callable[[Any], Activation]] = {
    # The numbers stand in native/activations.h too.
    nn.Identity: lambda _: Activation(0),
    nn.ReLU: lambda _: Activation(1),
    nn.ReLU6: lambda _: Activation(2),
    nn.SiLU: lambda _: Activation(3),
    nn.Hardswish: lambda _: Activation(4),
    nn.LeakyReLU: lambda module: Activation(5, module.negative_slope),
    nn.GELU: lambda module: Activation(6 if module.approximate == "none" else 7),
    GELU: lambda _: Activation(6),
    GELUTanh: lambda _: Activation(7),
}


def following(norm: nn.Module) -> Activation | None:
    """What a layer does after normalising, if that is an activation of the kernels' or nothing; None otherwise."""
    children = children_of(norm)
    drop, act = children.get("drop"), children.get("act")
    if drop is not None and type(drop) is not nn.Identity:
        return None
    if act is None:
        return Activation() if drop is None or calls_are_plain(drop) else None
    kernel = _KERNELS.get(type(act))
    if kernel is None or not (calls_are_plain(act) if drop is None else calls_are_plain(drop, act)):
        return None
    return kernel(act)
