"""The version of surgeon, and what else is installed, read from the packages' metadata without importing them."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

DISTRIBUTION = "norm-surgeon"
VERSION = "0.1.0"


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    from importlib.metadata import PackageNotFoundError, version  # not for everybody who imports surgeon

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def kernels_file() -> Path | None:
    """The compiled kernels, if the installation has built them."""
    folder = Path(__file__).parents[1] / "layers" / "native"
    files = (folder / f"_kernels{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((file for file in files if file.is_file()), None)
