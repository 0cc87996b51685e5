"""What generic code asks of a rewrite: options that also answer for the layer they were installed in.

Conversion, inspection, training and re-estimation know no rewrite by name. They ask the options that a layer keeps in
`rewrites`, and whatever a rewrite leaves out is answered as for a plain BatchNorm. As for all options, torch is
imported only inside functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from surgeon.core.specs import Options

if TYPE_CHECKING:
    from torch import Tensor, nn

    from surgeon.layers.surgical import SurgicalNorm

Part = tuple[str, "nn.Module | Mapping[str, Tensor]"]
"""A label, and a module or named tensors."""


class NormConfig(Options):
    """Options of one rewrite, and its answers."""

    alpha_option: ClassVar[str | None] = None
    """The option that holds the layer's alpha, where that may be set in the layer after conversion."""
    takes_group_norm: ClassVar[bool] = False
    """Whether it rewrites GroupNorm layers too."""
    slow_channels_last: ClassVar[bool] = False
    """Whether its kernels want features in torch's default order, not in the channels-last one usual in training."""
    branch_augments: ClassVar[tuple[str, ...]] = ()
    """Where layers get branches: the default augmentation of each branch's images in training, the main one first."""

    @classmethod
    def notes(cls, layers: Sequence[Self]) -> Sequence[str]:  # noqa: ARG003
        """What somebody who has just typed the name may not expect, by the options of all converted layers."""
        return ()

    def check_examples(self, examples: int, layer: str) -> None:
        """Raise SurgeonError where the layer of this name cannot be trained on so many examples at once."""

    def parts(self, norm: SurgicalNorm) -> Iterator[Part]:  # noqa: ARG002
        """What the layer normalises by besides its own tensors, so that `inspect` tells of its health."""
        yield from ()

    def gates(self, norm: SurgicalNorm) -> Callable[[Tensor], Tensor] | None:  # noqa: ARG002
        """What gives the share (N, K, ...) of each of K modes in an input, where the layer divides it among modes."""
        return None

    def reset_statistics(self, norm: SurgicalNorm) -> None:
        """Bring running statistics that the rewrite has added back to their initial values."""
