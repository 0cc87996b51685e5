"""The gallery: run each command on the bundled digits, keep its page, and take a picture of it.

python docs/figures/gallery.py [NAME…]    needs Chromium, and about three minutes on one core
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from surgeon.data.digits import digit_pixels

GALLERY = Path(__file__).parents[1] / "gallery"
WIDTH, HEIGHT = 1280, 1500
SHOWN_WIDTH, COLOURS = 800, 256
BROWSER = (
    "chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-background-networking"
)

# The last command of each writes the page; those before it make what it needs.
REPORTS = {
    "sweep": [
        "sweep digits-resnet8 --data digits --split validation --confirm-split test --alpha 0:0.8:17 "
        "--metric cross-entropy --apply -o sweep",
    ],
    "eval": ["eval digits-resnet8 --data digits --under contrast:severity=3 -o eval"],
    "shift": ["inspect digits-resnet8 --data dim -o shift"],
    "recalibrate": ["recalibrate digits-resnet8 --data dim --prior 64 --confirm --source digits -o recalibrate"],
    "robustness": [
        "convert digits-resnet8 --bn example-weighted:alpha=0.3 -o alpha-0.3",
        "robustness digits-resnet8 alpha-0.3 --data digits --under noise --under contrast -o robustness",
    ],
    "finetune": [
        "finetune digits-resnet8 --no-pretrained --data digits --epochs 12 --snapshots 2 "
        "--augment standard:flip=false -o finetune",
    ],
    "ensemble": [
        "convert digits-resnet8 --bn example-weighted:alpha=0.2 -o alpha-0.2",
        "convert digits-resnet8 --bn example-weighted:alpha=0.5 -o alpha-0.5",
        "ensemble digits-resnet8 alpha-0.2 alpha-0.5 --data digits --metric cross-entropy --greedy -o ensemble",
    ],
}


def dim(folder: Path) -> None:
    """The test digits at 40% of their contrast, in a folder for each class."""
    for number, (pixels, label) in enumerate(zip(*digit_pixels("test"), strict=True)):
        of_class = folder / str(label)
        of_class.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 0.4).round().astype("uint8")).save(of_class / f"{number:03}.png")


def run(name: str, folder: Path) -> Path:
    """The page that the commands leave."""
    if "--data dim" in REPORTS[name][-1]:
        dim(folder / "dim")
    for command in REPORTS[name]:
        done = subprocess.run(
            [sys.executable, "-m", "surgeon", *shlex.split(command)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"surgeon {command} failed:\n{done.stderr}")
    return min((folder / name).rglob("report.html"), key=lambda page: len(page.parts))


def photograph(page: Path, picture: Path) -> None:
    """The first screen and a half of a page, as a PNG of few colours."""
    with tempfile.TemporaryDirectory() as folder:
        taken = Path(folder) / "taken.png"
        options = [f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={taken}"]
        subprocess.run([*shlex.split(BROWSER), *options, page.as_uri()], capture_output=True, check=True)
        image = Image.open(taken).convert("RGB")
    shown = image.resize((SHOWN_WIDTH, SHOWN_WIDTH * image.height // image.width), Image.Resampling.LANCZOS)
    # Without `kmeans` the many greys of letters would take the places of the few colours of lines and bars.
    shown.quantize(COLOURS, dither=Image.Dither.NONE, kmeans=3).save(picture, optimize=True)


def main(names: list[str]) -> None:
    GALLERY.mkdir(exist_ok=True)
    os.environ.pop("COLUMNS", None)
    for name in names or REPORTS:
        with tempfile.TemporaryDirectory() as folder:
            page = run(name, Path(folder))
            shutil.copy(page, GALLERY / f"{name}.html")
            photograph(page, GALLERY / f"{name}.png")
            print(name, f"{(GALLERY / f'{name}.html').stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
