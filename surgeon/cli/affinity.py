"""`surgeon affinity`: how far augmentations lead from the images that a network knows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import completion, options, output
from surgeon.cli.frame import Answer, add_command, loading, tell_measured
from surgeon.cli.groups import ChoosingImages, Opening
from surgeon.core.errors import count
from surgeon.report.wording import difference

if TYPE_CHECKING:
    from surgeon.results import Affinity, AugmentAffinity


def add_to(app: typer.Typer) -> None:
    add_command(app, affinity)


def affinity(
    model: options.Model,
    data: options.Data,
    augment: Annotated[
        list[str] | None,
        typer.Option(
            "--augment",
            metavar="SPEC",
            help="An augmentation, as name or name:key=value,… Repeatable. Default: all.",
            autocompletion=completion.augments,
        ),
    ] = None,
    seed: options.Seed = 0,
    *,
    images: ChoosingImages,
    opening: Opening,
) -> Answer:
    """Measure how far augmentations shift the data: accuracy on augmented minus accuracy on clean images."""
    from surgeon.augment.base import check_augments
    from surgeon.models.names import check_model_name

    check_model_name(model)
    check_augments(augment or ())
    with loading():
        from surgeon.commands.affinity import run_affinity
    request = images.request(data)
    loaded = opening.open(model)
    with output.progress_bar("images/s") as bar:
        result = run_affinity(loaded, request, augment or (), seed, bar)
    return Answer(result, partial(tell, result))


def tell(result: Affinity) -> None:
    """What people are told."""
    clean = f"{result.clean_accuracy:.2%} on {count(result.images, 'clean image')}"
    tell_measured(result, result.model, [result.preprocessing], ("accuracy", clean))
    for name, reason in result.left_out.items():
        output.note(f"left out {name}: {reason}")
    table = Table()
    table.add_column("augmentation", overflow="fold")
    for column in ("affinity (points)", "95% interval", "accuracy", "at most"):
        table.add_column(column, justify="right")
    for row in result.augments:
        table.add_row(escape(row.augment), *_figures(row))
    output.show(table)
    if any(row.ceiling < 1 for row in result.augments):
        output.say(
            "For mixed labels, accuracy is the weight of the predicted class in the label; `at most` is what always "
            "predicting the class with the larger weight would reach."
        )
    output.say(f"{count(len(result.augments), 'augmentation')} in {result.seconds:.1f} s, seed {result.seed}")


def _figures(row: AugmentAffinity) -> tuple[str, str, str, str]:
    interval = " to ".join(difference("accuracy", edge) for edge in (row.low, row.high))
    return difference("accuracy", row.difference), interval, f"{row.accuracy:.2%}", f"{row.ceiling:.1%}"
