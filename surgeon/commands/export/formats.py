"""What a file format is: how a traced network is written, and how it is run again to be checked."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.export import ExportedProgram

from surgeon.core.errors import SurgeonError, listing


@dataclass(frozen=True)
class Format:
    """One format of files that hold a graph.

    `write` is given the program, the file and the JSON that describes it; `open` gives a function from images to
    outputs, by whatever will run the file elsewhere.
    """

    suffix: str
    needs: tuple[str, ...]
    write: Callable[[ExportedProgram, Path, str], None]
    open: Callable[[Path], Callable[[Tensor], Any]]

    def check_installed(self, purpose: str = "") -> None:
        """Say what has to be installed first, if anything, for writing such files or for another purpose."""
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if missing:
            raise SurgeonError(
                f"{purpose or f'Writing {self.suffix} files'} needs {listing(missing)}.",
                f"Run: pip install {' '.join(missing)}",
            )
