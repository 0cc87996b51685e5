"""AutoAttack: four attacks without settings, of which each gets the images that withstood those before.

F. Croce and M. Hein, Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-free Attacks,
ICML 2020. It is their code, as the package pyautoattack. What it draws depends on the batch that an image is in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.attack import AttackConfig, attacked
from surgeon.conditions.base import Family, Seen, register

if TYPE_CHECKING:
    from torch import Tensor


@register(
    "auto-attack", family=Family.ATTACK, config=AttackConfig, paper="Croce and Hein, ICML 2020", needs_network=True
)
def auto_attack(config: AttackConfig, seen: Seen) -> Tensor:
    """APGD with two losses, FAB and Square Attack, one after the other; needs the extra `attacks`."""
    from surgeon.conditions.attacks.automatic import run

    return run(*attacked(seen), eps=config.eps, seed=seen.seeds()[0])
