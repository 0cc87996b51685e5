"""What is released: the wheel holds the package and nothing else, and works far away from its source."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import surgeon
from surgeon.layers import native

PROJECT = Path(__file__).parents[2]
BUILT_FROM = ("LICENSE", "NOTICE", "README.md", "pyproject.toml", "recipes", "surgeon")


def run(*arguments: str | Path, folder: Path, **options: str) -> str:
    """What a command prints; it finds neither the source tree nor anybody's settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    finished = subprocess.run(
        [str(argument) for argument in arguments], cwd=folder, env=environment | options, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, which leaves no build folder in the source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in BUILT_FROM:
        if (PROJECT / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__", "*.so")
            shutil.copytree(PROJECT / name, source / name, symlinks=True, ignore=left_out)
        else:
            shutil.copy(PROJECT / name, source)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet")
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert f"-{surgeon.__version__}-" in wheel.name
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"surgeon", "norm_surgeon"}
    assert not [name for name in names if {"tests", "benchmarks", "docs"} & set(Path(name).parts)]
    code = {
        str(path.relative_to(PROJECT)) for path in (PROJECT / "surgeon").rglob("*.py") if "assets" not in path.parts
    }
    assert {name for name in names if name.endswith(".py")} == code
    recipes = {f"surgeon/assets/recipes/{path.name}" for path in (PROJECT / "recipes").glob("*.yaml")}
    assert {name for name in names if "/recipes/" in name} == recipes
    for needed in ("surgeon/py.typed", "surgeon/assets/digits/digits.npz", "surgeon/assets/digits/README.md"):
        assert needed in names
    assert any(name.endswith("licenses/NOTICE") for name in names)


def test_the_demo_runs_from_it_outside_of_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "empty", folder=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    (packages,) = (tmp_path / "empty").glob("lib/python*/site-packages")
    # Plain folders of packages: no .pth file in them is read, so an editable installation is not seen.
    dependencies = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(dependencies))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel, folder=tmp_path)
    place = "import surgeon, surgeon.layers.native as native; print(surgeon.__file__); print(native.available())"
    home, kernels = run(python, "-c", place, folder=tmp_path).split()
    assert Path(home).is_relative_to(packages)
    assert kernels == str(native.available())
    told = json.loads(run(packages.parents[2] / "bin" / "surgeon", "demo", "--json", folder=tmp_path))
    assert told
    assert list((tmp_path / "surgeon-demo").iterdir())
