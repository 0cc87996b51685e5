"""Everything that is one method lies in its own file or folder: generic code imports none of them and names none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import surgeon
from surgeon.augment.base import augments
from surgeon.inserts import inserts
from surgeon.norms import norms

PACKAGE = Path(surgeon.__file__).parent
METHODS = ("norms", "inserts", "augment")
GENERIC = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[0] not in METHODS and path.parent != PACKAGE  # which has the public names
)

SHARED_WITH_OTHER_WORDS = {"split", "mode", "weak", "strong", "standard"}
"""Names of methods that are also names of other things (`--split`, a mode of drawing, …)."""

DEFAULTS = {
    ("commands/sweep/settings.py", "example-weighted"),  # what --alpha is short for
    ("studies/tasks.py", "example-weighted"),  # what `alpha` is short for there
    ("conditions/gaussian_noise.py", "gaussian-noise"),  # a corruption of the same name as an augmentation
    ("commands/robustness/alexnet.py", "gaussian-noise"),  # a row of a published table
}


@cache
def homes() -> dict[str, str]:
    """The file or folder of every method, as a module: `surgeon.norms.ghost` -> ghost."""
    found: dict[str, str] = {}
    for registry in (norms, inserts, augments):
        for name in registry:
            made = registry[name]
            function = getattr(made, "install", None) or made.build  # type: ignore[union-attr]
            module = function.__module__
            if module == "surgeon.augment.mixing":  # it builds what the rule of a mix does
                module = next(
                    cell.cell_contents.__module__
                    for cell in function.__closure__ or ()
                    if getattr(cell.cell_contents, "__module__", module) != module
                )
            found[".".join(module.split(".")[:3])] = name
    return found


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def words(tree: ast.AST) -> Iterator[str]:
    """Every string that is one word, which no docstring or sentence is; of a spec, the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            yield node.value.partition(":")[0]


def looked_up(tree: ast.AST) -> Iterator[str]:
    """What is asked for by name among a layer's rewrites or in a registry: `rewrites["x"]`, `"x" in layer.rewrites`."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=place, slice=ast.Constant(value=str(name))):
                yield from [name] if _is_place(place) else []
            case ast.Call(func=ast.Attribute(value=place), args=[ast.Constant(value=str(name)), *_]):
                yield from [name] if _is_place(place) else []
            case ast.Compare(left=ast.Constant(value=str(name)), comparators=[place]):
                yield from [name] if _is_place(place) else []


def _is_place(node: ast.expr) -> bool:
    word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return word in ("rewrites", "norms", "inserts", "augments")


def test_there_is_a_home_for_every_method() -> None:
    assert {"surgeon.norms.ghost", "surgeon.inserts.moex", "surgeon.augment.squares"} <= set(homes())
    assert not any(home in ("surgeon.norms.base", "surgeon.inserts.base", "surgeon.augment.mixing") for home in homes())


def test_generic_code_imports_no_method() -> None:
    found = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in GENERIC
        for module in imported(ast.parse(path.read_text("utf-8")))
        if ".".join(module.split(".")[:3]) in homes()
    ]
    assert not found, found


def test_generic_code_names_no_method() -> None:
    names = {*norms, *inserts, *augments, *(alias for name in inserts for alias in inserts[name].aliases)}
    found = [
        f"{path.relative_to(PACKAGE)} names {word}"
        for path in GENERIC
        for word in words(ast.parse(path.read_text("utf-8")))
        if word in names - SHARED_WITH_OTHER_WORDS and (str(path.relative_to(PACKAGE)), word) not in DEFAULTS
    ]
    assert not found, found


def test_generic_code_looks_no_method_up() -> None:
    found = [
        f"{path.relative_to(PACKAGE)} looks {name} up"
        for path in GENERIC
        for name in looked_up(ast.parse(path.read_text("utf-8")))
    ]
    assert not found, found


def test_what_is_looked_up_is_seen() -> None:
    code = (
        'layer.rewrites["split"]; layer.rewrites.get("mode", 0); "split" in layer.rewrites; norms["ghost"]; x["split"]'
    )
    assert sorted(looked_up(ast.parse(code))) == ["ghost", "mode", "split", "split"]


def test_methods_of_different_kinds_do_not_import_each_other() -> None:
    found = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for kind in METHODS
        for path in sorted((PACKAGE / kind).rglob("*.py"))
        for module in imported(ast.parse(path.read_text("utf-8")))
        if ".".join(module.split(".")[:3]) in homes() and not module.startswith(f"surgeon.{kind}.")
    ]
    assert not found, found
