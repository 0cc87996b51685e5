"""The loss of a step in which examples took the moments of others, alone or together with CutMix."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from surgeon.inserts.moex.layer import Exchange


class CutMix(NamedTuple):
    """Example i kept the share `kept` of its pixels and took the rest from example permutation[i]."""

    permutation: Tensor
    kept: float | Tensor


def exchanged_loss(
    criterion: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    targets: Tensor,
    exchange: Exchange | None,
    cutmix: CutMix | None = None,
) -> Tensor:
    """MoEx: `lam * L(y) + (1 - lam) * L(y[partner])`; plain where nothing was exchanged.

    With CutMix in the same step one permutation drives both. An example is then cut from i and its
    partner, and takes the moments of its partner, which is itself cut from the partner and the partner's
    partner: three labels. For one `kept` per example the criterion must not average (reduction="none").

    Args:
        criterion: The loss of logits and labels.
        logits: Of the batch.
        targets: The labels of the batch before anything was exchanged.
        exchange: What the step exchanged, `unit.last`; None if nothing.
        cutmix: What CutMix did to the same batch.
    """
    if exchange is not None and cutmix is not None and not torch.equal(*_on_one_device(exchange, cutmix)):
        raise ValueError("MoEx and CutMix of one step need one permutation: set the unit's `permutation` to CutMix's")
    mixed = exchange or cutmix
    if mixed is None:
        return criterion(logits, targets).mean()
    own = 1.0 if exchange is None else exchange.lam
    kept = 1.0 if cutmix is None else cutmix.kept
    partners = targets[mixed.permutation.to(targets.device)]
    # The partner's image is itself cut, by a share of its own.
    of_partner = kept[mixed.permutation.to(kept.device)] if isinstance(kept, Tensor) and kept.dim() else kept
    loss = _weighted(criterion(logits, targets), own * kept)
    loss = loss + _weighted(criterion(logits, partners), own * (1 - kept) + (1 - own) * of_partner)
    if exchange is not None and cutmix is not None:
        third = partners[mixed.permutation.to(targets.device)]
        loss = loss + _weighted(criterion(logits, third), (1 - own) * (1 - of_partner))
    return loss


def _on_one_device(exchange: Exchange, cutmix: CutMix) -> tuple[Tensor, Tensor]:
    return exchange.permutation, cutmix.permutation.to(exchange.permutation.device)


def _weighted(loss: Tensor, weight: float | Tensor) -> Tensor:
    if isinstance(weight, Tensor) and weight.dim() > 0 and loss.dim() == 0:
        raise ValueError('One weight per example needs one loss per example: a criterion with reduction="none"')
    return (loss * (weight.to(loss.device) if isinstance(weight, Tensor) else weight)).mean()
