"""The `merge` command's whole operation: fold the branches of a split network into one, and say what that loses."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from surgeon import checkpoint
from surgeon.core.errors import count
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.layers.running import evaluate_once
from surgeon.layers.surgical import SurgicalNorm
from surgeon.measuring.comparison import gain_over
from surgeon.measuring.engine import measure
from surgeon.measuring.preparation import InferenceRequest, prepare
from surgeon.metrics import metrics, summarise
from surgeon.models.origin import LoadedModel
from surgeon.models.sources import example_inputs
from surgeon.results import Merging
from surgeon.results.steps import merged
from surgeon.surgery.branches import merge_branches, mix_branches, mix_of, split_layers

COMPARED = ("accuracy", "cross-entropy", "scaled-cross-entropy")
MERGED, TWO_PASSES = "merged", "average of two passes"
HALF = 0.5


def run_merging(
    loaded: LoadedModel,
    share: float | None,
    destination: Path,
    *,
    overwrite: bool,
    request: InferenceRequest | None,
    progress: Progress,
) -> Merging:
    """Merge at a share of the auxiliary branch: the given one, that which the checkpoint mixes with, or a half."""
    processes = Processes.launched()
    processes.gather(lambda: None)  # all have looked at the destination before one of them writes
    if share is None:
        share = mix.share if (mix := mix_of(loaded.model)) is not None else HALF
    layers = split_layers(loaded.model)
    notes = _notes(layers.values(), share)
    two_passes = copy.deepcopy(loaded.model)
    mix_branches(two_passes, share)
    loaded.model = merge_branches(loaded.model, share)
    measured = _measure(loaded, two_passes, request, processes, progress) if request is not None else {}
    merging = Merging(
        model=loaded.name,
        share=share,
        layers=len(layers),
        probability_shift=_shift(loaded, two_passes),
        notes=notes,
        output=str(destination),
        **measured,
    )
    processes.only_first(lambda: checkpoint.save_checkpoint(loaded, destination, merged(merging), overwrite=overwrite))
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


def _measure(
    loaded: LoadedModel, two_passes: nn.Module, request: InferenceRequest, processes: Processes, progress: Progress
) -> dict[str, Any]:
    """Both networks on the same images."""
    prepared = prepare(loaded, request)
    variants = {MERGED: prepared.variant, TWO_PASSES: replace(prepared.variant, model=two_passes.to(prepared.device))}
    measured = measure(variants, prepared.batches(), prepared.problem.keep, processes=processes, progress=progress)
    folded, average = measured.kept[MERGED], measured.kept[TWO_PASSES]
    return {
        "data": request.data,
        "split": prepared.image_set.split,
        "merged": summarise(folded),
        "two_passes": summarise(average),
        "gains": tuple(gain_over(average, folded, metrics[name]) for name in COMPARED),
    }
