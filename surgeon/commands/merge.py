"""The `merge` command's whole operation: fold the branches of a split network into one, and say what that loses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from surgeon import checkpoint
from surgeon.core.errors import count
from surgeon.data.loaders import Batch
from surgeon.layers.running import evaluate_once
from surgeon.layers.surgical import SurgicalNorm
from surgeon.measuring.comparison import gain_over
from surgeon.measuring.predicting import score
from surgeon.measuring.setup import Request, Task, prepare
from surgeon.metrics import Scores, metrics, summarise
from surgeon.models.sources import LoadedModel, example_inputs
from surgeon.results import Merging
from surgeon.results.steps import merged
from surgeon.surgery.branches import merge_branches, mix_branches, mix_of, split_layers

COMPARED = ("accuracy", "cross-entropy", "scaled-cross-entropy")
HALF = 0.5

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the number of images done and the number of all."""


def run_merging(
    loaded: LoadedModel,
    share: float | None,
    destination: Path,
    *,
    overwrite: bool,
    request: Request | None,
    progress: Progress,
) -> Merging:
    """Merge at a share of the auxiliary branch: the given one, that which the checkpoint mixes with, or a half."""
    if share is None:
        share = mix.share if (mix := mix_of(loaded.model)) is not None else HALF
    layers = split_layers(loaded.model)
    notes = _notes(layers.values(), share)
    two_passes = copy.deepcopy(loaded.model)
    mix_branches(two_passes, share)
    loaded.model = merge_branches(loaded.model, share)
    measured = _measure(loaded, two_passes, request, progress) if request is not None else {}
    merging = Merging(
        model=loaded.name,
        share=share,
        layers=len(layers),
        probability_shift=_shift(loaded, two_passes),
        notes=notes,
        output=str(destination),
        **measured,
    )
    checkpoint.save_checkpoint(loaded, destination, merged(merging), overwrite=overwrite)
    return merging


def _notes(layers: Iterable[SurgicalNorm], share: float) -> tuple[str, ...]:
    alphas = [float(layer.alpha.max()) for layer in layers if (layer.alpha > 0).any()]
    if not alphas or share == 0:
        return ()
    return (
        f"{count(len(alphas), 'layer')} with alpha up to {max(alphas):g}: a merged layer keeps main's running "
        "statistics, and where each example's own are mixed into them it only approximates what lies between its "
        "branches.",
    )


def _shift(loaded: LoadedModel, two_passes: nn.Module) -> float | None:
    inputs = example_inputs(loaded.origin)
    if inputs is None:
        return None
    (ours,), (theirs,) = (evaluate_once(model, inputs) for model in (loaded.model, two_passes))
    return float((ours.softmax(-1) - theirs.softmax(-1)).abs().max())


def _measure(loaded: LoadedModel, two_passes: nn.Module, request: Request, progress: Progress) -> dict[str, Any]:
    """Both networks on the same images."""
    task = prepare(loaded, request)
    two_passes.to(task.device)
    folded, average = (
        _score(task, model, label, progress)
        for model, label in ((task.model, "merged"), (two_passes, "average of two passes"))
    )
    return {
        "data": request.data,
        "split": task.image_set.split,
        "merged": summarise(folded),
        "two_passes": summarise(average),
        "gains": tuple(gain_over(average, folded, metrics[name]) for name in COMPARED),
    }


def _score(task: Task, model: nn.Module, label: str, progress: Progress) -> Scores:
    done = 0

    def watch(_: Tensor, batch: Batch) -> None:
        nonlocal done
        done += len(batch.labels)
        progress(label, done, len(task.image_set))

    return score(model, task.batches(), task.manner, watch)
