"""What the attacks share: the box about each image, the network that is attacked, and what is random.

Pixels are changed where black is 0 and white 1, before they are normalised, each by at most eps. An image that is
attacked knows its label, and nothing of the other images of its batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from surgeon.conditions.base import Asked, Condition, ConditionConfig, Family, Seen, ask, conditions, option
from surgeon.core.errors import SurgeonError
from surgeon.core.specs import parse_spec

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from surgeon.conditions.attacks.ascent import Logits

DIGITS = 6
SHARE_OF_EPS = 0.26
"""The length of a step: 0.0078 at 0.03, and nearly the 3/255 at 12/255 that are usual on SVHN."""


def _number(given: Any) -> Any:
    """`8/255` as the number it is, as people write distances between images."""
    above, slash, below = given.partition("/") if isinstance(given, str) else ("", "", "")
    try:
        return round(float(above) / float(below), DIGITS) if slash else given
    except (ValueError, ZeroDivisionError):
        return given


Distance = Annotated[float, BeforeValidator(_number)]
"""Between images, where black is 0 and white 1; may be given as a fraction."""


class AttackConfig(ConditionConfig):
    eps: Distance = option(
        0.03, "Largest change of a pixel, where black is 0 and white 1; also as a fraction: 8/255.", ge=0, le=1
    )
    source: str | None = option(
        None, "Attack this MODEL instead, and test the network on the result: a black-box (transfer) attack."
    )


class IterativeConfig(AttackConfig):
    step: Distance | None = option(
        None, "Step size, also as a fraction: 2/255. Default: 0.26 eps, which is 0.0078 at 0.03.", gt=0, le=1
    )
    steps: int = option(20, "How many steps.", ge=1)

    @property
    def length(self) -> float:
        """Of a step."""
        return SHARE_OF_EPS * self.eps if self.step is None else self.step


def attacked(seen: Seen, *, shares: bool = False) -> tuple[Logits, Tensor, Tensor]:
    """The network from pixels to logits, pixels and what is to be wrong of them.

    Pixels and labels are ordinary tensors: those that were made in inference mode take no part in a backward pass.

    Args:
        seen: The images.
        shares: The attack also takes mixed labels, as shares of classes; without it, it gets class numbers.
    """
    if seen.network is None:
        raise SurgeonError(f"The condition {seen.name!r} attacks a network, and none was given.")
    labels = seen.targets if shares and seen.targets is not None else seen.labels
    pixels, labels = (tensor.clone() if tensor.is_inference() else tensor for tensor in (seen.pixels, labels))
    return seen.network, pixels, labels


def one_attack(spec: str) -> Asked:
    """An attack that training can take: one, and on the network that is trained."""
    found = ask([spec])
    if len(found) != 1 or found[0].condition.family is not Family.ATTACK:
        raise SurgeonError(f"{spec!r} is not one attack.", "Name one, as pgd:eps=0.03,steps=7 or fgsm.")
    if isinstance(config := found[0].config, AttackConfig) and config.source is not None:
        raise SurgeonError(
            f"{spec!r} attacks another network, but training attacks the one that is trained.", "Leave out source=."
        )
    return found[0]


def is_attack(spec: str) -> bool:
    """Whether a spec names an attack."""
    name = parse_spec(spec)[0]
    return name in conditions and conditions[name].family is Family.ATTACK


def generators_of(seen: Seen, attack: str) -> list[Generator]:
    """One for each image, the same at all settings of an attack: they differ in nothing but the setting."""
    return list(replace(seen, name=attack).torch_generators())


CURVES = {"eps": (0.0, 0.00375, 0.0075, 0.015, 0.06), "steps": (5, 10, 40)}
"""Besides pgd as it is: accuracy against eps and against steps, by which masked gradients are found."""


def _several(config: ConditionConfig) -> tuple[str, ...]:  # noqa: ARG001
    curves = (f"pgd:{name}={value:g}" for name, values in CURVES.items() for value in values)
    return "fgsm", "pgd", *curves, "spsa"


def _apply(config: ConditionConfig, seen: Seen) -> Tensor:  # noqa: ARG001
    raise SurgeonError("attacks stands for several conditions, which are applied one by one.")


conditions.register("attacks")(
    Condition(
        "attacks",
        "FGSM, SPSA, and PGD at several eps and numbers of steps: all that the gradient-masking checks need.",
        "",
        ConditionConfig,
        Family.ATTACK,
        _apply,
        needs_network=True,
        stands_for=_several,
    )
)
