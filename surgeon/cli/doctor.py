"""`surgeon doctor`: is this environment fit for work?"""

from __future__ import annotations

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import output
from surgeon.cli.options import Json
from surgeon.core.errors import ExitCode, SurgeonError

COLOURS = {"ok": "green", "note": "yellow", "broken": "red"}


def add_to(app: typer.Typer) -> None:
    app.command("doctor")(output.reporting_errors(doctor))


def doctor(as_json: Json = False) -> None:
    """Show versions, devices, kernels, caches and the hub, and test one prediction (exit 1 if anything is broken)."""
    with output.working("Looking around…"):
        from surgeon.commands.doctor import examine, summary

        health = examine()
    if as_json:
        output.emit_json(health.model_dump_json(indent=2))
    else:
        table = Table(title="This environment", title_justify="left")
        for column in ("what", "", "found", "what to do"):
            table.add_column(column, overflow="fold")
        for finding in health.findings:
            colour = COLOURS[finding.state]
            table.add_row(finding.name, f"[{colour}]{finding.state}[/]", escape(finding.value), escape(finding.advice))
        output.show(table)
    if not health.healthy:
        advice = next(finding.advice for finding in health.findings if finding.state == "broken")
        raise SurgeonError(summary(health), advice, ExitCode.FAILED)
