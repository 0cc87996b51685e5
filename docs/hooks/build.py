"""What the site is built from besides its pages: formulas, and tables and pages that follow the program itself.

Nothing that is made here is kept in the repository, so nothing of it can go stale. A page asks for a
table by a comment, `<!-- table: norms ghost -->`, which GitHub does not show.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import commands
import maths
import notebooks
import tables
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": commands.page,
    "recipes.md": tables.recipes_page,
}
TABLE = re.compile(r"^<!-- table: (\S+)(?: (\S+))? -->$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let fences of the language `math` become MathML."""
    fence = {"name": "math", "class": "formula", "format": maths.fence}
    config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", []).append(fence)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the program."""
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    for path, content in notebooks.pages():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in the tables that a page asks for; a public name that the API page does not show is an error."""
    if page.file.src_uri == "reference/api.md":
        _check_public_names(markdown)
    try:
        return TABLE.sub(lambda found: tables.TABLES[found[1]](found[2]), markdown)
    except KeyError as error:
        raise PluginError(f"{page.file.src_uri} asks for a table that there is not: {error}") from None


def _check_public_names(markdown: str) -> None:
    import surgeon

    missing = [name for name in surgeon.__all__ if f"::: surgeon.{name}\n" not in markdown]
    if missing:
        raise PluginError(f"reference/api.md does not show {', '.join(missing)}")
