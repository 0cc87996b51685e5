"""What `--help` prints: panels of two columns, an option with its value and what it is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from surgeon.cli.completion import name_choices

Row = tuple[Text, Text]
ARGUMENTS, OPTIONS = "Arguments", "Options"


def with_help(command: Any) -> Any:
    """The command, or the group with all its commands, whose help has this form."""
    command.format_help = lambda context, _: show_help(command, context)
    command.get_usage = lambda context: f"Usage: {usage(command, context)}"
    for member in getattr(command, "commands", {}).values():
        with_help(member)
    return command


def show_help(command: Any, context: Any, groups: Mapping[str, Iterable[str]] | None = None) -> None:
    """Print the help of a command, or of a group with its commands, on stdout.

    Args:
        command: Of Typer.
        context: Of its call.
        groups: The titles of a group's panels, each with the commands in it. Default: one panel.
    """
    name_choices(command)
    console = Console(highlight=False)
    console.print(Text.assemble(("Usage: ", "yellow"), usage(command, context)), soft_wrap=True)
    for paragraph in paragraphs(command):
        console.print(f"\n{paragraph}")
    console.print()
    if hasattr(command, "list_commands"):
        groups = groups or {"Commands": command.list_commands(context)}
        _print_panels(console, {title: [_member(command, context, name) for name in groups[title]] for title in groups})
    panels: dict[str, list[Row]] = {ARGUMENTS: [], OPTIONS: []}
    for parameter in command.get_params(context):
        usual = ARGUMENTS if parameter.param_type_name == "argument" else OPTIONS
        panels.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(
            _parameter(parameter, context)
        )
    _print_panels(console, panels)
    if command.epilog:
        console.print(f"{command.epilog}\n")


def paragraphs(command: Any) -> list[str]:
    """What a command says of itself; the first is all that an overview shows."""
    return [" ".join(part.split()) for part in (command.help or "").split("\n\n")]


def usage(command: Any, context: Any) -> str:
    """The command with what it cannot do without."""
    if hasattr(command, "list_commands"):
        return f"{context.command_path} COMMAND …"
    parameters = command.get_params(context)
    arguments = [placeholder(one) for one in parameters if one.param_type_name == "argument"]
    required = [
        f"{one.opts[0]} {one.metavar}" for one in parameters if one.param_type_name == "option" and one.required
    ]
    return " ".join([context.command_path, *arguments, *required, "[OPTIONS]"])


def placeholder(argument: Any) -> str:
    """What stands for an argument."""
    name = (argument.metavar or argument.name.upper()).strip("[]")
    return name if argument.required else f"[{name}]"


def _member(group: Any, context: Any, name: str) -> Row:
    return Text(name, style="bold cyan"), Text.from_markup(paragraphs(group.get_command(context, name))[0])


def _parameter(parameter: Any, context: Any) -> Row:
    if parameter.param_type_name == "argument":
        names = Text(placeholder(parameter), style="bold cyan")
    else:
        value = "" if parameter.is_flag else f" {parameter.metavar}"
        names = Text.assemble(
            (", ".join(sorted(parameter.opts, key=len, reverse=True)), "bold cyan"), (value, "yellow")
        )
        names.append("".join(f"\n{name}" for name in parameter.secondary_opts), "bold cyan")
    told = Text(" ".join((parameter.help or "").split()))
    if parameter.required:
        told.append(" [required]", "red")
    elif default := _default(parameter, context):
        told.append(f" [default: {default}]", "dim")
    return names, told


def _default(parameter: Any, context: Any) -> str:
    value = parameter.get_default(context, call=False)
    if parameter.param_type_name == "option" and parameter.is_flag:
        return parameter.opts[0].lstrip("-") if value and parameter.secondary_opts else ""
    return "" if value in (None, [], ()) else str(value)


def _print_panels(console: Console, panels: Mapping[str, list[Row]]) -> None:
    """Panels whose second columns begin at the same place."""
    width = max(
        (len(line) for rows in panels.values() for names, _ in rows for line in names.plain.splitlines()), default=0
    )
    for title, rows in panels.items():
        table = Table.grid(padding=(0, 2, 0, 0), expand=True)
        table.add_column(width=width, no_wrap=True)
        table.add_column(ratio=1)
        for row in rows:
            table.add_row(*row)
        if rows:
            console.print(Panel(table, title=title, title_align="left", border_style="dim"))
