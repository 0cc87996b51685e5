"""`surgeon inspect`: the normalisation layers of a network and their health."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import completion, output
from surgeon.cli.frame import Answer, add_command, loading, tell_report
from surgeon.cli.groups import Opening
from surgeon.cli.layer_groups import table_of_groups
from surgeon.cli.options import Limit, Model, Split, Where
from surgeon.core.errors import SurgeonError, count
from surgeon.report.wording import preprocessing_text, shift_sentence

if TYPE_CHECKING:
    from surgeon.models.origin import LoadedModel
    from surgeon.results import DataShift
    from surgeon.surgery.inspect import Inspection
    from surgeon.surgery.shift import Shift


BAR = 20
"""Characters of a bar that stands for all."""


def add_to(app: typer.Typer) -> None:
    add_command(app, inspect)


def inspect(
    model: Model,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="Also test whether these images are shifted for the network, and show how its gates, if any, "
            "assign them to modes.",
            autocompletion=completion.data,
        ),
    ] = None,
    split: Split = None,
    limit: Limit = None,
    where: Where = None,
    folder: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Folder for the report of --data: a page and a picture."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="One row for every layer, with eps and momentum.")] = False,
    *,
    opening: Opening,
) -> Answer:
    """Show a network's normalisation layers by stage: kind, fused activation, health of the statistics."""
    from surgeon.models.names import check_model_name

    check_model_name(model)
    if data is None and (split, limit, where, folder) != (None, None, None, None):
        raise SurgeonError(
            "--split, --limit, --where and -o say which images to take and where to report, but there is no --data."
        )
    with loading():
        from surgeon.data.opening import check_data
        from surgeon.models.sources import example_inputs
        from surgeon.surgery.branches import prediction_by
        from surgeon.surgery.inspect import inspect_model
    if data is not None:
        check_data(data)
    loaded = opening.open(model, diverged=True)  # it names the layers
    with output.working("Tracing the paths to the output…"):
        inspection = inspect_model(loaded.model, loaded.name, example_inputs(loaded.origin, examples=1))
    inspection = inspection.model_copy(update={"preprocessing": loaded.origin.preprocessing})
    found = _of_data(loaded, data, split, limit, where, folder)
    if found is not None:
        inspection = inspection.model_copy(update={"gates": found.gates, "shift": found.shift})
    by = prediction_by(loaded.model)
    return Answer(inspection, partial(_describe, inspection, loaded.origin.weights.origin, by, found, folder, every))


def _of_data(
    loaded: LoadedModel,
    data: str | None,
    split: str | None,
    limit: int | None,
    where: list[str] | None,
    folder: Path | None,
) -> DataShift | None:
    if data is None:
        return None
    from surgeon.commands.shift import inspect_data
    from surgeon.measuring.preparation import InferenceRequest

    request = InferenceRequest(data=data, split=split, limit=limit, where=tuple(where or ()), labelled=False)
    with output.progress_bar("images/s") as bar:
        return inspect_data(loaded, request, bar, folder)


def _describe(
    inspection: Inspection, weights: str, by: str | None, found: DataShift | None, folder: Path | None, every: bool
) -> None:
    tell(inspection, weights, every=every)
    if by:
        output.say(f"Predicts by: {by}.")
    if found is not None:
        output.warn(found.warnings)
        if found.shift is not None:
            output.say(f"[bold]{escape(shift_sentence(found.shift))}[/]")
        if folder is not None:
            tell_report(folder, "shift.png")


def tell_data_shift(found: DataShift) -> None:
    """The same with what to beware of in the images."""
    output.say(f"[bold]{escape(found.model)}[/] on {escape(found.data)}, split {escape(found.split)}")
    output.warn(found.warnings)
    if found.shift is not None:
        tell_shift(found.shift)


def tell_shift(shift: Shift) -> None:
    """How far images are from the stored statistics."""
    _show_shift(shift)
    output.say(f"[bold]{escape(shift_sentence(shift))}[/]")


def tell(inspection: Inspection, weights: str = "", *, every: bool = False) -> None:
    """The normalisation layers of a network: by stage, or every one."""
    title = f"Normalisation layers of {escape(inspection.model)}"
    if every:
        output.show(*(_table(inspection, title, common_in_title=short) for short in (False, True)))
    else:
        output.show(*(table_of_groups(inspection.layers, title, with_paths) for with_paths in (True, False)))
    if inspection.units:
        output.show(_units_table(inspection))
    if inspection.gates:
        output.show(_gates_table(inspection))
    if inspection.shift is not None:
        _show_shift(inspection.shift)
    _say_totals(inspection, weights)
    if inspection.preprocessing is not None:
        output.say(f"Input: {escape(preprocessing_text(inspection.preprocessing))}.")


def _table(inspection: Inspection, title: str, *, common_in_title: bool) -> Table:
    """One row for every layer; what all layers have in common can stand in the title instead."""
    columns: dict[str, list[str]] = {
        "layer": [escape(layer.name or "(the model itself)") for layer in inspection.layers],
        "kind": [layer.kind for layer in inspection.layers],
        "channels": [_number(layer.channels) for layer in inspection.layers],
        "eps": [_number(layer.eps) for layer in inspection.layers],
        "momentum": [_number(layer.momentum) for layer in inspection.layers],
        "fused": [" + ".join(layer.fused) or "-" for layer in inspection.layers],
        "rewrites": [escape(", ".join(layer.rewrites)) or "-" for layer in inspection.layers],
        "statistics": [
            f"[yellow]{'; '.join(layer.health)}[/]" if layer.health else "[green]ok[/]" for layer in inspection.layers
        ],
        "norm-free path to output": [
            {True: "yes", False: "-", None: "unknown"}[layer.norm_free_path] for layer in inspection.layers
        ],
    }
    common = {name for name, cells in columns.items() if common_in_title and len(set(cells)) == 1} - {"layer"}
    told = ", ".join(f"{name} {columns[name][0]}" for name in columns if name in common and columns[name][0] != "-")
    table = Table(title=f"{title}\nAll: {told}" if told else title, title_justify="left")
    for name in columns:
        if name not in common:
            right = name in ("channels", "eps", "momentum")
            table.add_column(name, overflow="fold", justify="right" if right else "left")
    for cells in zip(*(cells for name, cells in columns.items() if name not in common), strict=True):
        table.add_row(*cells)
    return table


def _units_table(inspection: Inspection) -> Table:
    table = Table(title="Inserted units", title_justify="left")
    for column in ("where", "insert", "channels", "parameters"):
        table.add_column(column, overflow="fold", justify="right" if column in ("channels", "parameters") else "left")
    for unit in inspection.units:
        table.add_row(escape(unit.where), escape(unit.insert), _number(unit.channels), f"{unit.parameters:,}")
    return table


def _show_shift(shift: Shift) -> None:
    output.show(*(_shift_table(shift, with_noise=with_noise) for with_noise in (True, False)))


def _shift_table(shift: Shift, *, with_noise: bool) -> Table:
    """One row for every layer; the sampling noise, which the interval reckons with, where there is room."""
    table = Table(
        title=f"Distance of {count(shift.images, 'image')} from the stored statistics, in standard deviations",
        title_justify="left",
    )
    table.add_column("layer", overflow="fold")
    noise = ["sampling noise"] if with_noise else []
    for column in ("distance", "95% interval", *noise, "shift of the mean", "variance ratio"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    for layer in shift.layers:
        verdict = f"[yellow]{layer.verdict}[/]" if layer.verdict is layer.verdict.SHIFTED else layer.verdict
        table.add_row(
            escape(layer.name or "(the model itself)"),
            f"{layer.excess:.2f}",
            f"{layer.low:.2f} to {layer.high:.2f}",
            *([f"{layer.noise:.2f}"] if with_noise else []),
            f"{layer.mean_shift:.2f}",
            f"{layer.variance_ratio:.2f}",
            verdict,
        )
    return table


def _gates_table(inspection: Inspection) -> Table:
    table = Table(title="Gates: share of each mode", title_justify="left")
    table.add_column("layer", overflow="fold")
    for column in ("mode", "mean share", "largest in"):
        table.add_column(column, justify="right")
    table.add_column("")
    for name, usage in inspection.gates.items():
        for mode, (share, largest) in enumerate(zip(usage.shares, usage.largest, strict=True), 1):
            label = "" if mode > 1 else escape(name or "(the model itself)")
            table.add_row(label, str(mode), f"{share:.1%}", f"{largest:.1%}", "█" * round(share * BAR))
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _say_totals(inspection: Inspection, weights: str) -> None:
    kinds = ", ".join(f"{number} {kind}" for kind, number in inspection.kinds.items()) or "no normalisation layer"
    share = inspection.norm_parameters / max(inspection.parameters, 1)
    parameters = f"{inspection.norm_parameters:,} of {count(inspection.parameters, 'parameter')} ({share:.2%})"
    output.say(f"{kinds} · {parameters}{f' · weights: {escape(weights)}' if weights else ''}")
    if inspection.unhealthy:
        output.say(f"[yellow]{count(inspection.unhealthy, 'layer')} with problems in the statistics.[/]")
    open_paths = sum(bool(layer.norm_free_path) for layer in inspection.layers)
    if open_paths:
        output.say(
            f"{count(open_paths, 'layer')} with a norm-free path to the output. Only there does weight decay on gamma "
            "and beta change the network's function."
        )
