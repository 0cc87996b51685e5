"""The page on the command line: every command of the app, as `--help` tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from tables import cell, table

from surgeon.cli.app import app
from surgeon.cli.completion import name_choices
from surgeon.cli.help import paragraphs, placeholder

INTRODUCTION = """# Command line

Every command has `--help`. `surgeon --install-completion` installs shell completion for commands and for the names of
models, rewrites and augmentations. Messages go to stderr, data to stdout. With `--json`, stdout is exactly one JSON
document. Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 verification failed, 130 interrupted.
"""


def page() -> str:
    """The whole page; a command that is added to the app appears here automatically."""
    group = typer.main.get_command(app)
    context = group.make_context("surgeon", [], resilient_parsing=True)
    found = dict(_commands(group, context))
    overview = table(
        ["command", "what it does"],
        [[f"[`{name}`](#{name.replace(' ', '-')})", _prose(paragraphs(command)[0])] for name, command in found.items()],
    )
    return "\n".join([INTRODUCTION, overview, *(_section(name, command) for name, command in found.items())])


def _commands(group: Any, context: Any) -> Iterator[tuple[str, Any]]:
    """Commands by their full names; those of a group follow it. Asking the group imports the lazy ones."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        full_name = f"{context.command_path} {name}"
        if hasattr(command, "list_commands"):
            yield from _commands(command, type(context)(command, parent=context, info_name=name))
        else:
            yield full_name, command


def _section(name: str, command: Any) -> str:
    name_choices(command)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    required = [p for p in options if p.required]
    usage = " ".join([name, *map(placeholder, arguments), *(f"{p.opts[0]} {p.metavar}" for p in required)])
    parts = [
        f"## {name} {{ #{name.replace(' ', '-')} }}",
        _prose(command.help),
        f"```text\n{usage}{' [OPTIONS]' if len(options) > len(required) else ''}\n```",
    ]
    if arguments:
        parts.append(table(["argument", ""], [[f"`{placeholder(p)}`", _prose(p.help)] for p in arguments]))
    if options:
        rows = [[_names(p), _prose(p.help), "required" if p.required else _default(p)] for p in options]
        parts.append(table(["option", "", "default"], rows))
    return "\n\n".join(parts) + "\n"


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return ", ".join(
        f"`{name}{value if name.startswith('--') else ''}`" for name in [*option.opts, *option.secondary_opts]
    )


def _default(option: Any) -> str:
    if option.is_flag:
        return f"`{option.opts[0]}`" if option.default else ""
    if option.default in (None, [], ()):
        return ""
    return f"`{option.default}`"


def _prose(text: str | None) -> str:
    """Help text without the terminal's markup."""
    return cell(re.sub(r"\[/?(?:bold|dim|italic|cyan)?\]", "", " ".join((text or "").split())))
