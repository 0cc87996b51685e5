"""Merging the predictions of several views into one, view by view, without keeping them."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from surgeon.core.errors import SurgeonError

if TYPE_CHECKING:
    from torch import Tensor


class Merge(StrEnum):
    """What is averaged over the views."""

    LOGITS = "logits"
    PROBABILITIES = "probabilities"
    GEOMETRIC = "geometric"


class Merger:
    """Averages logits of the same images under several views; classes are the second dimension.

    The result can be used like logits: mean logits, or log-probabilities of the arithmetic or the
    geometric mean of the probabilities. Everything is computed in log space, where a class of
    probability zero is -inf and stays harmless.
    """

    def __init__(self, merge: Merge) -> None:
        self.merge = merge
        self.views = 0
        self._total: Tensor | None = None

    def add(self, logits: Tensor) -> None:
        """Take in one view."""
        import torch

        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.merge is not Merge.LOGITS:
            logits = logits.log_softmax(dim=1)
        self.views += 1
        if self._total is None:
            self._total = logits.clone()  # the view's own memory may be a part of a larger batch
        elif self.merge is Merge.PROBABILITIES:
            self._total = torch.logaddexp(self._total, logits)
        else:
            self._total += logits

    def result(self) -> Tensor:
        """The merged prediction of all views so far."""
        if self._total is None:
            raise SurgeonError("There are no views to merge.")
        if self.merge is Merge.PROBABILITIES:
            return self._total - math.log(self.views)
        mean = self._total / self.views
        return mean if self.merge is Merge.LOGITS else _normalised(mean)


def _normalised(log_weights: Tensor) -> Tensor:
    """Log-probabilities in proportion to weights; equal ones where the views leave no class possible."""
    impossible = log_weights.isneginf().all(dim=1, keepdim=True)
    return log_weights.masked_fill(impossible, 0.0).log_softmax(dim=1)
