"""Groups of options that several commands share, each one parameter of a command's function.

Typer wants every option in a function's signature: `unfolded` puts them there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from surgeon.cli import options, output
from surgeon.core.errors import SurgeonError

if TYPE_CHECKING:
    from surgeon.measuring.preparation import InferenceRequest
    from surgeon.models.origin import LoadedModel

R = TypeVar("R")


@dataclass(frozen=True)
class Weights:
    """Which weights a model gets."""

    weights: options.Weights = None
    rename: options.Rename = None
    match: options.Match = None
    pretrained: options.Pretrained = True

    def load(self, model: str, tells_names: bool = True, diverged: bool = False) -> LoadedModel:
        from surgeon import checkpoint

        wanted = asdict(self) | {"rename": tuple(self.rename or ()), "diverged": diverged}
        loaded = checkpoint.open_model(model, **wanted)
        if tells_names and (self.rename or self.match):
            for remark in loaded.origin.notes:
                output.note(remark)
        return loaded


@dataclass(frozen=True)
class Opening(Weights):
    """The same for a model that is used as it is, whose head may need a size."""

    num_classes: options.NumClasses = None

    def open(self, model: str, tells_names: bool = True, diverged: bool = False) -> LoadedModel:
        with output.working(f"Opening {model}…"):
            return self.load(model, tells_names, diverged)


@dataclass(frozen=True)
class AnyImages:
    """Which images a network sees, whether it learns from them or not."""

    limit: options.Limit = None
    skip_bad: options.SkipBad = False
    image_column: options.ImageColumn = None
    label_column: options.LabelColumn = None
    input_size: options.InputSize = None
    device: options.Device = None
    where: options.Where = None
    problem: options.Problem = None
    void: options.Void = None

    @property
    def _given(self) -> dict[str, Any]:
        return asdict(self) | {name: tuple(getattr(self, name) or ()) for name in ("where", "void")}


@dataclass(frozen=True)
class TrainingImages(AnyImages):
    """Images to learn from: the recipe says how they are prepared."""

    workers: options.TrainingWorkers = None

    def request(self, data: str) -> InferenceRequest:
        """What has to be opened."""
        from surgeon.data.opening import check_data
        from surgeon.measuring.preparation import InferenceRequest

        check_data(data)
        given = self._given
        given.pop("input_size")  # part of the recipe
        return InferenceRequest(data=data, **given)


@dataclass(frozen=True)
class GivenImages:
    """Images that are given one by one: how they are prepared and predicted."""

    skip_bad: options.SkipBad = False
    input_size: options.InputSize = None
    device: options.Device = None
    crop_pct: options.CropPct = None
    interpolation: options.Interpolation = None
    mean: options.Mean = None
    std: options.Std = None
    batch_size: options.BatchSize = None
    workers: options.Workers = None
    precision: options.PrecisionOption = "float32"

    def request(self, data: str, tta: str | None = None, merge: str = "logits") -> InferenceRequest:
        """What has to be predicted, checked."""
        return _inference_request(asdict(self) | {"labelled": False}, data, tta, merge)


@dataclass(frozen=True)
class InferenceImages(AnyImages):
    """Images to predict, and how they are prepared."""

    split: options.Split = None
    crop_pct: options.CropPct = None
    interpolation: options.Interpolation = None
    mean: options.Mean = None
    std: options.Std = None
    batch_size: options.BatchSize = None
    workers: options.Workers = None
    precision: options.PrecisionOption = "float32"

    def request(self, data: str, tta: str | None = None, merge: str = "logits") -> InferenceRequest:
        """What has to be predicted, checked."""
        from surgeon.data.opening import check_data

        check_data(data)  # before weights are downloaded
        return _inference_request(self._given, data, tta, merge)


@dataclass(frozen=True)
class ChoosingImages(InferenceImages):
    """The same for a command that chooses something by them."""

    split: options.ChoosingSplit = None


def _inference_request(given: dict[str, Any], data: str, tta: str | None, merge: str) -> InferenceRequest:
    from surgeon.core.devices import Precision
    from surgeon.measuring.preparation import ImageOptions, InferenceRequest
    from surgeon.views import Merge, check_views

    if tta is not None:
        check_views(tta)
    given |= {name: _numbers(given[name], f"--{name}") for name in ("mean", "std")}
    of_images = {field.name: given.pop(field.name) for field in fields(ImageOptions)}
    precision = output.one_of(Precision, given.pop("precision"), "--precision")
    return InferenceRequest(
        data=data,
        tta=tta,
        merge=output.one_of(Merge, merge, "--merge"),
        precision=precision,
        images=ImageOptions(**of_images),
        **given,
    )


def _numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SurgeonError(f"{option} cannot be {text!r}.", "Write numbers with commas: 0.485,0.456,0.406.") from None


def unfolded(command: Callable[..., R]) -> Callable[..., R]:
    """A command that takes the options of its groups one by one, as Typer hands them over."""
    parameters: dict[str, inspect.Parameter] = {}
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            parameters |= inspect.signature(groups[name], eval_str=True).parameters
        else:
            parameters[name] = parameter

    @wraps(command)
    def run(**given: Any) -> R:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters.values()]
    returned = inspect.signature(command, eval_str=True).return_annotation
    run.__signature__ = inspect.Signature(keywords, return_annotation=returned)  # type: ignore[attr-defined]
    return run
