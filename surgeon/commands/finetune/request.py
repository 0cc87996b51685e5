"""What a run is asked to do, and whether its folder is fit for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from surgeon.core.atomic import check_destination
from surgeon.core.errors import SurgeonError, listing
from surgeon.measuring.preparation import InferenceRequest
from surgeon.report.folder import RESULT
from surgeon.training.recipe import Recipe, check_recipe, read_yaml
from surgeon.training.tracking import check_tracker

RECIPE, RUN, LOGITS, PICTURE = "recipe.yaml", "run.json", "test-logits.safetensors", "curves.png"
CHECKPOINT, SNAPSHOTS, SWEEPS = "checkpoint", "snapshots", {"alpha": "sweep-alpha", "lambda": "sweep-lambda"}
FITTED = ("augment", "batch_size", "input_size", "norm_weight_decay", "sweep_metric")
"""Keys of a recipe that the network and the images decide, unless it does; the run's own has what came of it."""
MAY_CHANGE = ("lr",)
"""Keys that an unfinished run may go on with another value of: a loss that is no number wants a smaller rate."""


@dataclass(frozen=True)
class FinetuneRequest:
    """Which images, how to train, and where the run lives."""

    inference: InferenceRequest
    recipe: Recipe
    output: Path
    unlabelled: str | None = None
    """Images without labels to learn from as well: a DATA of the command line, or `same`."""
    resume: bool = False
    overwrite: bool = False
    track: str | None = None
    force: bool = False
    """Store the chosen settings even if their gain may be noise."""
    under: tuple[str, ...] = ()
    """Conditions to choose the settings under, after training."""
    max_clean_loss: float | None = None
    """The most accuracy (as a share) that a setting may lose on clean images."""


def check_run(request: FinetuneRequest) -> None:
    """Before any work is done: a new run needs an empty folder, a resumed one its own, with the same recipe."""
    folder = request.output
    check_tracker(request.track)
    if request.resume and request.overwrite:
        raise SurgeonError("--resume goes on with a run and --overwrite begins afresh: pass one of them.")
    if not (request.resume or request.overwrite) and (folder / RUN).is_file() and not (folder / RESULT).is_file():
        raise SurgeonError(
            f"{folder} holds an unfinished run.",
            "--resume (in Python resume=True) goes on with it, --overwrite begins afresh.",
        )
    if not request.resume:
        check_destination(folder, request.overwrite)
    elif not (folder / RUN).is_file():
        raise SurgeonError(f"There is no run in {folder} to resume.", "Leave --resume out to begin one.")
    else:
        not_yet_known = [key for key in FITTED if getattr(request.recipe, key) in (None, ())]
        refuse_other_run(folder, other_keys(folder, request.recipe, not_yet_known))


def begun_with(folder: Path) -> Recipe:
    """The recipe of the run in a folder."""
    return check_recipe(read_yaml(folder / RECIPE), str(folder / RECIPE))


def other_keys(folder: Path, recipe: Recipe, apart_from: Collection[str] = ()) -> list[str]:
    """The keys in which a recipe is not that of the run in a folder, and ought to be."""
    stored = begun_with(folder)
    changeable = () if (folder / RESULT).is_file() else MAY_CHANGE
    keys = [key for key in Recipe.model_fields if key not in (*apart_from, *changeable)]
    return [key for key in keys if getattr(stored, key) != getattr(recipe, key)]


def refuse_other_run(folder: Path, different: Sequence[str]) -> None:
    """Nothing to say if nothing is different."""
    if different:
        raise SurgeonError(
            f"The run in {folder} was begun with other settings: {listing(different)}.",
            "Repeat its command with --resume, or begin another run in another folder.",
        )
