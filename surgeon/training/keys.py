"""What the keys of a recipe may hold: specs are checked when a recipe is read, not hours later when they are used.

Each check imports what it needs when it is made, so that recipes can be listed without waiting for torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from surgeon.core.errors import SurgeonError, did_you_mean


def _as_list(value: Any) -> Any:
    if not isinstance(value, str | list | tuple):
        raise ValueError("it should be a string or a list of strings")
    return [value] if isinstance(value, str) else value


def _refused_by(check: Callable[[Any], object]) -> AfterValidator:
    """Tell a mistake when the recipe is read, not hours later when the value is used."""

    def checked(value: Any) -> Any:
        check(value)
        return value

    return _replaced_by(checked)


def _replaced_by(convert: Callable[[Any], Any]) -> AfterValidator:
    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except SurgeonError as error:
            raise ValueError(str(error).rstrip(".")) from None

    return AfterValidator(converted)


def _check_rewrite(spec: str) -> None:
    from surgeon.surgery.plan import check_requests

    check_requests((spec,), ())


def _check_insert(spec: str) -> None:
    from surgeon.surgery.plan import check_requests

    check_requests((), (spec,))


def attack_among(specs: Iterable[str]) -> str | None:
    """The attack that makes the strong copies, if one does."""
    from surgeon.conditions.attack import is_attack

    return next((spec for spec in specs if is_attack(spec)), None)


def _check_attack(spec: str) -> None:
    from surgeon.conditions.attack import one_attack

    one_attack(spec)


def _check_strong(specs: tuple[str, ...]) -> None:
    if (attack := attack_among(specs)) is None:
        for spec in specs:
            _check_augment(spec)
        return
    _check_attack(attack)
    if len(specs) > 1:
        raise SurgeonError(f"{attack!r} attacks the weak copies, so nothing else can make the strong ones")


def _added_up(specs: tuple[str, ...]) -> tuple[str, ...]:
    """All terms of the loss by name: what stands for several is replaced by them, and the labels are looked at."""
    from surgeon.losses.base import ask

    return tuple(term.name for term in ask(specs))


def _check_augment(spec: str) -> None:
    from surgeon.augment.base import check_augments

    check_augments((spec,))


def _check_values(text: str) -> None:
    from surgeon.measuring.values import parse_values

    parse_values(text, "alpha")


def _check_metric(name: str) -> None:
    from surgeon.metrics import metrics

    metrics[name]


def _check_views(spec: str) -> None:
    from surgeon.views import check_views

    check_views(spec)


def _check_optimizer(name: str) -> None:
    from timm.optim import get_optimizer_class, get_optimizer_info, list_optimizers

    known = [str(one) for one in list_optimizers()]
    common = "Common ones are sgd, adamw, lamb and lion."
    if name.lower() not in known:
        raise SurgeonError(f"There is no optimiser {name!r} in timm.", did_you_mean(name, known) or common)
    optimizer = get_optimizer_info(name)
    if optimizer.second_order:
        raise SurgeonError(f"The optimiser {name!r} needs second derivatives, which training does not compute.", common)
    try:
        get_optimizer_class(name)
    except (AssertionError, ImportError):
        package = str(optimizer.opt_class).partition(".")[0]
        sentence = f"The optimiser {name!r} needs an NVIDIA GPU and the package {package}, which are not both here."
        raise SurgeonError(sentence, common) from None


Attack = Annotated[str, _refused_by(_check_attack)]
Metric = Annotated[str, _refused_by(_check_metric)]
Optimizer = Annotated[str, _refused_by(_check_optimizer)]
Values = Annotated[str, _refused_by(_check_values)]
Views = Annotated[str, _refused_by(_check_views)]
Rewrites = Annotated[tuple[Annotated[str, _refused_by(_check_rewrite)], ...], BeforeValidator(_as_list)]
Inserts = Annotated[tuple[Annotated[str, _refused_by(_check_insert)], ...], BeforeValidator(_as_list)]
Augments = Annotated[tuple[Annotated[str, _refused_by(_check_augment)], ...], BeforeValidator(_as_list)]
Strong = Annotated[tuple[str, ...], _refused_by(_check_strong), BeforeValidator(_as_list)]
Losses = Annotated[tuple[str, ...], _replaced_by(_added_up), BeforeValidator(_as_list)]
Frozen = Annotated[tuple[Literal["backbone", "norm"], ...], BeforeValidator(_as_list)]
Shares = tuple[Annotated[float, Field(gt=0, lt=1)], ...]
