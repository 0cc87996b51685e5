"""The images of a Parquet folder with the damage of JPEG compression, as a Parquet folder to sweep on.

python recipes/scripts/jpeg_damage.py CIFAR10_FOLDER --quality 70 -o damaged
"""

from __future__ import annotations

import argparse
from io import BytesIO
from pathlib import Path

from datasets import load_dataset
from PIL import Image


def damaged(image: Image.Image, quality: int) -> Image.Image:
    compressed = BytesIO()
    image.convert("RGB").save(compressed, "JPEG", quality=quality)
    return Image.open(compressed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--quality", type=int, default=70)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    images = load_dataset("parquet", data_files=sorted(map(str, given.data.glob(f"{given.split}-*.parquet"))))["train"]
    given.output.mkdir(parents=True, exist_ok=True)
    images.map(lambda row: {"image": damaged(row["image"], given.quality)}).to_parquet(
        given.output / f"{given.split}-00000-of-00001.parquet"
    )


if __name__ == "__main__":
    main()
