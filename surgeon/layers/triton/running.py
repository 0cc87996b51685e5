"""Running moments after a training step: moved towards those of all groups of examples together."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from surgeon.layers.triton.tiles import WIDEST, Groups, launch

AT_ONCE = 32
"""Groups whose moments a program joins at a time."""


def updated_running(
    mean: Tensor, var: Tensor, groups: Groups, running_mean: Tensor, running_var: Tensor, factor: float
) -> Tensor:
    """Running moments (2, C) moved by `factor` towards those of all groups, (G, C) each: both moments are mixed."""
    channels = mean.shape[1]
    updated = mean.new_empty((2, channels), dtype=torch.float32)
    cb = min(triton.next_power_of_2(channels), WIDEST)
    launch(
        running_kernel, triton.cdiv(channels, cb), AT_ONCE * cb, mean, var, running_mean, running_var, *updated,
        factor=factor, groups=groups.number, size=groups.size, last=groups.last, channels=channels,
        cb=cb, at_once=AT_ONCE,
    )  # fmt: skip
    return updated


@triton.jit
def running_kernel(
    mean, var, running_mean, running_var, updated_mean, updated_var, factor, groups, size, last, channels,
    cb: tl.constexpr, at_once: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * cb + tl.arange(0, cb)
    there = channel < channels
    old_mean = tl.load(running_mean + channel, mask=there, other=0.0).to(tl.float32)
    old_var = tl.load(running_var + channel, mask=there, other=0.0).to(tl.float32)
    # Relative to the running mean, and squares about the mean so far: a large common offset does not cancel.
    middle, squares = tl.zeros([cb], tl.float32), tl.zeros([cb], tl.float32)
    examples = tl.zeros([cb], tl.float32)
    for start in range(0, groups, at_once):
        group = start + tl.arange(0, at_once)
        count = tl.where(group < groups, tl.where(group == groups - 1, last, size), 0).to(tl.float32)[:, None]
        at = group[:, None] * channels + channel[None, :]
        valid = (group < groups)[:, None] & there[None, :]
        own_mean = tl.load(mean + at, mask=valid, other=0.0) - old_mean[None, :]
        own_var = tl.load(var + at, mask=valid, other=0.0)
        own_count = tl.sum(count + tl.zeros_like(own_mean), 0)
        together = tl.sum(own_mean * count, 0) / own_count
        apart = own_mean - together[None, :]
        share = own_count / (examples + own_count)
        ahead = together - middle
        squares += tl.sum((own_var + apart * apart) * count, 0) + ahead * ahead * examples * share
        middle += ahead * share
        examples += own_count
    mixed = factor * squares / examples + (1 - factor) * old_var + factor * (1 - factor) * middle * middle
    tl.store(updated_mean + channel, old_mean + factor * middle, mask=there)
    tl.store(updated_var + channel, mixed, mask=there)
