"""`surgeon push`: a checkpoint on the Hugging Face hub."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from surgeon.cli import output
from surgeon.cli.frame import Answer, add_command
from surgeon.cli.options import Checkpoint
from surgeon.core.errors import SurgeonError

if TYPE_CHECKING:
    from surgeon.commands.publish import Upload


def add_to(app: typer.Typer) -> None:
    add_command(app, push)


def push(
    checkpoint: Checkpoint,
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The model's name on the hub.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    message: Annotated[str | None, typer.Option("--message", "-m", metavar="M", help="Commit message.")] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="R", help="Branch, created if missing. Default: main.")
    ] = None,
) -> Answer:
    """Verify a checkpoint, upload it to the Hugging Face Hub, and print its address."""
    if not checkpoint.is_dir():
        raise SurgeonError(f"There is no checkpoint folder {str(checkpoint)!r}.")
    from surgeon.models.hub import check_repository

    check_repository(repository)
    with output.working(f"Uploading {checkpoint}…"):
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        from surgeon.commands.publish import push as upload

        disable_progress_bars()
        result = upload(checkpoint, repository, private=private, message=message, revision=revision)
    return Answer(result, partial(_describe, result))


def _describe(result: Upload) -> None:
    output.say(f"Uploaded {escape(', '.join(result.files))} to {escape(result.repository)}, {escape(result.revision)}:")
    output.say(f"  commit {escape(result.commit_url)}")
    output.emit_lines([result.address])
