"""torch.export's archive: for torch.export.load in Python, and for AOTInductor and ExecuTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from surgeon.commands.export.formats import Format


def write(program: ExportedProgram, path: Path, description: str) -> None:
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it has the paths of the machine that wrote it
    torch.export.save(program, path, extra_files={"surgeon.json": description})


def run(path: Path) -> Callable[[Tensor], Any]:
    return torch.export.load(path).module()


TORCH_EXPORT = Format(".pt2", (), write, run)
