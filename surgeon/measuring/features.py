"""What the head of a network sees: the features that it makes classes of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError

FEATURES = "features"
"""What a file of logits calls them."""


class HeadInputs(nn.Module):
    """A network that answers with what its head sees of each example: one row, the mean over positions.

    Args:
        model: The network; it is called as it is.
        heads: Its layers that make classes of features. Of several, what each sees stands side by side.
    """

    def __init__(self, model: nn.Module, heads: Sequence[nn.Module]) -> None:
        super().__init__()
        self.model = model
        self._heads = list(heads)

    def forward(self, *inputs: Any) -> Tensor:
        """The features of a batch, (examples, channels)."""
        seen: dict[int, Tensor] = {}

        def watch(number: int) -> Any:
            def keep(head: nn.Module, given: tuple[Any, ...]) -> None:
                if given and isinstance(given[0], Tensor):
                    seen[number] = _rows(head, given[0])

            return keep

        hooks = [head.register_forward_pre_hook(watch(number)) for number, head in enumerate(self._heads)]
        try:
            self.model(*inputs)
        finally:
            for hook in hooks:
                hook.remove()
        found = [seen[number] for number in sorted(seen)]
        if not found or any(len(one) != len(inputs[0]) for one in found):
            raise SurgeonError(
                "The input of this network's head cannot be captured: the head is not called as a layer, once "
                "per batch.",
                "Leave the features out.",
            )
        return torch.cat(found, 1).float()


def _rows(head: nn.Module, given: Tensor) -> Tensor:
    """The mean over positions: channels come second before a convolution, and last before a linear layer."""
    if given.dim() > 2:
        is_convolution = isinstance(head, nn.Conv1d | nn.Conv2d | nn.Conv3d)
        return given.flatten(2).mean(2) if is_convolution else given.flatten(1, -2).mean(1)
    return given
