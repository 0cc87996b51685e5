"""`surgeon finetune`: train a network for other classes or other images, with a recipe."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from surgeon.cli import columns, completion, options, output
from surgeon.cli.frame import Answer, add_command, loading
from surgeon.cli.groups import TrainingImages, Weights
from surgeon.cli.watching import TerminalWatcher, say_decided
from surgeon.core.errors import SurgeonError
from surgeon.core.reading import shortened
from surgeon.report.wording import left_out_text, preprocessing_text

if TYPE_CHECKING:
    from surgeon.results import FineTuning

RECIPE, EPOCHS, LEARNING = "Recipe", "Training", "What is trained"
REWRITING, OBJECTIVE, CHOICE = "Rewriting and augmentation", "Loss", "How settings are chosen"


def add_to(app: typer.Typer) -> None:
    add_command(app, finetune)


def finetune(
    model: options.Model,
    data: options.Data,
    folder: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Folder of the run: state, curves, checkpoint, report."),
    ],
    unlabelled: Annotated[
        str | None,
        typer.Option(
            "--unlabelled",
            metavar="DATA",
            help="Also learn from images without labels (FixMatch); same: the training images, ignoring their labels. "
            "Adds --loss pseudo-label unless another term uses them.",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            "-r",
            metavar="R",
            help="A YAML file, or a name from surgeon ls recipes.",
            rich_help_panel=RECIPE,
            autocompletion=completion.recipes,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change any key of the recipe. Repeatable. See surgeon recipe keys.",
            rich_help_panel=RECIPE,
        ),
    ] = None,
    bn: Annotated[
        list[str] | None,
        typer.Option(
            "--bn",
            metavar="SPEC",
            help="Rewrite BatchNorm, as in surgeon convert: ghost:size=16.",
            rich_help_panel=REWRITING,
            autocompletion=completion.norms,
        ),
    ] = None,
    insert: Annotated[
        list[str] | None,
        typer.Option(
            "--insert",
            metavar="SPEC",
            help="Insert units, as in surgeon convert: moex.",
            rich_help_panel=REWRITING,
            autocompletion=completion.inserts,
        ),
    ] = None,
    augment: Annotated[
        list[str] | None,
        typer.Option(
            "--augment",
            metavar="SPEC",
            help="Add an augmentation: vh-mixup:p=0.5, cutout… Repeatable; 'a|b' picks one at random. Applied after "
            "`standard` unless it crops itself. Names: {augments}.",
            rich_help_panel=REWRITING,
            autocompletion=completion.augments,
        ),
    ] = None,
    strong: Annotated[
        list[str] | None,
        typer.Option(
            "--strong",
            metavar="SPEC",
            help="With --bn split: augmentations, or an attack (pgd:steps=5), for the auxiliary branch.",
            rich_help_panel=REWRITING,
            autocompletion=completion.previewed,
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            "--attack",
            metavar="SPEC",
            help="Adversarial training with this attack: pgd:eps=0.03,steps=7, fgsm…",
            rich_help_panel=OBJECTIVE,
            autocompletion=completion.conditions,
        ),
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            "--loss",
            metavar="SPEC",
            help="A term of the loss, as name or name:key=value. Repeatable: terms add up. Names: {losses}.",
            rich_help_panel=OBJECTIVE,
            autocompletion=completion.losses,
        ),
    ] = None,
    label_smoothing: Annotated[
        float | None,
        typer.Option(
            "--label-smoothing",
            metavar="S",
            help="Label smoothing; short for --loss cross-entropy:smoothing=S.",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", metavar="N", min=1, help="Passes over the training images.", rich_help_panel=EPOCHS),
    ] = None,
    lr: Annotated[
        float | None, typer.Option("--lr", metavar="X", help="Peak learning rate.", rich_help_panel=EPOCHS)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="N", min=2, help="Images per batch.", rich_help_panel=EPOCHS)
    ] = None,
    snapshots: Annotated[
        int | None,
        typer.Option(
            "--snapshots",
            metavar="M",
            min=1,
            help="Snapshot ensemble: M cosine cycles, one checkpoint from each.",
            rich_help_panel=EPOCHS,
        ),
    ] = None,
    ema: Annotated[
        float | None,
        typer.Option(
            "--ema", metavar="DECAY", help="Exponential moving average of the weights.", rich_help_panel=EPOCHS
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Random seed.", rich_help_panel=EPOCHS)
    ] = None,
    freeze_backbone: Annotated[
        bool, typer.Option("--freeze-backbone", help="Train only the head.", rich_help_panel=LEARNING)
    ] = False,
    freeze_norm: Annotated[
        bool | None,
        typer.Option(
            "--freeze-norm/--no-freeze-norm",
            help="Freeze BatchNorm: statistics, gamma and beta. Default: frozen for few images, unless it is "
            "rewritten.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="norm", help="Train only gamma, beta and the head.", rich_help_panel=LEARNING),
    ] = None,
    norm_weight_decay: Annotated[
        bool | None,
        typer.Option(
            "--norm-weight-decay/--no-norm-weight-decay",
            help="Weight decay on gamma and beta. Default: on for residual networks.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in DIR.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start again in a folder that holds a run.")] = False,
    under: options.Under = None,
    max_clean_loss: options.MaxCleanLoss = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Store the chosen alpha or lambda even if its gain is not significant.",
            rich_help_panel=CHOICE,
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Load network and images, print the settings, and stop.")
    ] = False,
    track: Annotated[
        str | None, typer.Option("--track", metavar="TOOL", help="Log to tensorboard, wandb… (through Accelerate).")
    ] = None,
    tta: options.Tta = None,
    *,
    images: TrainingImages,
    weights: Weights,
) -> Answer | None:
    """Fine-tune a network on your images; validation images choose the settings, test images are used once."""
    from surgeon.models.names import check_model_name
    from surgeon.training.recipe import as_yaml, load_recipe

    freeze = tuple(name for name, wanted in (("backbone", freeze_backbone), ("norm", freeze_norm)) if wanted)
    given = {
        "bn": bn, "insert": insert, "augment": augment, "strong": strong, "attack": attack, "loss": loss,
        "epochs": epochs, "lr": lr, "batch_size": batch_size,
        "snapshots": snapshots, "ema": ema, "label_smoothing": label_smoothing, "seed": seed,
        "freeze": freeze if freeze or freeze_norm is not None else None,
        "only": only, "norm_weight_decay": norm_weight_decay, "tta": tta,
        "input_size": images.input_size,
    }  # fmt: skip
    settings = load_recipe(
        recipe,
        {key: value for key, value in given.items() if value not in (None, [])} | _changes(changes or []),
        output.note,
    )
    options.check_under(under, max_clean_loss)
    check_model_name(model)
    with loading():
        from surgeon.commands.finetune.operation import plan_run, run_finetuning
        from surgeon.commands.finetune.request import FinetuneRequest
    request = FinetuneRequest(
        inference=images.request(data),
        recipe=settings,
        output=folder,
        unlabelled=unlabelled,
        resume=resume,
        overwrite=overwrite,
        track=track,
        force=force,
        under=tuple(under or ()),
        max_clean_loss=None if max_clean_loss is None else max_clean_loss / 100,
    )
    open_network = partial(weights.load, model)

    if dry_run:
        with output.working("Opening images and network…"):
            planned = plan_run(open_network, request)
        output.say(f"[bold]{escape(model)}[/] on {escape(data)}: {planned.outlook}")
        say_decided(planned.recipe, planned.decided)
        output.emit_lines([as_yaml(planned.recipe).rstrip()])
        return None
    with output.progress_bar() as bar:
        result = run_finetuning(
            open_network,
            request,
            TerminalWatcher(bar, f"[bold]{escape(model)}[/] on {escape(data)}"),
            bar,
        )
    return Answer(result, partial(describe, result, folder))


def _changes(texts: list[str]) -> dict[str, Any]:
    """`key=value` with the value as YAML has it."""
    from surgeon.core.bounded_yaml import parse_yaml
    from surgeon.training.recipe_files import MOST_RECIPE_VALUES

    changes = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise SurgeonError(f"--set {text!r} is not of the form KEY=VALUE.")
        try:
            changes[key.strip()] = parse_yaml(value, MOST_RECIPE_VALUES)
        except ValueError:
            raise SurgeonError(f"--set {key}: {shortened(value)} is not a YAML value.") from None
    return changes


def describe(result: FineTuning, folder: Path) -> None:
    """Tell people what came out, and where it is."""
    tell(result)
    where, run = escape(result.checkpoint), escape(str(folder))
    output.say(f"Checkpoint: {where}   report: {run}/report.html, result.json, curves.png")


def tell(result: FineTuning) -> None:
    """What came out."""
    from surgeon.report.training import rows_of

    output.say(f"  rewrites       {escape(result.rewrites) or 'none'}")
    output.say(f"  preprocessing  {preprocessing_text(result.preprocessing)}")
    samples = f"{result.preprocessing.medium.noun}s"
    held_back = f" (a tenth of the training {samples})" if result.held_back else ""
    if result.classes_text:
        output.say(f"  classes        {escape(result.classes_text)}")
    images = f"{result.train_images:,} training, {result.validation_images:,} validation{held_back}"
    unlabelled = f", {result.unlabelled_images:,} unlabelled" if result.unlabelled_images else ""
    output.say(f"  {samples:<13}  {images}, {result.test_images:,} test{unlabelled}")
    if left_out := left_out_text(result):
        output.say(f"  [yellow]note:[/] left out as unreadable: {escape(left_out)}")
    for sentence in result.settings:
        output.say(f"• {escape(sentence)}")
    rows = {f"{r.split}, {r.setting}" + (f", {r.tta} views" if r.tta else ""): r.metrics for r in rows_of(result)}
    output.show(columns.by_metric(rows))
    if result.test is None:
        output.say(f"There are no test {samples}: validation figures are optimistic for what was chosen on them.")
