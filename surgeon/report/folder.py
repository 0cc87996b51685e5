"""What every command that reports leaves in its folder: the result as JSON, as a picture and as a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from surgeon.core.atomic import staged
from surgeon.results.base import Result

RESULT, PAGE = "result.json", "report.html"

R = TypeVar("R", bound=Result)


def write_report(
    result: R, folder: Path, picture: str, draw: Callable[[R, Path], None], page: Callable[[R], str]
) -> None:
    """Write all of them or none.

    Args:
        result: What was found.
        folder: Where to.
        picture: The name of the picture's file.
        draw: Draws the result into a file.
        page: The result as HTML.
    """
    files = report_files(result, picture, draw, page)
    with staged(folder, tuple(files)) as stage:
        for name, write in files.items():
            write(stage / name)


def report_files(
    result: R, picture: str, draw: Callable[[R, Path], None], page: Callable[[R], str]
) -> dict[str, Callable[[Path], None]]:
    """The same files, each by its name with what writes it, for whoever writes them together with others."""

    def write_page(path: Path) -> None:
        path.write_text(page(result), encoding="utf-8")

    def write_result(path: Path) -> None:
        path.write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")

    return {picture: lambda path: draw(result, path), PAGE: write_page, RESULT: write_result}
