"""What a user waits for: import, help, listing, and the conversion of a large network.

The conversion is compared with a program that does nothing but import torch and timm and build the same network.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import fast, figure

BUILDING = "import torch, timm; timm.create_model('resnet152')"
LIMITS = {"import surgeon": 0.1, "--help": 0.3, "ls norms": 0.5, "ls models": 0.5, "demo": 30.0}
CONVERT = ("convert", "resnet152", "--no-pretrained", "--bn", "example-weighted", "--overwrite")
MOST_OF_BUILDING = 1.5
ROUNDS, ROUNDS_OF_BUILDING = 7, 4


def command(name: str) -> list[str]:
    """A statement for Python, or arguments of surgeon."""
    if name.startswith("import "):
        return [sys.executable, "-c", name]
    return [str(Path(sys.executable).with_name("surgeon")), *name.split()]


def seconds(arguments: list[str], folder: str) -> float:
    start = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True, cwd=folder)
    return time.perf_counter() - start


def main() -> int:
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        title = "seconds from the command to its end"
        print(title)
        nothing = min(seconds([sys.executable, "-c", "pass"], folder) for _ in range(ROUNDS))
        for name, limit in LIMITS.items():
            if name == "demo" and fast():
                continue
            rounds = 1 if name == "demo" else ROUNDS
            best = min(seconds(command(name), folder) for _ in range(rounds))
            if name.startswith("import "):
                best -= nothing  # Python itself
            kept &= figure(title, name, best, at_most=limit, unit="s")
        converting, building = [], []
        for _ in range(2 if fast() else ROUNDS_OF_BUILDING):
            building.append(seconds([sys.executable, "-c", BUILDING], folder))
            converting.append(seconds(command(" ".join(CONVERT)), folder))
        title = "convert resnet152 --no-pretrained, against importing torch and timm and building it"
        print(f"{title}: {min(converting):.2f} s, {min(building):.2f} s")
        kept &= figure(title, "time", min(converting) / min(building), at_most=MOST_OF_BUILDING)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
