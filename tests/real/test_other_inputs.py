"""The programs of docs/other-inputs.md run on the data that they name, shorter than they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs/other-inputs.md").read_text("utf-8")
PROGRAMS = dict(
    zip(("voxels", "words", "tasks"), re.findall(r"^```py\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL), strict=True)
)
TOLD = {
    "voxels": r"plain: accuracy .*\nmoex: accuracy .*\n\('.* alpha .*",
    "words": r"(trained on (sst2|imdb), (plain|crossnorm and selfnorm): accuracy on sst2 .*, imdb .*\n){4}",
    "tasks": r"plain: accuracy .*\ntwo modes: accuracy .*\n(.*: share of each mode in the first layer \[.*\]\n){3}",
}

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("shared")]


@pytest.mark.parametrize("name", TOLD)
def test_a_program_of_the_page_runs(name: str) -> None:
    program, short = re.subn(r"^SEEDS, EPOCHS(.*?) = \d+, \d+", r"SEEDS, EPOCHS\1 = 2, 1", PROGRAMS[name], flags=re.M)
    assert short == 1
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert re.match(TOLD[name], finished.stdout), finished.stdout
