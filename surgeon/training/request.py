"""What a run is asked to do, and whether its folder is fit for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surgeon.atomic import check_destination
from surgeon.errors import SurgeonError, listing
from surgeon.task import Request
from surgeon.training.recipe import Recipe, check_recipe, read_yaml
from surgeon.training.tracking import check_tracker

RECIPE, RUN, RESULT, LOGITS = "recipe.yaml", "run.json", "result.json", "test-logits.safetensors"
PICTURE, PAGE = "curves.png", "report.html"
CHECKPOINT, SNAPSHOTS, SWEEPS = "checkpoint", "snapshots", {"alpha": "sweep-alpha", "lambda": "sweep-lambda"}


@dataclass(frozen=True)
class FinetuneRequest:
    """Which images, how to train, and where the run lives."""

    task: Request
    recipe: Recipe
    output: Path
    resume: bool = False
    overwrite: bool = False
    track: str | None = None


def check_run(request: FinetuneRequest) -> None:
    """Before any work is done: a new run needs an empty folder, a resumed one its own, with the same recipe."""
    folder = request.output
    check_tracker(request.track)
    if not request.resume:
        check_destination(folder, request.overwrite)
    elif not (folder / RUN).is_file():
        raise SurgeonError(f"There is no run in {folder} to resume.", "Leave --resume out to begin one.")
    else:
        _check_same_recipe(request)


def _check_same_recipe(request: FinetuneRequest) -> None:
    path = request.output / RECIPE
    begun_with = check_recipe(read_yaml(path), str(path))
    refuse_other_run(
        request.output, [key for key in Recipe.model_fields if getattr(begun_with, key) != getattr(request.recipe, key)]
    )


def refuse_other_run(folder: Path, different: Sequence[str]) -> None:
    """Nothing to say if nothing is different."""
    if different:
        raise SurgeonError(
            f"The run in {folder} was begun with another {listing(different)}.",
            "Repeat its command with --resume, or begin another run in another folder.",
        )
