"""The frame of every command: groups of options, `--json`, what is told in every command alike, and errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import typer
from rich.markup import escape

from surgeon.cli import options, output
from surgeon.cli.groups import unfolded
from surgeon.core.errors import SurgeonError
from surgeon.report.wording import matched_text, preprocessing_text

if TYPE_CHECKING:
    from pydantic import BaseModel

    from surgeon.models.origin import Preprocessing


class Answer(NamedTuple):
    """What a command found: the record for programs, how people are told, and an error if that is one."""

    result: BaseModel
    tell: Callable[[], None]
    failure: SurgeonError | None = None


def add_command(app: typer.Typer, command: Callable[..., Answer | None], name: str | None = None) -> None:
    """Make a function a command of the same name; one that gives an answer has `--json`."""
    app.command(name or command.__name__)(output.reporting_errors(_answering(unfolded(command))))


def _answering(command: Callable[..., Answer | None]) -> Callable[..., None]:
    signature = inspect.signature(command)
    gives_answer = signature.return_annotation in (Answer, Answer | None)

    @wraps(command)
    def run(**given: Any) -> None:
        as_json = given.pop("as_json", False)
        answer = command(**given)
        if answer is None:
            return
        if as_json:
            output.emit_json(answer.result.model_dump_json(indent=2))
        else:
            answer.tell()
        if answer.failure is not None:
            raise answer.failure

    json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=options.Json)
    parameters = [*signature.parameters.values(), *([json] if gives_answer else [])]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def loading() -> AbstractContextManager[None]:
    """While a command imports what it needs, which takes seconds."""
    return output.working("Loading torch and timm…")


class _Measured(Protocol):
    """What the result of everything that predicts images has."""

    @property
    def data(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...
    @property
    def bad_images(self) -> tuple[str, ...]: ...
    @property
    def matched_classes(self) -> tuple[int, int] | None: ...


def tell_measured(
    result: _Measured, what: str, preprocessing: Sequence[Preprocessing], *facts: tuple[str, str | None]
) -> None:
    """What was measured, on which images, and what to beware of.

    Args:
        result: What was measured.
        what: The networks, in a few words.
        preprocessing: What images went through.
        facts: More names and values; those without a value are left out.
    """
    output.say(f"[bold]{escape(what)}[/] on {escape(result.data)}, split {escape(result.split)}")
    output.warn(result.warnings)
    kinds = dict.fromkeys(preprocessing_text(one) for one in preprocessing)
    classes = ("classes", matched_text(result.matched_classes))
    for name, value in (*(("preprocessing", kind) for kind in kinds), classes, *facts):
        if value:
            output.say(f"  {name:<13}  {escape(value)}")
    if result.bad_images:
        output.note(f"left out {len(result.bad_images)} unreadable: {result.bad_images[0]}…")


def tell_report(folder: Path, *pictures: str) -> None:
    """Where the report of a command is."""
    output.say(f"Report: {escape(str(folder))}/{', '.join(('report.html', 'result.json', *pictures))}")
