"""Simultaneous perturbation stochastic approximation: an attack that asks the network for predictions only.

J. Uesato et al., Adversarial Risk and the Dangers of Evaluating Against Weak Attacks, ICML 2018. There 8192 samples
are taken for each of up to 100 steps; the defaults here are about a thousand times cheaper, and weaker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.attack import IterativeConfig, attacked, generators_of
from surgeon.conditions.base import Family, Seen, option, register

if TYPE_CHECKING:
    from torch import Tensor


class SpsaConfig(IterativeConfig):
    steps: int = option(10, "How many steps.", ge=1)
    samples: int = option(32, "Random directions per step; each costs two predictions.", ge=1)


@register("spsa", family=Family.ATTACK, config=SpsaConfig, paper="Uesato et al., ICML 2018", needs_network=True)
def spsa(config: SpsaConfig, seen: Seen) -> Tensor:
    """Steps along gradients that are estimated from predictions alone, within eps of the image."""
    from surgeon.conditions.attacks import ascent

    return ascent.spsa(
        *attacked(seen),
        generators_of(seen, "spsa"),
        eps=config.eps,
        step=config.length,
        steps=config.steps,
        samples=config.samples,
    )
