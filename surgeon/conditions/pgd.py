"""Projected gradient descent, the attack (which ascends).

A. Madry et al., Towards Deep Learning Models Resistant to Adversarial Attacks, ICLR 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.attack import IterativeConfig, attacked, generators_of
from surgeon.conditions.base import Family, Seen, register

if TYPE_CHECKING:
    from torch import Tensor


@register("pgd", family=Family.ATTACK, config=IterativeConfig, paper="Madry et al., ICLR 2018", needs_network=True)
def pgd(config: IterativeConfig, seen: Seen) -> Tensor:
    """Steps along the sign of the gradient from a random start, within eps of the image."""
    from surgeon.conditions.attacks import ascent

    return ascent.pgd(
        *attacked(seen, shares=True),
        generators_of(seen, "pgd"),
        eps=config.eps,
        step=config.length,
        steps=config.steps,
    )
