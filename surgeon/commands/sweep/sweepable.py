"""What a sweep turns: rewrites that the network lacks are installed first, and each axis is made for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn

from surgeon.commands.sweep.settings import ALPHA
from surgeon.core.errors import SurgeonError
from surgeon.layers.surgical import surgical_layers
from surgeon.measuring.axes import AlphaAxis, Axis, LambdaAxis, Pair, has_alpha
from surgeon.measuring.option_axis import OptionAxis
from surgeon.measuring.prior_axis import PriorAxis
from surgeon.measuring.product_axis import ProductAxis, SingleAxis
from surgeon.measuring.values import MOST_VALUES
from surgeon.models.origin import LoadedModel
from surgeon.surgery.branches import how_to_mix
from surgeon.surgery.plan import RewriteRequest, resolve_plan
from surgeon.surgery.proof import rewrite

Values = tuple[float, ...]


def make_sweepable(loaded: LoadedModel, axes: Iterable[str], layers: str | None) -> None:
    """Rewrite the BatchNorm layers so that they have what is swept, unless some are rewritten already.

    What is new starts at the value at which the network is the original.
    """
    present = {name for layer in surgical_layers(loaded.model).values() for name in layer.rewrites}
    missing: dict[str, list[str]] = {}
    for axis in axes:
        if axis in (LambdaAxis.name, PriorAxis.name):
            continue
        name = ALPHA if axis == AlphaAxis.name else axis.partition(".")[0]
        if name in present or (axis == AlphaAxis.name and has_alpha(loaded.model)):
            if layers is not None:
                raise SurgeonError(
                    f"{loaded.name} has {name} layers already, so --layers does not apply.",
                    "Convert the original network with --layers instead.",
                )
        else:
            missing.setdefault(name, []).append(axis)
    if missing:
        rewrite(loaded, resolve_plan(loaded.model, [RewriteRequest(name=name) for name in missing], layers))
    for axis in (axis for new in missing.values() for axis in new):
        made = _axis(loaded.model, axis)
        made.set(made.original)


def axes_but_the_prior(model: nn.Module, axes: Mapping[str, Values], mix_logits: bool) -> dict[str, SingleAxis]:
    """What a network is turned by, by name; statistics at several priors are estimated first, which takes images."""
    made = {}
    for name, values in axes.items():
        if name != PriorAxis.name:
            made[name] = axis = _axis(model, name, mix_logits)
            if isinstance(axis, OptionAxis):
                axis.check(values)
    return made


def combined(made: Mapping[str, SingleAxis], axes: Mapping[str, Values]) -> tuple[Axis, Values | tuple[Pair, ...]]:
    """One axis for all that is swept, and its values."""
    if len(axes) == 1:
        ((name, values),) = axes.items()
        return made[name], values
    (first, first_values), (second, second_values) = axes.items()
    both = ProductAxis(made[first], made[second])
    pairs = both.pairs(first_values, second_values)
    if len(pairs) > MOST_VALUES:
        raise SurgeonError(
            f"{first} and {second} make {len(pairs):,} pairs of values, more than {MOST_VALUES:,}.",
            "Sweep fewer values at once.",
        )
    return both, pairs


def _axis(model: nn.Module, name: str, mix_logits: bool = False) -> SingleAxis:
    if name == AlphaAxis.name:
        return AlphaAxis(model)
    if name == LambdaAxis.name:
        return LambdaAxis(model, how_to_mix(mix_logits))
    return OptionAxis(model, *name.split("."))
