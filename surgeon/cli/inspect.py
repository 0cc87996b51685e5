"""`surgeon inspect`: the normalisation layers of a network and their health."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import output
from surgeon.cli.options import Json, Model, NumClasses, Pretrained, Weights
from surgeon.errors import count

if TYPE_CHECKING:
    from surgeon.surgery.inspect import Inspection


def add_to(app: typer.Typer) -> None:
    app.command("inspect")(output.reporting_errors(inspect))


def inspect(
    model: Model,
    weights: Weights = None,
    pretrained: Pretrained = True,
    num_classes: NumClasses = None,
    as_json: Json = False,
) -> None:
    """Show every normalisation layer: kind, what is fused into it, its statistics' health."""
    from surgeon.models.names import check_model_name

    check_model_name(model)
    with output.working("Loading torch and timm…"):
        from surgeon import checkpoint
        from surgeon.models.sources import example_inputs
        from surgeon.surgery.inspect import inspect_model
    with output.working(f"Opening {model}…"):
        loaded = checkpoint.open_model(model, weights=weights, pretrained=pretrained, num_classes=num_classes)
    with output.working("Tracing the paths to the output…"):
        inspection = inspect_model(loaded.model, loaded.name, example_inputs(loaded.origin, examples=1))
    if as_json:
        output.emit_json(inspection.model_dump_json(indent=2))
        return
    output.show(_table(inspection))
    _say_totals(inspection, loaded.origin.weights.origin)


def _table(inspection: Inspection) -> Table:
    table = Table(title=f"Normalisation layers of {escape(inspection.model)}", title_justify="left")
    table.add_column("layer", overflow="fold")
    table.add_column("kind")
    for column in ("channels", "eps", "momentum"):
        table.add_column(column, justify="right")
    for column in ("fused", "rewrites", "statistics", "norm-free path to output"):
        table.add_column(column, overflow="fold")
    rewritten = any(layer.rewrites for layer in inspection.layers)
    table.columns[6].width = None if rewritten else len("rewrites")
    for layer in inspection.layers:
        table.add_row(
            escape(layer.name or "(the model itself)"),
            layer.kind,
            _number(layer.channels),
            _number(layer.eps),
            _number(layer.momentum),
            " + ".join(layer.fused) or "-",
            escape(", ".join(layer.rewrites)) or "-",
            f"[yellow]{'; '.join(layer.health)}[/]" if layer.health else "[green]ok[/]",
            {True: "yes", False: "-", None: "unknown"}[layer.norm_free_path],
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _say_totals(inspection: Inspection, weights: str) -> None:
    kinds = ", ".join(f"{number} {kind}" for kind, number in inspection.kinds.items()) or "no normalisation layer"
    share = inspection.norm_parameters / max(inspection.parameters, 1)
    output.say(
        f"{kinds} · {inspection.norm_parameters:,} of {count(inspection.parameters, 'parameter')} ({share:.2%}) "
        f"· weights: {escape(weights)}"
    )
    if inspection.unhealthy:
        output.say(f"[yellow]{count(inspection.unhealthy, 'layer')} with a remark on the statistics.[/]")
    open_paths = sum(bool(layer.norm_free_path) for layer in inspection.layers)
    if open_paths:
        output.say(
            f"{count(open_paths, 'layer')} with a norm-free path to the output: only there does weight decay on gamma "
            "and beta act on the network's function."
        )
