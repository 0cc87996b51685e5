"""The picture of a terminal in the README: what `surgeon sweep` prints, recorded and drawn, not typed.

python docs/figures/terminal.py docs/images/sweep.svg
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COMMAND = (
    "surgeon sweep digits-resnet8 --data digits --split validation --confirm-split test "
    "--alpha 0:0.8:9 --metric cross-entropy --method grid --apply -o runs/digits"
)
WIDTH = 126
TERMINAL = {"COLUMNS": str(WIDTH), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
ERASE_LINE = "\x1b[2K"


def recorded(command: str) -> str:
    """What a command shows on a terminal once it has ended."""
    received = bytearray()

    def read(descriptor: int) -> bytes:
        received.extend(part := os.read(descriptor, 4096))
        return part

    os.environ.update(TERMINAL)
    program, *arguments = shlex.split(command)
    assert program == "surgeon"
    status = pty.spawn([sys.executable, "-m", "surgeon", *arguments], read)
    if status:
        raise SystemExit(f"{command} failed.")
    text = received.decode().replace("\r", "")
    return text.rpartition(ERASE_LINE)[2].lstrip("\n")  # what came before was a progress bar


def drawn(command: str, shown: str) -> str:
    """A window with the command and what it showed, as an SVG that asks no one for a font."""
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.assemble(("$ ", "bold green"), command))
    console.print(Text.from_ansi(shown.rstrip()))
    picture = console.export_svg(title="surgeon sweep", theme=MONOKAI, unique_id="sweep")
    return re.sub(r"@font-face \{[^}]*\}\s*", "", picture)


def main() -> None:
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        target.write_text(drawn(COMMAND, recorded(COMMAND)), encoding="utf-8")


if __name__ == "__main__":
    main()
