"""What happens after training: settings are chosen on validation images, the test images are looked at once."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from torch import nn

from surgeon import checkpoint
from surgeon.commands.finetune.request import CHECKPOINT, PICTURE, SNAPSHOTS, SWEEPS
from surgeon.commands.finetune.run import Run
from surgeon.commands.finetune.testing import AS_SAVED, AS_TRAINED, TestFigures, run_test
from surgeon.commands.sweep.operation import SweepRequest, run_sweep
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.progress import Progress
from surgeon.measuring.axes import AlphaAxis, LambdaAxis, has_alpha, layers_with_alpha
from surgeon.measuring.choosing import VALIDATION
from surgeon.measuring.journal import OtherSweepError
from surgeon.measuring.values import parse_values
from surgeon.metrics import Metrics
from surgeon.report import folder as report_folder
from surgeon.report.training import training_page, training_picture
from surgeon.report.wording import figure, improved, label
from surgeon.results import FineTuning, Measured, Sweep
from surgeon.surgery.apply import current_plan
from surgeon.training.loop import Trainer

LAMBDAS = "0:1:11"
NO_ALPHA = "No alpha was tried, because the network has no example-weighted layers: `--bn example-weighted` adds them."


def finish(run: Run, trainer: Trainer, progress: Progress) -> FineTuning:
    """Choose settings on validation images, test once, and write everything."""
    run.loaded.model = trainer.outcome.eval()
    epochs = trainer.epochs
    validation = epochs[-1].validation
    assert validation is not None
    run.loaded.note(run.as_step(validation))
    # As it is now, to be measured once nothing is left to choose.
    trained = deepcopy(run.loaded.model) if _axes(run) else None
    before = current_plan(run.loaded.model).summary()
    sentences, sweeps = _choose_settings(run, progress)
    rewrites = current_plan(run.loaded.model).summary()
    changed = [f"Rewrites as trained: {before}; as saved: {rewrites}."] if before != rewrites else []
    untrained = [run.untrained_branch] if run.untrained_branch else []
    sentences = [*run.remarks, *run.changes, *untrained, *_against_before(run, validation), *sentences, *changed]
    tested = run_test(run, trained, progress)
    test = tested.final if tested is not None else None
    steps = [tested.as_step(run)] if tested is not None else []
    run.processes.only_first(
        lambda: checkpoint.save_checkpoint(run.loaded, run.folder / CHECKPOINT, *steps, overwrite=True)
    )
    parameters = list(run.loaded.model.parameters())
    members = range(1, run.recipe.snapshots + 1) if run.recipe.snapshots > 1 else ()
    result = FineTuning(
        model=run.name,
        rewrites=rewrites,
        data=run.request.inference.data,
        classes=run.classes,
        classes_text=run.splits.train.about_masks,
        train_images=len(run.splits.train),
        validation_images=len(run.splits.validation),
        test_images=len(run.splits.test) if run.splits.test is not None else 0,
        bad_training_images=max(epoch.left_out for epoch in epochs),
        bad_validation_images=run.unreadable_validation() if validation.images < len(run.splits.validation) else (),
        bad_test_images=tested.bad_images if tested is not None else (),
        held_back=run.splits.held_back,
        unlabelled=run.request.unlabelled,
        unlabelled_images=len(run.unlabelled.images) if run.unlabelled is not None else 0,
        unlabelled_left_out=run.unlabelled.left_out if run.unlabelled is not None else 0,
        preprocessing=run.preprocessing,
        recipe=run.recipe.model_dump(mode="json"),
        decided=run.decided,
        batch_size=run.batch_size,
        trained_parameters=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        parameters=sum(p.numel() for p in parameters),
        epochs=tuple(epochs),
        validation=validation,
        figures=tuple(_figures(run, validation, tested, trained)),
        settings=tuple(sentences),
        sweeps=tuple(sweeps),
        test=test,
        tta=run.recipe.tta,
        snapshots=tuple(str(run.folder / SNAPSHOTS / f"{number}") for number in members),
        device=str(run.device),
        seconds=trainer.seconds,
        checkpoint=str(run.folder / CHECKPOINT),
    )
    run.processes.only_first(lambda: write_run_report(result, run.folder))
    return result


def _against_before(run: Run, validation: Metrics) -> Iterator[str]:
    """Whether training helped a network that knew the classes already, which it need not."""
    metric = validation.primary
    before, after = run.before.get(metric), validation.value(metric)
    if not isinstance(before, float) or after is None:
        return
    change = f"{label(metric)} {figure(metric, before)} → {figure(metric, after)} on the validation images"
    if improved(metric, after - before) > 0:
        yield f"Before and after fine-tuning: {change}."
    else:
        yield (
            f"Fine-tuning did not help: {change}. The network already knew these classes: try a smaller learning rate, "
            "fewer epochs or milder augmentation (for letters and digits, --augment standard:flip=false)."
        )


def _axes(run: Run) -> dict[str, tuple[float, ...]]:
    """What is swept, and at which values: what the network has. Nothing is rewritten that nobody asked for."""
    values = {}
    if run.recipe.sweep is not None and has_alpha(run.loaded.model):
        values[AlphaAxis.name] = (*parse_values(run.recipe.sweep, "sweep"), *_alpha_asked_for(run.loaded.model))
    if run.recipe.sweep is not None and run.has_branches:
        values[LambdaAxis.name] = parse_values(LAMBDAS, "lambda")
    return values


def _alpha_asked_for(model: nn.Module) -> set[float]:
    """The one that all layers have already, so that it is among those that are compared."""
    alphas = {layer.alpha_values for layer in layers_with_alpha(model).values()}
    return {alpha for alpha in alphas if isinstance(alpha, float)} if len(alphas) == 1 else set()


def _choose_settings(run: Run, progress: Progress) -> tuple[list[str], list[str]]:
    """The best alpha, and for a split network the best lambda, on the validation images: in sentences, and where."""
    sentences: list[str] = []
    folders: list[str] = []
    values = _axes(run)
    if run.recipe.sweep is not None and AlphaAxis.name not in values:
        sentences.append(NO_ALPHA)
    for axis, of_axis in values.items():
        sweep = SweepRequest(
            inference=run.request.inference,
            values=of_axis,
            axis=axis,
            metric=run.recipe.sweep_metric or run.problem.default_metric,
            force=run.request.force,
            under=run.request.under,
            max_clean_loss=run.request.max_clean_loss,
            output=run.folder / SWEEPS[axis],
        )
        try:
            found = _sweep(run, sweep, progress)
        except SurgeonError as error:
            if error.exit_code is not ExitCode.USAGE:
                raise
            sentences.append(f"{axis} was not swept: {error.message}")  # this network cannot take one
        else:
            best = (
                f"On the validation images {axis} {found.chosen:g} is best; the original is {axis} {found.original:g}."
            )
            sentences += [best, *found.summary, found.decision]
            folders.append(SWEEPS[axis])
    return sentences, folders


def _sweep(run: Run, request: SweepRequest, progress: Progress) -> Sweep:
    def tell(phase: str, done: int, planned: int, _: str = "") -> None:
        progress(f"{request.axis}: {phase}", done, planned)

    try:
        return run_sweep(run.loaded, request, tell, images=run.splits.validation)
    except OtherSweepError:  # an interrupted one, before --skip-bad or another --device was chosen
        return run_sweep(run.loaded, replace(request, overwrite=True), tell, images=run.splits.validation)


def _figures(
    run: Run, validation: Metrics, tested: TestFigures | None, trained: nn.Module | None
) -> Iterator[Measured]:
    """Both splits as trained and as saved, with one view of each image; if nothing was swept both are the same."""
    saved = run.validate(run.loaded.model) if trained is not None else validation
    yield Measured(split=VALIDATION, setting=AS_TRAINED, metrics=validation)
    yield Measured(split=VALIDATION, setting=AS_SAVED, metrics=saved)
    if tested is not None:
        yield from tested.figures()


def write_run_report(result: FineTuning, folder: Path) -> None:
    """The result as JSON, as a picture and as a page, all of them or none."""
    report_folder.write_report(result, folder, PICTURE, training_picture, training_page)
