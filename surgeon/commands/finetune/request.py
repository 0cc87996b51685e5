"""What a run is asked to do, and whether its folder is fit for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from surgeon.core.atomic import check_destination
from surgeon.core.errors import SurgeonError, listing
from surgeon.measuring.preparation import InferenceRequest
from surgeon.report.folder import RESULT
from surgeon.training.recipe import OPEN, Recipe, SettledRecipe, check_recipe
from surgeon.training.recipe_files import read_yaml
from surgeon.training.tracking import check_tracker

RECIPE, RUN, LOGITS, PICTURE = "recipe.yaml", "run.json", "test-logits.safetensors", "curves.png"
CHECKPOINT, SNAPSHOTS, SWEEPS = "checkpoint", "snapshots", {"alpha": "sweep-alpha", "lambda": "sweep-lambda"}
DRAWN_AS_IS = {"head_scale": 1.0}
"""What a run of an older version did, whose recipe does not say it."""
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
        raise SurgeonError("--resume continues a run and --overwrite starts over: pass one of them.")
    if not (request.resume or request.overwrite) and (folder / RUN).is_file() and not (folder / RESULT).is_file():
        raise SurgeonError(
            f"{folder} holds an unfinished run.",
            "--resume (in Python resume=True) continues it, --overwrite starts over.",
        )
    if not request.resume:
        check_destination(folder, request.overwrite)
    elif not (folder / RUN).is_file():
        raise SurgeonError(f"There is no run in {folder} to resume.", "Leave --resume out to start one.")
    else:
        refuse_other_run(folder, other_keys(folder, request.recipe))


def begun_with(folder: Path) -> SettledRecipe:
    """The recipe of the run in a folder."""
    path = folder / RECIPE
    content = DRAWN_AS_IS | read_yaml(path)
    try:
        return SettledRecipe.model_validate(dict(check_recipe(content, str(path))))
    except ValidationError as error:
        keys = listing(str(details["loc"][0]) for details in error.errors())
        raise SurgeonError(f"{path} is not the recipe of a run: it leaves {keys} open.") from None


def resumed_recipe(folder: Path, recipe: Recipe) -> SettledRecipe:
    """The recipe of the run in a folder, but for what an unfinished run may go on with another value of."""
    asked = {key: getattr(recipe, key) for key in MAY_CHANGE}
    return begun_with(folder).model_copy(update={key: value for key, value in asked.items() if value is not None})


def other_keys(folder: Path, recipe: Recipe) -> list[str]:
    """The keys in which a recipe is not that of the run in a folder, and ought to be; the run decides open ones."""
    stored = begun_with(folder)
    left_alone = [key for key in (*OPEN, "input_size", "sweep_metric") if getattr(recipe, key) is None]
    left_alone += () if (folder / RESULT).is_file() else MAY_CHANGE
    if stored.augment[len(stored.augment) - len(recipe.augment) :] == recipe.augment:  # after a crop that was decided
        left_alone.append("augment")
    return [
        key for key in Recipe.model_fields if key not in left_alone and getattr(stored, key) != getattr(recipe, key)
    ]


def refuse_other_run(folder: Path, different: Sequence[str]) -> None:
    """Nothing to say if nothing is different."""
    if different:
        raise SurgeonError(
            f"The run in {folder} was started with other settings: {listing(different)}.",
            "Repeat its command with --resume, or start a new run in another folder.",
        )
