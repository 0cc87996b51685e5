"""`surgeon finetune`: train a network for other classes or other images, with a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from surgeon.cli import columns, completion, options, output
from surgeon.cli.frame import Answer, add_command, loading
from surgeon.cli.groups import TrainingImages, Weights
from surgeon.core.errors import SurgeonError, count
from surgeon.core.reading import shortened
from surgeon.report.wording import left_out_text, preprocessing_text

if TYPE_CHECKING:
    from surgeon.results import Epoch, FineTuning
    from surgeon.training.recipe import SettledRecipe

EPOCHS, LEARNING, REWRITING, OBJECTIVE = "Training", "What learns", "Rewriting and augmentation", "Loss"


def add_to(app: typer.Typer) -> None:
    add_command(app, finetune)


def finetune(
    model: options.Model,
    data: options.Data,
    folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the run lives: state, curves, checkpoint.")
    ],
    unlabelled: Annotated[
        str | None,
        typer.Option(
            "--unlabelled",
            metavar="DATA",
            help="Learn from images without labels as well (FixMatch); same: the training images, whose labels are "
            "then not looked at. Adds --loss pseudo-label, unless a term looks at them.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            "-r",
            metavar="R",
            help="A file, or one of `surgeon ls recipes`.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of the recipe; see `surgeon recipe keys`."),
    ] = None,
    bn: Annotated[
        list[str] | None,
        typer.Option(
            "--bn",
            metavar="SPEC",
            help="As for convert.",
            rich_help_panel=REWRITING,
            autocompletion=completion.norms,
        ),
    ] = None,
    insert: Annotated[
        list[str] | None,
        typer.Option(
            "--insert",
            metavar="SPEC",
            help="As for convert.",
            rich_help_panel=REWRITING,
            autocompletion=completion.inserts,
        ),
    ] = None,
    augment: Annotated[
        list[str] | None,
        typer.Option(
            "--augment",
            metavar="SPEC",
            help="vh-mixup:p=0.5, cutout…; repeatable; 'a|b' takes one at random. Comes on top of `standard` unless it "
            "has a crop of its own. Names: {augments}.",
            rich_help_panel=REWRITING,
            autocompletion=completion.augments,
        ),
    ] = None,
    strong: Annotated[
        list[str] | None,
        typer.Option(
            "--strong",
            metavar="SPEC",
            help="For copies that take the auxiliary branch (--bn split): augmentations, or an attack, pgd:steps=5.",
            rich_help_panel=REWRITING,
            autocompletion=completion.previewed,
        ),
    ] = None,
    attack: Annotated[
        str | None,
        typer.Option(
            "--attack",
            metavar="SPEC",
            help="Adversarial training: attack every batch with pgd:eps=0.03,steps=7, fgsm….",
            rich_help_panel=OBJECTIVE,
            autocompletion=completion.conditions,
        ),
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            "--loss",
            metavar="SPEC",
            help="A term of the loss, as name or name:key=value; repeat it to add terms up. Names: {losses}.",
            rich_help_panel=OBJECTIVE,
            autocompletion=completion.losses,
        ),
    ] = None,
    label_smoothing: Annotated[
        float | None,
        typer.Option(
            "--label-smoothing",
            metavar="S",
            help="Short for --loss cross-entropy:smoothing=S.",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", metavar="N", min=1, rich_help_panel=EPOCHS)] = None,
    lr: Annotated[
        float | None, typer.Option("--lr", metavar="X", help="Highest learning rate.", rich_help_panel=EPOCHS)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="N", min=2, help="Images per step.", rich_help_panel=EPOCHS)
    ] = None,
    snapshots: Annotated[
        int | None,
        typer.Option("--snapshots", metavar="M", min=1, help="Cycles, each with a snapshot.", rich_help_panel=EPOCHS),
    ] = None,
    ema: Annotated[
        float | None, typer.Option("--ema", metavar="D", help="Average the weights.", rich_help_panel=EPOCHS)
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", min=0, rich_help_panel=EPOCHS)] = None,
    freeze_backbone: Annotated[
        bool, typer.Option("--freeze-backbone", help="Train the head alone.", rich_help_panel=LEARNING)
    ] = False,
    freeze_norm: Annotated[
        bool | None,
        typer.Option(
            "--freeze-norm/--no-freeze-norm",
            help="Keep BatchNorm as it is. Default: for few images, if nothing is rewritten.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="norm", help="Train gamma, beta and the head.", rich_help_panel=LEARNING),
    ] = None,
    norm_weight_decay: Annotated[
        bool | None,
        typer.Option(
            "--norm-weight-decay/--no-norm-weight-decay",
            help="Of gamma and beta. Default: on for residual networks.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin afresh in a folder that holds a run.")] = False,
    under: options.Under = None,
    max_clean_loss: options.MaxCleanLoss = None,
    force: Annotated[
        bool, typer.Option("--force", help="Store the chosen alpha or lambda even if its gain may be noise.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Open network and images, say what would be done, and stop.")
    ] = False,
    track: Annotated[
        str | None, typer.Option("--track", metavar="TOOL", help="tensorboard, wandb… (through Accelerate).")
    ] = None,
    tta: options.Tta = None,
    *,
    images: TrainingImages,
    weights: Weights,
) -> Answer | None:
    """Fine-tune a network on your images; choose alpha, if it has one, on validation images; test once."""
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
        _say_decided(planned.recipe, planned.decided)
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


def _say_decided(recipe: SettledRecipe, decided: Mapping[str, str]) -> None:
    """What was left open, and by what it was decided."""
    by_reason: dict[str, list[str]] = {}
    for key, reason in decided.items():
        value = getattr(recipe, key)
        shown = " ".join(value) or "nothing" if isinstance(value, tuple) else str(value).lower()
        by_reason.setdefault(reason, []).append(f"{key} {shown}")
    for reason, values in by_reason.items():
        output.say(f"  by default     {escape(', '.join(values))} [dim]({escape(reason)})[/]")


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


class TerminalWatcher:
    """Shows steps as a bar and epochs as lines."""

    def __init__(self, bar: output.ProgressBar, headline: str) -> None:
        self.bar = bar
        self.headline = headline
        self.epochs = 0
        self.tell_decided: Callable[[], None] = lambda: None

    def begin(self, recipe: SettledRecipe, decided: Mapping[str, str]) -> None:
        self.epochs = recipe.epochs
        self.tell_decided = partial(_say_decided, recipe, decided)

    def step(self, epoch: int, done: int, of: int, loss: float, accuracy: float, images_per_second: float) -> None:
        if self.headline:
            resumed = f", resumed at epoch {epoch}, step {done}" if (epoch, done) != (1, 1) else ""
            output.say(f"{self.headline}: {count(self.epochs, 'epoch')} of {count(of, 'step')}{resumed}")
            self.tell_decided()
            self.headline = ""
        whole = of * self.epochs
        remark = f"{images_per_second:,.0f} images/s, loss {loss:.3f}, accuracy {accuracy:.1%}"
        self.bar("training", (epoch - 1) * of + done, whole, remark)

    def epoch(self, epoch: Epoch) -> None:
        validation = ""
        if (measured := epoch.validation) is not None:
            iou = f" mean IoU {measured.iou:6.2%}, pixels" if measured.primary == "iou" else ""
            validation = f"  validation{iou} {measured.accuracy:6.2%}, cross-entropy {measured.cross_entropy:.4f}"
        output.say(
            f"epoch {epoch.number:>3}/{self.epochs}  loss {epoch.loss:.4f}  accuracy {epoch.accuracy:6.2%}{validation}"
            f"{''.join(f'  {name} {share:.0%}' for name, share in epoch.shares.items())}"
            f"  [dim]{_rates(epoch)}{epoch.images_per_second:,.0f} images/s[/]"
            + (f"  [yellow]{count(epoch.left_out, 'unreadable image')} left out[/]" if epoch.left_out else "")
        )


def _rates(epoch: Epoch) -> str:
    """The learning rates of its last step: of the backbone, and of the head if that has another."""
    backbone, head = epoch.backbone_rates[-1:], epoch.head_rates[-1:]
    if not backbone or backbone == head:
        return "".join(f"lr {rate:.3g}  " for rate in head)
    return f"lr {backbone[0]:.3g}{''.join(f', head {rate:.3g}' for rate in head)}  "


def describe(result: FineTuning, folder: Path) -> None:
    """Tell people what came out."""
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
        output.say(f"There are no test {samples}, and figures on the validation split flatter what was chosen on it.")
    where, run = escape(result.checkpoint), escape(str(folder))
    output.say(f"Checkpoint: {where}   report: {run}/report.html, result.json, curves.png")
