"""What a user waits for: help, listing, and the conversion of a large network."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMANDS = {
    "--help": (["--help"], 0.3, 5),
    "ls norms": (["ls", "norms"], 0.5, 5),
    "ls models": (["ls", "models"], 0.5, 5),
    "convert resnet152 --no-pretrained": (
        ["convert", "resnet152", "--no-pretrained", "--bn", "example-weighted", "--overwrite"],
        10.0,
        3,
    ),
    "demo": (["demo"], 30.0, 1),
}


def seconds(arguments: list[str], folder: str) -> float:
    start = time.perf_counter()
    command = [str(Path(sys.executable).with_name("surgeon")), *arguments]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return time.perf_counter() - start


def main() -> int:
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        for name, (arguments, limit, rounds) in COMMANDS.items():
            best = min(seconds(arguments, folder) for _ in range(rounds))
            kept &= best <= limit
            print(f"surgeon {name:<40}{best:6.2f} s  (at most {limit:g} s: {'ok' if best <= limit else 'MISSED'})")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
