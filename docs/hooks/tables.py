"""Tables that follow the registries and recipes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from surgeon.commands.listing import REGISTRIES, ListedRegistry
from surgeon.core.entry import Entry
from surgeon.core.specs import Options
from surgeon.studies.definition import Evaluation
from surgeon.studies.file import StudyFile
from surgeon.training.recipe import Recipe
from surgeon.training.recipe_files import header_of, shipped_recipes

STUDIES = Path(__file__).parents[2] / "recipes" / "studies"
RECIPES = """# Recipes

A recipe is a YAML file for `surgeon finetune --recipe NAME`. Unknown keys are errors. `surgeon recipe show NAME` prints
it, `surgeon recipe copy NAME mine.yaml` copies it for editing, and `--set KEY=VALUE` overrides one key. See also
[fine-tuning](finetune.md) and [our results](results.md).
"""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(text: str) -> str:
    """Text that may stand in a table, and that Markdown takes for nothing else."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "`true`", False: "`false`", None: "none"}[value]
    if isinstance(value, tuple | list):
        return ", ".join(f"`{item}`" for item in value) or "none"
    return f"`{value}`"


def _values(field: dict[str, Any]) -> str:
    """What an option may be, read from its JSON schema."""
    if "anyOf" in field:
        kinds = [_values(kind) for kind in field["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(filter(None, kinds)))
    if "enum" in field or "const" in field:
        return ", ".join(f"`{choice}`" for choice in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"a list of {_values(field['items'])}" if "items" in field else "a list"
    kind = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`", "string": "text"}
    bounds = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    limits = " ".join(f"{word} {field[bound]:g}" for bound, word in bounds.items() if bound in field)
    return f"{kind.get(str(field.get('type')), '')} {limits}".strip()


def options(config: type[Options]) -> str:
    """Every option of one config: default, values, meaning."""
    fields = config.model_json_schema().get("properties", {})
    if not fields:
        return "It has no options.\n"
    rows = [
        [f"`{name}`", _value(config.model_fields[name].default), _values(field), cell(field.get("description", ""))]
        for name, field in fields.items()
    ]
    return table(["option", "default", "values", "meaning"], rows)


def registered(kind: ListedRegistry, name: str | None) -> str:
    """The options of one registered thing, or a line for each of them."""
    if name is not None:
        return options(kind.registry[name].config)
    found = kind.entries
    facts = list(found[0].facts())
    with_options = any(entry.config.model_fields for entry in found)
    heads = [f"`{kind.option}`", "what it is", *facts, *(["options and their defaults"] if with_options else [])]
    return table(heads, [_line(entry, with_options) for entry in found])


def _line(entry: Entry[Any], with_options: bool) -> list[str]:
    facts = (", ".join(fact) if isinstance(fact, list) else str(fact) for fact in entry.facts().values())
    defaults = ", ".join(f"`{key}={field.default}`" for key, field in entry.config.model_fields.items())
    return [f"`{entry.name}`", cell(entry.summary), *map(cell, facts), *([defaults] if with_options else [])]


def recipe_keys(_: Any = None) -> str:
    fields = Recipe.model_json_schema()["properties"]
    rows = [
        [f"`{name}`", _value(Recipe.model_fields[name].default), _values(field), cell(field.get("description", ""))]
        for name, field in fields.items()
    ]
    return table(["key", "default", "values", "meaning"], rows)


def study_keys(of: str) -> str:
    """Every key of a study file, or of one of its evaluations."""
    fields = (Evaluation if of == "evaluation" else StudyFile).model_fields
    return table(
        ["key", "meaning"], [[f"`{one.alias or name}`", cell(one.description or "")] for name, one in fields.items()]
    )


def shipped_studies(_: Any = None) -> str:
    """Every study file of recipes/studies, with what it is about and how long it takes."""
    headers = {path: header_of(path) for path in sorted(STUDIES.glob("*.yaml"))}
    rows = [
        [f"`{path.name}`", cell(header.summary), cell(header.expected.partition(";")[0])]
        for path, header in headers.items()
    ]
    return table(["file", "what it is about", "takes"], rows)


def record(path: str) -> str:
    """Every field of a record with its type and the text under it, read from the source without importing torch."""
    module, _, name = path.rpartition(".")
    source = find_spec(module).origin  # type: ignore[union-attr]
    tree = ast.parse(Path(str(source)).read_text(encoding="utf-8"))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name).body
    rows = []
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            text = ast.literal_eval(following.value) if isinstance(following, ast.Expr) else ""
            rows.append(
                [
                    f"`{ast.unparse(node.target)}`",
                    cell(f"`{ast.unparse(node.annotation)}`"),
                    cell(" ".join(text.split())),
                ]
            )
    return table(["field", "type", ""], rows)


def recipes_page() -> str:
    """Every shipped recipe with its command and what to expect, then every key."""
    parts = [RECIPES]
    for name, path in shipped_recipes().items():
        header = header_of(path)
        settings = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        parts += [
            f"## {name}\n\n{cell(header.summary)}\n",
            f"```text\n{header.command}\n```\n",
            f"Expected: {cell(header.expected.replace('docs/results.md', '[results](results.md)'))}\n",
            "```yaml\n" + "\n".join(settings).strip() + "\n```\n",
        ]
    parts.append(f"## Every key\n\n{recipe_keys()}")
    return "\n".join(parts)


TABLES: dict[str, Callable[[Any], str]] = {
    **{name: partial(registered, kind) for name, kind in REGISTRIES.items()},
    "recipe-keys": recipe_keys,
    "record": record,
    "shipped-studies": shipped_studies,
    "study-keys": study_keys,
}
