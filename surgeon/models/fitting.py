"""Putting weights into a network: all of them, or an error that says what does not fit and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError, count, listing
from surgeon.models.guessing import where_it_fits
from surgeon.models.structure import difference, layers_of
from surgeon.models.weights import WeightsFile, is_batch_counter, wrapper_prefix


def load_into(model: nn.Module, weights: WeightsFile) -> None:
    """Copy the weights into the model, in the model's precision: all of them, or none and an error."""
    own = model.state_dict()
    given = _named_alike(weights, own)
    _refuse_misfit(weights, given, _tensors(own))
    # The model's own entries stay for what the file may lack, and with them the format version that some
    # torchvision networks insist on.
    own.update(given)
    model.load_state_dict(own)


def other_class_count(model: nn.Module, weights: WeightsFile) -> int | None:
    """How many classes the file has, if another number of them is all that keeps it from fitting."""
    own = model.state_dict()
    counts = _class_counts(_misfit(_named_alike(weights, own), _tensors(own)))
    return counts[0] if counts else None


def _named_alike(weights: WeightsFile, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # A wrapped model is compared as the file was read: without the wrapper's prefix.
    prefix = wrapper_prefix(own)
    given = {prefix + name: tensor for name, tensor in weights.state.items()}
    # FrozenBatchNorm has no batch counter, and files from before PyTorch 0.4.1 have none: it is not a weight.
    return {name: tensor for name, tensor in given.items() if name in own or not is_batch_counter(name)}


def _tensors(own: Mapping[str, object]) -> dict[str, Tensor]:
    return {name: value for name, value in own.items() if isinstance(value, Tensor)}


@dataclass(frozen=True)
class _Misfit:
    missing: list[str]
    unexpected: list[str]
    misshaped: dict[str, tuple[torch.Size, torch.Size]]  # in the file, in the model

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.misshaped)


def _misfit(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> _Misfit:
    return _Misfit(
        missing=[name for name in own if name not in given and not is_batch_counter(name)],
        unexpected=[name for name in given if name not in own],
        misshaped={
            name: (given[name].shape, own[name].shape)
            for name in own
            if name in given and given[name].shape != own[name].shape
        },
    )


def _refuse_misfit(weights: WeightsFile, given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> None:
    misfit = _misfit(given, own)
    if misfit:
        raise SurgeonError(
            f"The weights in {str(weights.path)!r} do not fit the model: {_described(misfit)}.",
            _likely_reason(misfit, weights, given, own),
        )
    # A float read from a quantised integer is off by an unknown scale.
    for name in own:
        if name in given and own[name].is_floating_point() and not given[name].is_floating_point():
            raise SurgeonError(
                f"{str(weights.path)!r} stores {name!r} as {given[name].dtype}, not as floating-point numbers.",
                "The file was probably quantised: use the weights from before that.",
            )


def refuse_diverged(model: nn.Module, path: Path) -> None:
    """NaN and infinite parameters and running statistics that a network has from a file."""
    statistics = {name: buffer for name, buffer in model.named_buffers() if _is_statistic(name)}
    learned = {**dict(model.named_parameters()), **statistics}
    broken = [name for name, tensor in learned.items() if tensor.is_floating_point() and not tensor.isfinite().all()]
    if broken:
        raise SurgeonError(
            f"{str(path)!r} stores NaN or infinite values in {listing(map(repr, broken), limit=3)}.",
            "Training diverged, or a value was too large for the precision it was saved in: use another checkpoint.",
        )


def _described(misfit: _Misfit) -> str:
    shapes = [f"{name} {_shape(file)} instead of {_shape(model)}" for name, (file, model) in misfit.misshaped.items()]
    kinds = {"missing": misfit.missing, "unexpected": misfit.unexpected, "of another shape": shapes}
    return "; ".join(
        f"{count(len(items), 'tensor')} {kind} ({listing(items, limit=3)})" for kind, items in kinds.items() if items
    )


def _shape(size: torch.Size) -> str:
    return "x".join(map(str, size)) or "a scalar"


def _likely_reason(
    misfit: _Misfit, weights: WeightsFile, given: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> str:
    classes = _class_counts(misfit)
    if classes:
        return f"The file has {classes[0]} classes, the model {classes[1]}: pass --num-classes {classes[0]}."
    if misfit.missing and not misfit.unexpected and all(map(_is_statistic, misfit.missing)):
        return "It holds parameters without the running statistics of BatchNorm: save model.state_dict() instead."
    different = difference(layers_of(given), layers_of(own))
    if different is None:
        return (
            "Its layers have the model's shapes under other names: --match shapes pairs them, "
            "--rename 'PATTERN=REPLACEMENT' renames them."
        )
    shared = sum(name in own for name in given)
    # A deeper variant has many names more, so the smaller of both sets decides.
    if shared < min(len(given), len(own)) / 2:
        return f"The file is probably of another architecture: {different}. {where_it_fits(weights)}"
    layers = {name.rpartition(".")[0] for name in (*misfit.missing, *misfit.unexpected, *misfit.misshaped)}
    if len(layers) == 1:
        return f"Only the layer {layers.pop()!r} differs; all others fit."
    return (
        f"The file is probably of another variant of this architecture, with another width or depth: {different}. "
        f"{where_it_fits(weights)}"
    )


def _is_statistic(name: str) -> bool:
    return name.rpartition(".")[2] in ("running_mean", "running_var")


def _class_counts(misfit: _Misfit) -> tuple[int, int] | None:
    """The class counts of file and model, if the outputs of the last layer are all that differs.

    Outputs are the first dimension of a weight. In any layer but the last, more outputs would mean more
    inputs, the second dimension, of the layer behind it.
    """
    if misfit.missing or misfit.unexpected:
        return None
    shapes = misfit.misshaped.values()
    if not all(file and model and file[1:] == model[1:] for file, model in shapes):
        return None
    counts = {(file[0], model[0]) for file, model in shapes}
    return counts.pop() if len(counts) == 1 else None
