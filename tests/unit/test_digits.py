"""The bundled digits: the numbers of scikit-learn's copy, in the splits of every published figure."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from surgeon.data.digits import DIGITS, digit_pixels, load_digits

PROJECT = Path(__file__).parents[2]

# Computed from scikit-learn's copy of the data.
CHECKSUMS = {
    "train": (898, "86717ac5344f4f23be1b436da89d7a7a34ed6790f2c0ed09ae655ce426b4896b"),
    "validation": (449, "2470d94f244b91f9924392fe638d988fb1dd122bc539d95795a9f579fb9baf59"),
    "test": (450, "b69d1998c635f803b5652ace31bf095875bf0511157377638967da61ff1c68f6"),
}


@pytest.mark.parametrize("split", CHECKSUMS)
def test_splits_are_those_of_every_published_figure(split: str) -> None:
    pixels, labels = digit_pixels(split)
    count, checksum = CHECKSUMS[split]
    assert pixels.shape == (count, 8, 8)
    assert hashlib.sha256(pixels.tobytes() + labels.tobytes()).hexdigest() == checksum


def test_the_file_holds_the_numbers_of_scikit_learn() -> None:
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    with np.load(DIGITS) as ours:
        assert np.array_equal(ours["images"], theirs.images)
        assert np.array_equal(ours["labels"], theirs.target)


def test_images_are_normalised() -> None:
    images, labels = load_digits("test", mean=0.25, std=0.5)
    pixels, expected = digit_pixels("test")
    np.testing.assert_allclose(images[:, 0].double().numpy(), (pixels / 255 - 0.25) / 0.5, atol=1e-6)
    assert labels.tolist() == expected.tolist()


def test_scikit_learn_is_not_needed() -> None:
    needed = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert not any("scikit" in each for each in needed)
    code = "import sys; sys.modules['sklearn'] = None; from surgeon.data.digits import load_digits; load_digits('test')"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_licence_is_stated_beside_the_file_and_for_the_whole_package() -> None:
    for text in (DIGITS.with_name("README.md"), PROJECT / "NOTICE"):
        assert all(mark in text.read_text() for mark in ("Alpaydin", "Kaynak", "10.24432/C50P49", "CC BY 4.0"))
