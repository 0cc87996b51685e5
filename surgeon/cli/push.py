"""`surgeon push`: a checkpoint on the Hugging Face hub."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from surgeon.cli import output
from surgeon.cli.options import Checkpoint, Json
from surgeon.core.errors import SurgeonError


def add_to(app: typer.Typer) -> None:
    app.command("push")(output.reporting_errors(push))


def push(
    checkpoint: Checkpoint,
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The model's name on the hub.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    message: Annotated[str | None, typer.Option("--message", "-m", metavar="M", help="Of the commit.")] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="R", help="A branch, made if it is not there; default: main.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a checkpoint, upload its files to the hub, and print the address once they are there."""
    if not checkpoint.is_dir():
        raise SurgeonError(f"There is no checkpoint folder {str(checkpoint)!r}.")
    from surgeon.models.hub import check_repository

    check_repository(repository)
    with output.working(f"Uploading {checkpoint}…"):
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        from surgeon.commands.publish import push as upload

        disable_progress_bars()
        result = upload(checkpoint, repository, private=private, message=message, revision=revision)
    if as_json:
        output.emit_json(result.model_dump_json(indent=2))
        return
    output.say(f"Uploaded {escape(', '.join(result.files))} to {escape(repository)}, {escape(result.revision)}:")
    output.say(f"  commit {escape(result.commit_url)}")
    output.emit_lines([result.address])
