"""The README's commands and programs run as they are written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from surgeon.augment.base import augments
from tests.cli.running import done

PROJECT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *(f"docs/{name}.md" for name in ("augment", "checkpoints", "ensembles", "export", "finetune", "methods", "sweeps")),
]
NEEDS_NETWORK = "needs the network"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (PROJECT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


COMMANDS = [line for page in PAGES for block in blocks(page, "bash") for line in block.splitlines() if line.strip()]
OFFLINE = [command for command in COMMANDS if NEEDS_NETWORK not in command]
PROGRAMS = [(page, program) for page in PAGES for program in blocks(page, "python")]


def run(arguments: list[str], folder: Path) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_offline_command_in_order() -> None:
    assert len(OFFLINE) >= 6
    for command in OFFLINE:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "surgeon"
        done(*arguments)


def test_the_page_on_augmentation_names_every_one() -> None:
    table = (PROJECT / "docs/augment.md").read_text("utf-8").partition("## What there is")[2].partition("## ")[0]
    assert [name for name in augments if f"`{name}`" not in table] == []


def test_a_normalisation_in_one_file(tmp_path: Path) -> None:
    (variant,) = blocks("CONTRIBUTING.md", "python")
    (tmp_path / "noisy.py").write_text(variant)
    use = "import noisy, torch, surgeon; print(surgeon.convert(torch.nn.BatchNorm2d(4), 'noisy', sigma=1.0))"
    run(["-c", use], tmp_path)


@pytest.mark.parametrize("program", [program for _, program in PROGRAMS], ids=[page for page, _ in PROGRAMS])
def test_program(program: str) -> None:
    exec(compile(program, "program", "exec"), {"__name__": "__main__"})
