"""The second branch of a split layer."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from surgeon.core.private import BatchNorm
from surgeon.layers.surgical import SurgicalNorm


class AuxiliaryNorm(SurgicalNorm, BatchNorm):  # type: ignore[misc, override]
    """Tensors of its own, everything else as in the layer it stands beside."""

    is_branch: ClassVar[bool] = True

    def reset_running_stats(self) -> None:
        """Whatever comes next begins a new average; a branch that nothing passes keeps its statistics."""
        if self.num_batches_tracked is not None and not self.frozen:
            self.num_batches_tracked.zero_()

    @classmethod
    def beside(cls, main: SurgicalNorm, shared_affine: bool) -> AuxiliaryNorm:
        """A branch that starts as a copy of a layer."""
        aux = cls(main.num_features, eps=main.epsilon, momentum=main.momentum, frozen=main.frozen, source=main.source)
        for name in ("weight", "bias"):
            value = getattr(main, name)
            if isinstance(value, nn.Parameter) or value is None:
                aux.register_parameter(name, value if shared_affine or value is None else _copied(value))
            else:
                aux.register_buffer(name, value if shared_affine else value.clone())
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            value = getattr(main, name)
            aux.register_buffer(name, None if value is None else value.clone())
        aux.follow(main)
        return aux.train(main.training)


def _copied(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)
