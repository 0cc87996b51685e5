"""`surgeon demo`: the main job on the bundled model and data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from surgeon.cli import output
from surgeon.cli.options import Json

if TYPE_CHECKING:
    from surgeon.demo import DemoResult


def add_to(app: typer.Typer) -> None:
    app.command("demo")(output.reporting_errors(demo))


def demo(
    folder: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the checkpoint and the picture go.")
    ] = Path("surgeon-demo"),
    as_json: Json = False,
) -> None:
    """Convert, sweep alpha and evaluate on the bundled model and data: offline, under a minute."""
    with output.working("Converting the bundled digits-resnet8, sweeping alpha on its validation images…"):
        from surgeon.demo import run_demo
        from surgeon.report.curves import Curve, draw_in_terminal, draw_picture

        result = run_demo(folder)
        entropy = Curve("cross-entropy", {a: s.cross_entropy for a, s in result.curve.items()})
        accuracy = Curve("accuracy", {a: s.accuracy for a, s in result.curve.items()}, percent=True)
        picture = folder / "alpha.png"
        title = "digits-resnet8, validation images: no retraining, only alpha changes"
        draw_picture([accuracy, entropy], "alpha", result.chosen_alpha, title, picture)
        result = result.model_copy(update={"picture": str(picture)})
    if as_json:
        output.emit_json(result.model_dump_json(indent=2))
        return
    from surgeon.cli.convert import describe

    describe(result.conversion, dry_run=False)
    print(draw_in_terminal(entropy, "alpha", result.chosen_alpha))
    output.show(_table(result))
    before, after = result.test_plain, result.test_chosen
    output.say(
        f"On test images that took no part in the choice, cross-entropy went from {before.cross_entropy:.3f} to "
        f"{after.cross_entropy:.3f} and accuracy from {before.accuracy:.1%} to {after.accuracy:.1%}: no retraining."
    )
    output.say(f"Picture: {result.picture}\nNext: surgeon convert resnet50 --bn example-weighted")


def _table(result: DemoResult) -> Table:
    table = Table(title="digits-resnet8", title_justify="left")
    table.add_column("setting")
    for column in ("images", "accuracy", "cross-entropy"):
        table.add_column(column, justify="right")
    validation = result.curve
    rows = {
        "validation, alpha 0 (original)": validation[min(validation)],
        f"validation, alpha {result.chosen_alpha:g} (chosen)": validation[result.chosen_alpha],
        "test, alpha 0 (original)": result.test_plain,
        f"test, alpha {result.chosen_alpha:g} (chosen)": result.test_chosen,
    }
    for name, scores in rows.items():
        table.add_row(name, str(scores.images), f"{scores.accuracy:.2%}", f"{scores.cross_entropy:.4f}")
    return table
