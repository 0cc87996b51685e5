"""What the documentation is built from: pages and tables that follow the program, formulas, figures."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import typer
from PIL import Image

from surgeon.cli.app import COMMANDS, app
from surgeon.inserts import inserts
from surgeon.norms import norms
from surgeon.training.recipe import Recipe
from surgeon.training.recipe_files import shipped_recipes

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS / "figures"))
draw = importlib.import_module("draw")
explain = importlib.import_module("explain")
TRAINED = ("mode", "mode-group", "selfnorm")
SLOW = ("race", "mean-corruption-error")

Hook = Callable[[str], ModuleType]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Hook:
    """Import one of the modules that mkdocs runs, the way mkdocs does."""
    monkeypatch.syspath_prepend(str(DOCS / "hooks"))
    return importlib.import_module


def test_the_page_on_the_command_line_shows_every_option_of_every_command(hook: Hook) -> None:
    page = hook("commands").page()
    group = typer.main.get_command(app)
    context = group.make_context("surgeon", [], resilient_parsing=True)
    for name in COMMANDS:
        assert f"\n## surgeon {name}" in page
        section = page.partition(f"\n## surgeon {name} ")[2].partition("\n## ")[0]
        for parameter in group.get_command(context, name).params:
            for option in [*parameter.opts, *parameter.secondary_opts]:
                assert not option.startswith("--") or f"`{option}" in section, (name, option)


def test_the_table_of_a_record_has_the_text_under_each_public_field(hook: Hook) -> None:
    tables = hook("tables")
    for path in re.findall(r"<!-- table: record (\S+) -->", (DOCS / "reference" / "api.md").read_text("utf-8")):
        table = tables.TABLES["record"](path)
        assert "\\n" not in table, "a text of two lines is one"
        assert "| `_" not in table
    sweep = tables.TABLES["record"]("surgeon.results.sweep.Sweep")
    assert "| The name of the setting that the network is left at, and that `--apply` stores: the best one if" in sweep


def test_tables_name_every_option_key_and_recipe(hook: Hook) -> None:
    tables = hook("tables")
    for kind, registry in (("norms", norms), ("inserts", inserts)):
        for name in registry:
            table = tables.TABLES[kind](name)
            assert [key for key in registry[name].config.model_fields if f"| `{key}` |" not in table] == []
    page = tables.recipes_page()
    assert [name for name in shipped_recipes() if f"\n## {name}\n" not in page] == []
    assert [key for key in Recipe.model_fields if f"| `{key}` |" not in page] == []


def test_tables_tell_what_an_option_may_be(hook: Hook) -> None:
    table = hook("tables").TABLES["norms"]("ghost")
    assert "| `size` | `32` | whole number from 1 | Examples per group in training. |" in table
    assert "| `running` | `batch` | `batch`, `groups` |" in table


def test_a_field_of_a_record_has_its_type_and_text(hook: Hook) -> None:
    table = hook("tables").TABLES["record"]("surgeon.results.sweep.Sweep")
    assert "| `chosen` | `float` | The best single value. |" in table


def test_formulas_become_mathml_or_fail(hook: Hook) -> None:
    maths = hook("maths")
    html = maths.fence(r"\begin{split} y &= \gamma x \\ &= z \end{split}", "math", "formula")
    assert html.startswith('<div class="formula"><math')
    assert html.count("<mtr>") == 2
    for unknown in (r"\begin{aligned} a &= b \end{aligned}", r"\nosuchcommand x"):
        with pytest.raises(maths.SuperFencesException):
            maths.fence(unknown, "math", "formula")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in TRAINED else ()) for name in draw.FIGURES]
)
def test_a_figure_shows_something_and_is_small(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.png"
    draw.save(draw.FIGURES[name](), file)
    pixels = np.asarray(Image.open(file).convert("L"), dtype=float)
    assert pixels.std() > 10
    assert file.stat().st_size < 60_000
    committed = Image.open(draw.IMAGES / file.name)
    assert committed.size == Image.open(file).size
    assert f"images/methods/{name}.png" in (DOCS / "methods" / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in SLOW else ()) for name in explain.FIGURES]
)
def test_a_figure_that_explains_a_number_is_that_of_the_page(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.png"
    explain.save(explain.FIGURES[name](), file)
    drawn, committed = (
        np.asarray(Image.open(one).convert("L"), dtype=float) for one in (file, explain.IMAGES / file.name)
    )
    assert drawn.std() > 10
    assert file.stat().st_size < 60_000
    assert drawn.shape == committed.shape
    assert f"images/explain/{name}.png" in (DOCS / "explain.md").read_text("utf-8")


def test_the_page_that_explains_the_numbers_quotes_those_of_its_figures() -> None:
    page = (DOCS / "explain.md").read_text("utf-8")
    before, after = explain.right(0), explain.right(0.1)
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    assert f"of {len(before)} images, {gained} speak for alpha 0.1 and {lost} against it" in " ".join(page.split())
    assert f"({gained} − {lost}) / {len(before)} = {100 * (gained - lost) / len(before):+.2f} points" in page


def test_the_notebook_runs_and_still_shows_what_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    run_notebook = importlib.import_module("run_notebook")
    recorded = run_notebook.nbformat.read(run_notebook.NOTEBOOK, as_version=4)
    again = run_notebook.executed(run_notebook.NOTEBOOK, str(tmp_path))
    for before, after in zip(recorded.cells, again.cells, strict=True):
        kinds = [[output.output_type for output in cell.get("outputs", [])] for cell in (before, after)]
        assert kinds[0] == kinds[1], after.source
        if "result.summary" not in after.source:  # sentences of the sweep, which have tests of their own
            said = [[_words(output.get("text", "")) for output in cell.get("outputs", [])] for cell in (before, after)]
            assert said[0] == said[1], after.source


def _words(text: str) -> list[str]:
    """What is said without its figures, whose last digits depend on the machine."""
    return re.findall(r"[a-z]+", text)


def test_a_notebook_becomes_a_page_with_its_pictures(hook: Hook) -> None:
    files = dict(hook("notebooks").pages())
    page = files["notebooks/five-minutes.md"]
    assert page.startswith("# Five minutes with surgeon\n\n[Download the notebook](five-minutes.ipynb)")
    assert page.count("```python") > 5
    pictures = re.findall(r"\((five-minutes-\d\.png)\)", page)
    assert len(pictures) == 2
    assert all(files[f"notebooks/{name}"].startswith(b"\x89PNG") for name in pictures)


def test_the_gallery_shows_every_report_with_its_command() -> None:
    gallery = importlib.import_module("gallery")
    page = (DOCS / "gallery.md").read_text("utf-8")
    for name, commands in gallery.REPORTS.items():
        assert f"\nsurgeon {commands[-1]}\n" in page
        assert f"](gallery/{name}.png)](gallery/{name}.html)" in page
        assert (gallery.GALLERY / f"{name}.html").read_text("utf-8").lower().startswith("<!doctype html>")
        assert Image.open(gallery.GALLERY / f"{name}.png").width == gallery.SHOWN_WIDTH
