"""Pictures of report pages, as a browser shows them: python docs/figures/pages.py FOLDER.

Each page is that of a real command on the bundled network and digits. Needs Chromium or Chrome.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

WIDTH = 1280
COLOURS = 256
"""Of a picture: pages have few, and files stay small."""

PAGES = {
    "report-eval": (["eval", "digits-resnet8", "--data", "digits"], 2720),
    "report-sweep": (
        ["sweep", "digits-resnet8", "--data", "digits", "--alpha", "0:0.8:9", "--metric", "cross-entropy", "--confirm"],
        1500,
    ),
}
"""A command, and how many pixels of its page are shown, from the top."""


def browser() -> str:
    """The first that is installed."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if (path := shutil.which(name)) is not None:
            return path
    sys.exit("There is no Chromium or Chrome to show pages with.")


def photographed(page: Path, height: int, picture: Path) -> None:
    """The top of a page as a small PNG."""
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        own = [f"--user-data-dir={profile}", f"--window-size={WIDTH},{height}", f"--screenshot={picture}"]
        subprocess.run([browser(), *options, *own, page.as_uri()], check=True, capture_output=True)
    with Image.open(picture) as image:
        small = image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small.save(picture, optimize=True)


def main() -> None:
    target = Path(sys.argv[1]).resolve()
    for name, (command, height) in PAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "surgeon", *command, "-o", "report"], cwd=folder, check=True)
            photographed(Path(folder) / "report" / "report.html", height, target / f"{name}.png")


if __name__ == "__main__":
    main()
