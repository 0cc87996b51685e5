"""Rewritten layers that are instances of the class that they replace, which is what tools of all kinds ask for.

Everything that these layers do is SurgicalNorm's, which comes first in each.
"""

from __future__ import annotations

from torch import nn
from torchvision.ops.misc import FrozenBatchNorm2d

from surgeon.layers.surgical import SurgicalNorm


class SurgicalBatchNorm1d(SurgicalNorm, nn.BatchNorm1d):  # type: ignore[misc, override]
    """A rewritten BatchNorm1d."""


class SurgicalBatchNorm2d(SurgicalNorm, nn.BatchNorm2d):  # type: ignore[misc, override]
    """A rewritten BatchNorm2d, also one of timm's with an activation."""


class SurgicalBatchNorm3d(SurgicalNorm, nn.BatchNorm3d):  # type: ignore[misc, override]
    """A rewritten BatchNorm3d."""


class SurgicalSyncBatchNorm(SurgicalNorm, nn.SyncBatchNorm):  # type: ignore[misc, override]
    """A rewritten SyncBatchNorm, also one of timm's with an activation."""


class SurgicalFrozenBatchNorm2d(SurgicalNorm, FrozenBatchNorm2d):  # type: ignore[misc]
    """A rewritten frozen layer of torchvision's or timm's."""

    __repr__ = nn.Module.__repr__


class SurgicalGroupNorm(SurgicalNorm, nn.GroupNorm):  # type: ignore[misc, override]
    """A rewritten GroupNorm."""
