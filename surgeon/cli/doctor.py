"""`surgeon doctor`: is this environment fit for work?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from surgeon.commands.doctor import Health

from surgeon.cli import output
from surgeon.cli.frame import Answer, add_command
from surgeon.core.errors import ExitCode, SurgeonError

COLOURS = {"ok": "green", "note": "yellow", "broken": "red"}


def add_to(app: typer.Typer) -> None:
    add_command(app, doctor)


def doctor() -> Answer:
    """Show versions, devices, kernels and caches, and test one prediction (exit code 1 on failure)."""
    with output.working("Looking around…"):
        from surgeon.commands.doctor import examine, summary

        health = examine()
    if health.healthy:
        return Answer(health, partial(_describe, health))
    advice = next(finding.advice for finding in health.findings if finding.state == "broken")
    return Answer(health, partial(_describe, health), SurgeonError(summary(health), advice, ExitCode.FAILED))


def _describe(health: Health) -> None:
    table = Table(title="This environment", title_justify="left")
    for column in ("what", "", "found", "what to do"):
        table.add_column(column, overflow="fold", no_wrap=column == "what")
    for finding in health.findings:
        colour = COLOURS[finding.state]
        table.add_row(finding.name, f"[{colour}]{finding.state}[/]", escape(finding.value), escape(finding.advice))
    output.show(table)
