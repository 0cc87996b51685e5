"""What is installed, read from the packages' metadata without importing them."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DISTRIBUTION = "norm-surgeon"


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def kernels_file() -> Path | None:
    """The compiled kernels, if the installation has built them."""
    folder = Path(__file__).parents[1] / "layers" / "native"
    files = (folder / f"_kernels{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((file for file in files if file.is_file()), None)
