"""`surgeon verify`: is a checkpoint whole, unchanged and true to its original?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table

from surgeon.cli import output
from surgeon.cli.frame import Answer, add_command
from surgeon.cli.options import Checkpoint
from surgeon.core.errors import ExitCode, SurgeonError, printable

if TYPE_CHECKING:
    from surgeon.commands.verify import Check, Verification


def add_to(app: typer.Typer) -> None:
    add_command(app, verify)


def verify(
    checkpoint: Checkpoint,
) -> Answer:
    """Check a checkpoint's files and hashes, and compare it with the unconverted network (exit code 3 on failure)."""
    from surgeon.models.hub import repository_of

    if not checkpoint.is_dir() and repository_of(str(checkpoint)) is None:
        raise SurgeonError(f"There is no checkpoint folder {str(checkpoint)!r}.")
    with output.working(f"Verifying {checkpoint}…"):
        from surgeon.checkpoint import folder_of
        from surgeon.commands.verify import verify as run

        result = run(folder_of(checkpoint))
    failed = next((check for check in result.checks if check.failed), None)
    describe = partial(tell, result)
    if failed is None:
        return Answer(result, describe)
    problem = f"The checkpoint failed verification: {failed.detail}"
    return Answer(result, describe, SurgeonError(problem, exit_code=ExitCode.VERIFICATION))


def tell(result: Verification) -> None:
    """Every check and its result."""
    table = Table(title=f"Verification of {escape(result.checkpoint)}", title_justify="left")
    for column in ("check", "result", "detail"):
        table.add_column(column, overflow="fold")
    for check in result.checks:
        table.add_row(check.name, _result(check), escape(printable(check.detail)))
    output.show(table)


def _result(check: Check) -> str:
    if check.skipped:
        return "[yellow]skipped[/]"
    return "[green]ok[/]" if check.passed else "[red]FAILED[/]"
