"""Pictures of a terminal: what a command prints, recorded and drawn, not typed.

Without a command, of the sweep below. The README's picture was recorded in a folder with CIFAR-10-C and public weights:

python docs/figures/terminal.py docs/images/sweep.svg
python docs/figures/terminal.py docs/images/recalibrate.svg 'surgeon recalibrate cifar-resnet20
    --weights resnet20-12fca82f.th --data cifar10-c --where corruption=contrast --where severity=5
    --confirm -o out/adapted'
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
WIDTH = 120
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
    verb = command.split()[1]
    picture = console.export_svg(title=f"surgeon {verb}", theme=MONOKAI, unique_id=verb)
    return re.sub(r"@font-face \{[^}]*\}\s*", "", picture)


def main() -> None:
    target = Path(sys.argv[1]).resolve()
    command = " ".join(sys.argv[2].split()) if len(sys.argv) > 2 else COMMAND
    with tempfile.TemporaryDirectory() as folder:
        for file in () if command == COMMAND else Path.cwd().iterdir():
            (Path(folder) / file.name).symlink_to(file)
        os.chdir(folder)
        target.write_text(drawn(command, recorded(command)), encoding="utf-8")


if __name__ == "__main__":
    main()
