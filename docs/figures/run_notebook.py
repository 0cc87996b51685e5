"""Run the notebook and keep what it shows: python docs/figures/run_notebook.py."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "five-minutes.ipynb"


def executed(path: Path, folder: str) -> NotebookNode:
    """A notebook after it has been run in this folder by this interpreter; a cell that fails raises."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}})
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        if cell.cell_type == "code":
            cell.outputs = _tidied(cell.outputs)
    return notebook


def _tidied(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """What is printed in one piece, and no warnings, which name paths of this machine."""
    kept: list[NotebookNode] = []
    for output in outputs:
        is_stream = output.output_type == "stream"
        if is_stream and output.name == "stderr":
            continue
        if is_stream and kept and kept[-1].output_type == "stream":
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def main() -> None:
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(NOTEBOOK, folder), NOTEBOOK)


if __name__ == "__main__":
    main()
