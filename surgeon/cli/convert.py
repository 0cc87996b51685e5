"""`surgeon convert`: rewrite the normalisation layers of a network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import completion, output
from surgeon.cli.frame import Answer, add_command, loading
from surgeon.cli.groups import Opening
from surgeon.cli.options import Model
from surgeon.core.atomic import check_destination
from surgeon.core.errors import SurgeonError, count

if TYPE_CHECKING:
    from surgeon.results.conversion import Conversion


def add_to(app: typer.Typer) -> None:
    add_command(app, convert)


def convert(
    model: Model,
    bn: Annotated[
        list[str] | None,
        typer.Option(
            "--bn",
            metavar="SPEC",
            help="A rewrite, as name or name:key=value,…; name@GLOB for some layers only. Repeatable: rewrites "
            "compose. "
            "Names: {norms}. See surgeon ls norms.",
            autocompletion=completion.norms,
        ),
    ] = None,
    insert: Annotated[
        list[str] | None,
        typer.Option(
            "--insert",
            metavar="SPEC",
            help="A unit to insert between layers, as name or name:key=value,… Repeatable. "
            "Names: {inserts}. See surgeon ls inserts.",
            autocompletion=completion.inserts,
        ),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            metavar="SELECTOR",
            help="Only these layers: globs ('layer[34].*'), stem, stage2, last, depth=0.5-1; separate several by "
            "commas.",
        ),
    ] = None,
    destination: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Folder for the checkpoint. Default: ./MODEL-REWRITES."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing checkpoint.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and write nothing.")] = False,
    *,
    opening: Opening,
) -> Answer:
    """Rewrite BatchNorm layers or insert units, check that nothing else changed, and write a checkpoint."""
    from surgeon.models.names import check_model_name
    from surgeon.surgery.plan import check_requests

    bn, insert = bn or [], insert or []
    if not bn and not insert:
        raise SurgeonError(
            "No rewrite was asked for.", "Choose with --bn (surgeon ls norms) or --insert (surgeon ls inserts)."
        )
    check_requests(bn, insert)  # a mistyped rewrite is told at once, not after the weights are loaded
    folder = destination or default_destination(model, [*bn, *insert])
    check_model_name(model)
    with loading():
        from surgeon.commands.convert import perform_conversion, plan_conversion
    if not dry_run:
        check_destination(folder, overwrite)
    loaded = opening.open(model, tells_names=False)  # the plan does
    with output.working("Planning…"):
        conversion = plan_conversion(loaded, bn, layers, insert)
    if not dry_run:
        with output.working("Rewriting and comparing with the original…"):
            conversion = perform_conversion(loaded, conversion, folder, overwrite)
    return Answer(conversion, partial(describe, conversion, dry_run))


def default_destination(model: str, rewrites: Sequence[str]) -> Path:
    """A folder name in the current directory that says what is in it."""
    from surgeon.surgery.plan import RewriteRequest

    names = "-".join(RewriteRequest.parse(text).name for text in rewrites)
    return Path(f"{base_name(model)}-{names}")


def base_name(model: str) -> str:
    """What a file or folder made from a model is called by default, before its ending."""
    return re.sub(r"[^\w.-]+", "-", Path(model).resolve().name if Path(model).is_dir() else model).strip("-.")


def tell(conversion: Conversion) -> None:
    """What a conversion has done, or would do."""
    describe(conversion, dry_run=conversion.output is None)


def describe(conversion: Conversion, dry_run: bool) -> None:
    output.say(f"[bold]{escape(conversion.model)}[/] · weights: {escape(conversion.weights.origin)}")
    for (source, rewrite), number in conversion.changes().items():
        output.say(f"  [red]- {number} × {source}[/]\n  [green]+ {number} × {escape(rewrite)}[/]")
    for (unit, where), number in conversion.additions().items():
        others = f" and {count(number - 1, 'other')}" if number > 1 else ""
        output.say(f"  [green]+ {number} × {escape(unit)}[/] {escape(where)}{others}")
    for note in conversion.notes:
        output.say(f"  [yellow]note:[/] {escape(note)}")
    if dry_run:
        if conversion.renamed is not None and conversion.renamed.layers:
            output.show(names_table(conversion.renamed.layers))
        output.show(plan_table(conversion))
        output.say("Dry run: nothing was written.")
        return
    if conversion.identity_difference is None and conversion.output_shift is not None:
        output.say("  parity      cannot be checked: no setting of this rewrite equals the original network")
    elif conversion.identity_difference is None:
        output.say("  parity      each layer equals its original at the identity setting (network inputs unknown)")
    else:
        output.say(
            f"  parity      largest difference at the identity setting: {_difference(conversion.identity_difference)}"
        )
    if conversion.output_shift:
        output.say(f"  shift       {_shift(conversion.output_shift)}")
    before, after = conversion.parameters_before, conversion.parameters_after
    same = " (unchanged)" if before == after else f" (before: {before:,})"
    layers, units = len(conversion.operations), len(conversion.insertions)
    done = [f"{count(layers, 'layer')} rewritten"] if layers or not units else []
    done += [f"{count(units, 'unit')} inserted"] if units else []
    output.say(f"  parameters  {after:,}{same} · {' · '.join(done)}")
    output.say("  written to:")
    output.emit_lines([str(conversion.output)])


def _difference(value: float) -> str:
    return "0 (bit-identical)" if value == 0 else f"{value:.2e} relative"


def _shift(value: float) -> str:
    if value == float("inf"):
        return "the chosen setting changes how many outputs there are (detections) or makes some NaN"
    return f"the chosen setting moves the outputs by {value:.2g} (relative)"


def names_table(layers: Mapping[str, str]) -> Table:
    """Which layer of the weights file became which of the network."""
    table = Table(title="Layers matched by order and shape", title_justify="left")
    for heading in ("in the file", "in the network"):
        table.add_column(heading, overflow="fold")
    for names in layers.items():
        table.add_row(*map(escape, names))
    return table


def plan_table(conversion: Conversion) -> Table:
    from surgeon.surgery.plan import ResolvedPlan

    table = Table(title="Plan", title_justify="left")
    for column in ("layer", "now", "becomes"):
        table.add_column(column, overflow="fold")
    for operation in conversion.operations:
        table.add_row(
            escape(operation.layer or "(the model itself)"),
            operation.source,
            escape(ResolvedPlan(operations=(operation,)).summary()),
        )
    for insertion in conversion.insertions:
        unit = ResolvedPlan(operations=(), insertions=(insertion,)).summary()
        table.add_row(escape(insertion.where), "", escape(unit))
    return table
