"""Names for several corruptions: all fifteen, and each family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.conditions.base import Condition, Family, Seen, conditions
from surgeon.conditions.corruption import PAPER, CorruptionConfig
from surgeon.core.errors import SurgeonError

if TYPE_CHECKING:
    from torch import Tensor

FIFTEEN = (Family.NOISE, Family.BLUR, Family.WEATHER, Family.DIGITAL)


def members(*families: Family) -> list[str]:
    """The corruptions of some families, by family and name."""
    found = [name for name in conditions if conditions[name].config is CorruptionConfig and name not in GROUPS]
    return [name for family in families for name in found if conditions[name].family is family]


def _group(name: str, summary: str, *families: Family) -> Condition:
    def stands_for(config: CorruptionConfig) -> tuple[str, ...]:
        severity = f":severity={config.severity}" if config.severity else ""
        return tuple(f"{member}{severity}" for member in members(*families))

    def apply(config: CorruptionConfig, seen: Seen) -> Tensor:  # noqa: ARG001
        raise SurgeonError(f"{name} stands for several conditions, which are applied one by one.")

    family = families[0] if len(families) == 1 else Family.SEVERAL
    return conditions.register(name)(
        Condition(name, summary, PAPER, CorruptionConfig, family, apply, stands_for=stands_for)
    )


GROUPS = {
    name: _group(name, summary, *families)
    for name, summary, families in (
        ("corruptions", "All fifteen corruptions, without the extra ones.", FIFTEEN),
        ("noise", "All noise corruptions.", (Family.NOISE,)),
        ("blur", "All blur corruptions.", (Family.BLUR,)),
        ("weather", "All weather corruptions.", (Family.WEATHER,)),
        ("digital", "All digital corruptions.", (Family.DIGITAL,)),
        ("extra", "The four extra corruptions, which are not among the fifteen.", (Family.EXTRA,)),
    )
}
