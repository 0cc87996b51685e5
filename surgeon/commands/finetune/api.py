"""Fine-tuning from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from surgeon import checkpoint
from surgeon.commands.finetune.operation import run_finetuning
from surgeon.commands.finetune.request import FinetuneRequest
from surgeon.core.errors import SurgeonError
from surgeon.core.progress import say_nothing
from surgeon.measuring.preparation import InferenceRequest
from surgeon.results import Epoch, FineTuning
from surgeon.training.recipe import SettledRecipe, load_recipe


class _Nobody:
    """Watches and says nothing."""

    def begin(self, recipe: SettledRecipe, decided: Mapping[str, str]) -> None:
        pass

    def step(self, epoch: int, done: int, of: int, loss: float, accuracy: float, images_per_second: float) -> None:
        pass

    def epoch(self, epoch: Epoch) -> None:
        pass


def finetune(
    model: str | Path,
    data: str | Path,
    output: str | Path,
    recipe: str | None = None,
    *,
    unlabelled: str | Path | None = None,
    weights: str | Path | None = None,
    rename: Sequence[str] = (),
    match: str | None = None,
    pretrained: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    force: bool = False,
    under: Sequence[str] = (),
    max_clean_loss: float | None = None,
    workers: int | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    device: str | None = None,
    track: str | None = None,
    **changes: Any,
) -> FineTuning:
    """What `surgeon finetune` does, with any key of a recipe as a keyword.

    Args:
        model: A name or a checkpoint folder, as the command takes it.
        data: Images to train on, as the command takes them.
        output: The folder of the run.
        recipe: A file, or the name of a recipe.
        unlabelled: Images to learn from without their labels; `same`: the training images, all of them.
        weights: A file of local weights.
        rename: `PATTERN=REPLACEMENT`, regular expressions that turn the names in the file into the network's.
        match: `"shapes"` matches the layers of the file by order and shape.
        pretrained: Start from pretrained weights, not from random ones.
        resume: Go on with the run in `output`.
        overwrite: Replace the run in `output`.
        force: Store chosen settings even if their gain may be noise.
        workers: Processes that decode and augment; 0: only this one.
        limit: Train on a stratified subset of so many images.
        skip_bad: Leave out images that cannot be read.
        device: `cuda`, `mps` or `cpu`; by default the fastest.
        track: A tool that Accelerate logs to: `tensorboard`, `wandb`…
        under: Conditions under which a sweep after training chooses, by their mean.
        max_clean_loss: How many points of accuracy on clean images such a choice may cost.
        changes: Any key of a recipe.

    Examples:
        >>> result = surgeon.finetune("resnet50", "path/to/folder", "runs/mine", epochs=20, bn="ghost:size=16")
        >>> model = surgeon.load(result.checkpoint)
    """
    if not isinstance(model, str | Path):
        raise SurgeonError(
            f"surgeon.finetune takes the name of a model or a checkpoint folder, not a {type(model).__name__}.",
            "surgeon.save it, and pass the folder.",
        )
    if not isinstance(data, str | Path):
        raise SurgeonError(
            f"surgeon.finetune takes the name of a data set or a folder, not a {type(data).__name__}.",
            "For loaders of your own write the training loop: surgeon.convert, surgeon.mixer and surgeon.sweep fit in.",
        )
    request = FinetuneRequest(
        inference=InferenceRequest(data=str(data), workers=workers, limit=limit, skip_bad=skip_bad, device=device),
        recipe=load_recipe(recipe, changes),
        output=Path(output),
        unlabelled=None if unlabelled is None else str(unlabelled),
        resume=resume,
        overwrite=overwrite,
        track=track,
        force=force,
        under=tuple(under),
        max_clean_loss=None if max_clean_loss is None else max_clean_loss / 100,
    )
    file = Path(weights) if weights is not None else None
    return run_finetuning(
        lambda: checkpoint.open_model(str(model), weights=file, pretrained=pretrained, rename=rename, match=match),
        request,
        _Nobody(),
        say_nothing,
    )
