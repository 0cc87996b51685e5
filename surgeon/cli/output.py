"""One sink for everything the commands say: people read stderr, programs read stdout."""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from surgeon.cli.widths import keep_words, wrapped
from surgeon.core.errors import ExitCode, Interrupted, PluginWarning, SurgeonError, listing
from surgeon.core.processes import is_first_process

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=StrEnum)

PIPED_WIDTH = 160
NARROW = 100
_COMMAND = re.compile(r"\b(surgeon|pip|python|pipx) [a-z-]")


class _Output(Console):
    """Rich ends the program when the reader of a pipe has gone; here the command's frame does (`reporting_errors`)."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


# Of several processes that do the same work, one speaks.
people = _Output(stderr=True, highlight=False, soft_wrap=True, quiet=not is_first_process())


class _Listener(NamedTuple):
    """Who takes what is told in the place of the terminal, and the console that tables have to fit."""

    take: Callable[[str | Table], None]
    console: Console


_listener: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def told_to(take: Callable[[str | Table], None], console: Console) -> Iterator[None]:
    """Within this block, everything that is told goes to a function: lines with their markup, and tables."""
    token = _listener.set(_Listener(take, console))
    try:
        yield
    finally:
        _listener.reset(token)


def say(text: str) -> None:
    """A line for the person at the terminal."""
    if (listener := _listener.get()) is not None:
        listener.take(text)
    else:
        _tell_people(text)


def _tell_people(text: str) -> None:
    """In a terminal, in lines that break no word; a command to copy is left to the terminal to break."""
    fits = people.is_terminal and not _COMMAND.search(text)
    people.print(wrapped(people.render_str(text), people.width) if fits else text)


def note(sentence: str) -> None:
    """A remark that concerns what was just said."""
    say(f"  [yellow]note:[/] {escape(sentence)}")


def warn(sentences: Iterable[str]) -> None:
    """What to beware of in a result."""
    for sentence in sentences:
        say(f"  [yellow]warning:[/] {escape(sentence)}")


def show(*tables: Table) -> Table:
    """A table that was asked for: data, on stdout. Of several, the first that the terminal is wide enough for."""
    listener = _listener.get()
    if not is_first_process() and listener is None:
        return tables[-1]
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    console = listener.console if listener is not None else _Output(highlight=False, width=width)
    unlimited = console.options.update_width(sys.maxsize)
    fitting = (table for table in tables if console.measure(table, options=unlimited).maximum <= console.width)
    shown = next(fitting, tables[-1])
    keep_words(shown, console)
    if listener is not None:
        listener.take(shown)
    else:
        console.print(shown)
    return shown


def narrow() -> bool:
    """Whether what is shown goes to a terminal that has no room for many columns."""
    if (listener := _listener.get()) is not None:
        return listener.console.width < NARROW
    return sys.stdout.isatty() and people.width < NARROW


def one_of(choices: type[E], value: str, option: str) -> E:
    """An option's value as one of an enumeration, or what there is to choose from."""
    try:
        return choices(value)
    except ValueError:
        raise SurgeonError(f"{option} cannot be {value!r}.", f"Choose {listing(choices, 'or')}.") from None


def emit_json(document: str) -> None:
    """The one JSON document of a command, on stdout."""
    emit_lines([document])


def emit_lines(lines: list[str]) -> None:
    """Plain data on stdout, one item a line."""
    if (listener := _listener.get()) is not None:
        for line in lines:
            listener.take(escape(line))
    elif is_first_process():
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


@contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner while something takes a moment."""
    with people.status(escape(text)):
        yield


class ProgressBar:
    """Shows what is being done, how far it is, its rate (unless the remarks tell it) and the time that is left."""

    def __init__(self, bar: Progress, unit: str | None) -> None:
        self._bar = bar
        self._unit = unit
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, doing: str, done: int, total: int, remark: str = "") -> None:
        if doing not in self._tasks:
            self._tasks[doing] = self._bar.add_task(doing, total=total, rate="")
        task = self._tasks[doing]
        speed = self._bar.tasks[task].speed
        rate = f"{speed:,.0f} {self._unit}" if speed and self._unit else ""
        self._bar.update(task, completed=done, total=total, rate=f"{rate} {remark}".strip())


@contextmanager
def progress_bar(unit: str | None = None) -> Iterator[ProgressBar]:
    """A bar for long work; nothing where nobody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    rate = TextColumn("{task.fields[rate]}")
    with Progress(*columns, rate, console=people, transient=True, disable=not people.is_terminal) as bar:
        yield ProgressBar(bar, unit)


def fail(error: SurgeonError) -> typer.Exit:
    _tell_people(f"[bold red]Error:[/] {escape(error.message)}" + (f" {escape(error.hint)}" if error.hint else ""))
    return typer.Exit(error.exit_code)


def reporting_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn exceptions into one sentence and the right exit code; SURGEON_DEBUG=1 shows the traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with _telling_of_plugins():
                return command(*args, **kwargs)
        except typer.Exit:
            raise
        except BrokenPipeError as error:  # the reader, `head` for one, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.DONE) from error
        except SurgeonError as error:
            if _debugging():
                raise
            raise fail(error) from error
        except KeyboardInterrupt as error:
            people.print(f"Interrupted; {escape(_after_interruption(error))}")
            raise typer.Exit(ExitCode.INTERRUPTED) from error
        except (Exception, SystemExit) as error:  # a command ends by typer.Exit: sys.exit is somebody else's
            if _debugging():
                raise
            failure = SurgeonError(
                f"Unexpected {type(error).__name__}: {_first_line(error).rstrip('.')}.",
                "Run again with SURGEON_DEBUG=1 for the traceback, and please report it.",
                ExitCode.FAILED,
            )
            raise fail(failure) from error

    return run


@contextmanager
def _telling_of_plugins() -> Iterator[None]:
    """Say in a line of our own what was left out; other warnings look as they always do."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def tell(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, PluginWarning):
                say(f"[yellow]Warning:[/] {escape(str(message))}")
            else:
                others(message, category, *place)

        warnings.showwarning = tell  # type: ignore[assignment]
        yield


def _after_interruption(error: KeyboardInterrupt) -> str:
    """What there is now, and the command that goes on with it, where that is known."""
    if isinstance(error, Interrupted) and "WORLD_SIZE" not in os.environ:  # a launcher has a command of its own
        given = [argument for argument in sys.argv[1:] if argument not in (*error.options, "--overwrite")]
        return f"{error.kept}. To continue:\n{shlex.join(['surgeon', *given, *error.options])}"
    return str(error) or "nothing was left half-written."


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no message")


def _debugging() -> bool:
    return os.environ.get("SURGEON_DEBUG") == "1"
