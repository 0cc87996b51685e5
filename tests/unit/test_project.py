"""Habits of the project that a file could break without anybody noticing."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

import surgeon

PROJECT = Path(__file__).parents[2]
CLOCKS = {"perf_counter", "perf_counter_ns", "process_time", "getrusage", "timeit"}


def settings() -> dict[str, object]:
    return tomllib.loads((PROJECT / "pyproject.toml").read_text())


def test_the_version_stands_in_one_place() -> None:
    project = settings()["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]
    assert settings()["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "surgeon.core.versions.VERSION"}
    assert yaml.safe_load((PROJECT / "CITATION.cff").read_text())["version"] == surgeon.__version__
    assert f"\n## {surgeon.__version__}" in (PROJECT / "CHANGELOG.md").read_text()


def test_a_commit_runs_what_make_lint_runs() -> None:
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    linted = [line.strip().replace("$(VENV)", ".venv") for line in recipe[1].splitlines()]
    hooks = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == linted
    assert not any(hook["pass_filenames"] for hook in hooks)


def test_no_test_measures_time() -> None:
    for path in (PROJECT / "tests").rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not names & CLOCKS, f"{path.name}: times belong in benchmarks"


def test_deprecations_are_errors_and_every_exception_has_its_date() -> None:
    lines = (
        (PROJECT / "pyproject.toml").read_text().partition("\nfilterwarnings = [")[2].partition("\n]")[0].splitlines()
    )
    filters = [line.strip() for line in lines if line.strip().startswith('"')]
    assert sum(line.startswith('"error::') for line in filters) == 2
    exceptions = [line for line in filters if line.startswith('"ignore:') and not line.startswith('"ignore::')]
    assert len(exceptions) < 6
    assert all(re.search(r"# \d{4}-\d\d-\d\d", line) for line in exceptions)


def test_every_public_function_lists_its_arguments() -> None:
    functions = {name: found for name in surgeon.__all__ if inspect.isfunction(found := getattr(surgeon, name))}
    assert len(functions) > 10
    for name, function in functions.items():
        text = inspect.getdoc(function) or ""
        missing = [argument for argument in inspect.signature(function).parameters if f"    {argument}: " not in text]
        assert not missing, name


def test_every_room_of_the_package_is_in_the_import_contract() -> None:
    rows = settings()["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = {room.strip() for row in rows for room in row.split(":")}
    assert rooms == {f"surgeon.{path.parent.name}" for path in (PROJECT / "surgeon").glob("*/__init__.py")}
    loose = {path.name for path in (PROJECT / "surgeon").glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}


def test_the_architecture_is_drawn_as_it_is() -> None:
    """In a process of its own: what another test has cached would be missing from the journeys."""
    script = PROJECT / "docs" / "figures" / "journeys.py"
    finished = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
