"""The fast gradient sign method.

I. Goodfellow, J. Shlens and C. Szegedy, Explaining and Harnessing Adversarial Examples, ICLR 2015.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.attack import AttackConfig, attacked
from surgeon.conditions.base import Family, Seen, register

if TYPE_CHECKING:
    from torch import Tensor


@register("fgsm", family=Family.ATTACK, config=AttackConfig, paper="Goodfellow et al., ICLR 2015", needs_network=True)
def fgsm(config: AttackConfig, seen: Seen) -> Tensor:
    """Every pixel changed by eps in the direction that raises the loss."""
    from surgeon.conditions.attacks import ascent

    return ascent.fgsm(*attacked(seen, shares=True), eps=config.eps)
