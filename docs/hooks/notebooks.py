"""Notebooks as pages: their text, code and recorded outputs, as Markdown."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "notebooks"


def pages() -> Iterator[tuple[str, str | bytes]]:
    """Every file of the site that a notebook becomes, by its path below docs: a page, and its pictures."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        pictures: dict[str, bytes] = {}
        parts = [
            part
            for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
            for part in _cell(cell, pictures, path.stem)
        ]
        title, _, rest = "\n\n".join(parts).partition("\n")
        link = f"[Download the notebook]({path.name}){{ download }}. It runs offline."
        yield f"{FOLDER.name}/{path.stem}.md", f"{title}\n\n{link}\n{rest}\n"
        yield from ((f"{FOLDER.name}/{name}", data) for name, data in pictures.items())


def _cell(cell: dict[str, Any], pictures: dict[str, bytes], stem: str) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            yield "```text\n" + "".join(output["text"]).rstrip() + "\n```"
        elif "image/png" in output.get("data", {}):
            name = f"{stem}-{len(pictures) + 1}.png"
            pictures[name] = base64.b64decode("".join(output["data"]["image/png"]))
            yield f"![what the cell above draws]({name})"
        elif "text/plain" in output.get("data", {}):
            yield "```text\n" + "".join(output["data"]["text/plain"]) + "\n```"
