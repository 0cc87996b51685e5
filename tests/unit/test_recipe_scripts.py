"""The scripts that are no study files still work."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import yaml
from datasets import load_dataset

SCRIPTS = Path(__file__).parents[2] / "recipes" / "scripts"


def run(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
    runpy.run_path(str(SCRIPTS / script), run_name="__main__")


def test_batches_of_few_classes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = yaml.safe_load((SCRIPTS / "non-iid.yaml").read_text())["non_iid"]
    content |= {"seeds": [1], "rewrites": {10: ["plain"], 1: ["ghost:size=4"]}, "alphas": [0, 0.1]}
    content["training"]["steps"] = 2
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({"non_iid": content}, sort_keys=False))
    run(monkeypatch, "non_iid.py", tmp_path / "small.yaml", "-o", tmp_path / "out")
    cells = json.loads((tmp_path / "out" / "results.json").read_text())["non_iid"]["cells"]
    assert [(cell["classes"], cell["rewrite"]) for cell in cells] == [(10, "plain"), (1, "ghost:size=4")]
    assert 0 <= cells[0]["seeds"][0]["accuracy"]["original"]["accuracy"] <= 1


def test_the_bundled_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = yaml.safe_load((SCRIPTS / "digits-resnet8.yaml").read_text()) | {"epochs": 1}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(content))
    run(monkeypatch, "digits_resnet8.py", tmp_path / "small.yaml", "-o", tmp_path / "out")
    record = json.loads((tmp_path / "out" / "surgery.json").read_text())
    assert record["base_weights"]["origin"] == "recipes/scripts/small.yaml"


def test_damage_of_compression(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pixels = [{"image": {"bytes": file.read_bytes(), "path": None}, "label": 0} for file in _pictures(tmp_path)]
    from datasets import ClassLabel, Dataset, Features, Image

    features = Features({"image": Image(), "label": ClassLabel(names=["a"])})
    Dataset.from_list(pixels, features=features).to_parquet(tmp_path / "test-0.parquet")
    run(monkeypatch, "jpeg_damage.py", tmp_path, "--quality", 10, "-o", tmp_path / "out")
    (made,) = (tmp_path / "out").glob("*.parquet")
    images = load_dataset("parquet", data_files=str(made), cache_dir=str(tmp_path / "cache"))["train"]
    assert images[0]["image"].size == (16, 16)
    assert images[0]["image"].tobytes() != images[1]["image"].tobytes()


def test_day_and_dusk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from datasets import Dataset, Features, Image, Value

    picture = _pictures(tmp_path)[0].read_bytes()
    mask = _mask(tmp_path).read_bytes()
    rows = [
        {"name": name, "image": {"bytes": picture, "path": None}, "mask": {"bytes": mask, "path": None}}
        for name in [*(f"day{number}" for number in range(17)), "0001TP_1", "0001TP_2"]
    ]
    features = Features({"name": Value("string"), "image": Image(), "mask": Image()})
    for split in ("train", "validation", "test"):
        Dataset.from_list(rows, features=features).to_parquet(tmp_path / f"{split}-0.parquet")
    run(monkeypatch, "camvid_dusk.py", tmp_path, "--seeds", 1, "--epochs", 1, "-o", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(found) == {"plain", "crossnorm and selfnorm"}
    assert 0 <= found["plain"][0]["prior 64"]["dusk"]["accuracy"] <= 1
    assert "| prior 1024 | " in capsys.readouterr().out


def _mask(folder: Path) -> Path:
    from PIL import Image

    Image.linear_gradient("L").resize((16, 16)).point([value * 12 // 256 for value in range(256)]).save(
        folder / "m.png"
    )
    return folder / "m.png"


def _pictures(folder: Path) -> list[Path]:
    from PIL import Image

    files = [folder / "0.png", folder / "1.png"]
    for number, file in enumerate(files):
        Image.linear_gradient("L").resize((16, 16)).rotate(90 * number).convert("RGB").save(file)
    return files
