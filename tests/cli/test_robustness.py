"""`surgeon robustness`, and conditions in `eval` and `sweep`: right figures, resumable, and bad input in a sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import surgeon
from surgeon.conditions.base import ask
from surgeon.data.digits import load_digits
from surgeon.data.imagenet import wordnet_numbers
from surgeon.measuring.journal import Journal
from tests.cli.running import contents, document, done, refusal

DIGITS = ("--data", "digits", "--limit", "80")
UNDER = ("--under", "gaussian-noise", "--under", "contrast:severity=3")


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in {"seconds", "spent"}}


def test_figures_are_those_of_the_formula() -> None:
    """Pixels under the condition, normalised and predicted by hand."""
    told = document("robustness", "digits-resnet8", "--data", "digits", *UNDER)
    (network,) = told["networks"]
    images, labels = load_digits("test")
    model = surgeon.load(Path(surgeon.__file__).parent / "assets" / "digits-resnet8")
    pixels = (images * 0.5 + 0.5).mul(255).round().div(255)
    errors = {}
    for asked in ask(["clean", "gaussian-noise", "contrast:severity=3"]):
        seen = asked.apply(pixels, labels, torch.arange(len(labels)))
        with torch.inference_mode():
            wrong = model((seen - 0.5) / 0.5).argmax(1) != labels
        errors[asked.name] = wrong.double().mean().item()
    assert {one["condition"]: 1 - one["metrics"]["accuracy"] for one in network["conditions"]} == pytest.approx(errors)
    noise = np.mean([errors[f"gaussian-noise:severity={severity}"] for severity in range(1, 6)])
    figures = {one["key"]: one for one in network["figures"]}
    mean = (noise + errors["contrast:severity=3"]) / 2  # corruptions count alike, whatever the number of severities
    assert figures["corruption-error"]["value"] == pytest.approx(mean)
    assert figures["loss"]["value"] == pytest.approx(mean - errors["clean"])
    assert figures["corruption-error"]["low"] < mean < figures["corruption-error"]["high"]
    assert "mce" not in figures  # these are no images of ImageNet
    assert set(figures) >= {"ece", "rms", "mad", "aurra", "soft-f1"}


def test_networks_see_the_same_images_and_the_first_is_the_baseline(tmp_path: Path) -> None:
    done("convert", "digits-resnet8", "--bn", "example-weighted:alpha=0.1", "-o", tmp_path / "alpha")
    told = document("robustness", "digits-resnet8", tmp_path / "alpha", "digits-resnet8", *DIGITS, *UNDER)
    first, other, again = told["networks"]
    assert all(one["against_baseline"] is None for one in first["figures"])
    for before, after in zip(first["figures"], other["figures"], strict=True):
        against = after["against_baseline"]
        assert against["difference"] == pytest.approx(after["value"] - before["value"], abs=1e-9)
        assert against["low"] <= against["difference"] <= against["high"]
    assert [one["metrics"] for one in first["conditions"]] == [one["metrics"] for one in again["conditions"]]
    assert {one["against_baseline"]["difference"] for one in again["figures"]} == {0.0}


def test_a_report_in_one_file_that_asks_nobody(tmp_path: Path) -> None:
    arguments = ("robustness", "digits-resnet8", *DIGITS, *UNDER, "--under", "pgd:steps=2", "--under", "pgd:steps=4",
                 "--under", "low-pass:points=3", "--under", "fourier:grid=3", "-o", tmp_path / "out")  # fmt: skip
    done(*arguments)
    tmp_path /= "out"
    page = (tmp_path / "report.html").read_text("utf-8")
    assert set(contents(tmp_path)) == {"journal.jsonl", "report.html", "result.json", "robustness.png"}
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)
    for chart in ("corruptions", "map-0", "fourier-0", "low-pass", "attack-steps"):
        assert f'id="{chart}-heading"' in page, chart
    assert "data:image/png;base64," in page
    record = json.loads((tmp_path / "result.json").read_text("utf-8"))
    embedded = json.loads(page.partition('id="result">')[2].partition("</script>")[0])
    assert embedded == record
    worst = max(record["networks"][0]["corruptions"], key=lambda one: one["error"]["value"])
    assert f"{worst['error']['value']:.2%}" in page
    assert Image.open(tmp_path / "robustness.png").size[0] > 1000
    centre = re.findall(r"frequency 0 \(rows\), 0 \(columns\)", page)
    assert len(centre) == 1


def test_a_killed_run_goes_on_to_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("robustness", "digits-resnet8", *DIGITS, *UNDER, "--batch-size", "5")
    done(*arguments, "-o", tmp_path / "whole")
    append, written = Journal.append, []

    def dying(self: Journal, record: Any) -> None:
        append(self, record)
        written.append(record)
        if len(written) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "append", dying)
    with pytest.raises(BaseException):  # noqa: B017, PT011
        done(*arguments, "-o", tmp_path / "killed")
    monkeypatch.undo()
    with (tmp_path / "killed" / "journal.jsonl").open("ab") as file:
        file.write(b"01234567 {torn")
    done(*arguments, "-o", tmp_path / "killed")
    files = [contents(tmp_path / name)["journal.jsonl"] for name in ("whole", "killed")]
    assert files[0] == files[1]
    results = [json.loads((tmp_path / name / "result.json").read_text("utf-8")) for name in ("whole", "killed")]
    assert without_times(results[0]) == without_times(results[1])
    assert "with other settings: seed" in refusal(*arguments, "--seed", "1", "-o", tmp_path / "whole")


def test_two_processes_find_what_one_finds() -> None:
    arguments = ["robustness", "digits-resnet8", *DIGITS, *UNDER, "--batch-size", "16", "--json"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "surgeon"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    two = subprocess.run(
        [*launch, *arguments], capture_output=True, text=True, timeout=120, env=environment, check=True
    )
    one = subprocess.run(
        [sys.executable, "-m", "surgeon", *arguments], capture_output=True, text=True, env=environment, check=True
    )
    assert without_times(json.loads(two.stdout)) == without_times(json.loads(one.stdout))


# --- images that others have corrupted


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """A small CIFAR-10-C: twelve images, five severities."""
    random = np.random.default_rng(0)
    folder = tmp_path / "npy"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(np.arange(12) % 10, 5))
    for name in ("fog", "jpeg_compression"):
        np.save(folder / f"{name}.npy", random.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8))
    return folder


NETWORK = ("cifar-resnet20", "--no-pretrained")


def test_arrays_of_cifar_10_c(arrays: Path) -> None:
    told = document("robustness", *NETWORK, "--data", arrays)
    (network,) = told["networks"]
    assert told["images"] == 12
    assert {(one["name"], one["severity"]) for one in network["conditions"]} == {
        (name, severity) for name in ("fog", "jpeg-compression") for severity in range(1, 6)
    }
    chosen = document("robustness", *NETWORK, "--data", arrays, "--under", "fog:severity=2", "--limit", "10")
    (one,) = chosen["networks"][0]["conditions"]
    assert one["condition"] == "fog:severity=2"
    assert one["metrics"]["images"] == 10
    assert "no images under snow" in refusal("robustness", *NETWORK, "--data", arrays, "--under", "snow:severity=1")


@pytest.mark.parametrize(
    ("file", "array", "said"),
    [
        ("fog.npy", np.zeros((50, 32, 32, 3), np.uint8), "50x32x32x3"),
        ("fog.npy", np.zeros((60, 32, 32), np.uint8), "60x32x32 of uint8"),
        ("fog.npy", np.zeros((60, 32, 32, 3), np.float32), "float32"),
        ("labels.npy", np.zeros((60, 2), np.int64), "60x2"),
        ("labels.npy", np.arange(60), "differ between severities"),
        ("labels.npy", np.array([{}], dtype=object), "cannot be read"),
    ],
)
def test_arrays_of_wrong_shapes_are_refused(arrays: Path, file: str, array: np.ndarray, said: str) -> None:
    np.save(arrays / file, array, allow_pickle=True)
    assert said in refusal("robustness", *NETWORK, "--data", arrays)


def pictures(folder: Path, number: int, size: int = 32) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(number)
    for name in "ab":
        Image.fromarray(random.integers(0, 256, (size, size, 3), dtype=np.uint8)).save(folder / f"{name}.png")


def test_imagenet_c(tmp_path: Path) -> None:
    classes = [wordnet_numbers()[place] for place in (3, 500)]
    for corruption in ("fog", "snow"):
        for severity in (1, 4):
            for place, name in enumerate(classes):
                pictures(tmp_path / "c" / corruption / str(severity) / name, place)
    network = (*NETWORK, "--num-classes", "1000")
    told = document("robustness", *network, "--data", f"imagenet-c:{tmp_path / 'c'}")
    assert told["images"] == 4
    assert told["networks"][0]["preprocessing"]["crop_pct"] == 1
    assert len(told["networks"][0]["conditions"]) == 4
    (tmp_path / "c" / "snow" / "4" / classes[0] / "a.png").unlink()
    assert "not hold the same images" in refusal("robustness", *network, "--data", f"imagenet-c:{tmp_path / 'c'}")
    pictures(tmp_path / "c" / "fog" / "9" / classes[0], 0)
    assert "fog/9" in refusal("robustness", *network, "--data", f"imagenet-c:{tmp_path / 'c'}")
    assert "surgeon robustness" in refusal("eval", *network, "--data", f"imagenet-c:{tmp_path / 'c'}")


def test_imagenet_a_is_judged_by_its_own_classes(tmp_path: Path) -> None:
    places = (7, 300, 999)
    for place in places:
        pictures(tmp_path / "a" / wordnet_numbers()[place], place)
    data = ("--data", f"imagenet-a:{tmp_path / 'a'}")
    logits = tmp_path / "logits.safetensors"
    done("eval", *NETWORK, "--num-classes", "1000", *data, "--save-logits", logits)
    from safetensors.torch import load_file

    assert load_file(logits)["logits"].shape == (6, 3)
    told = document("robustness", *NETWORK, "--num-classes", "1000", *data, "--under", "contrast:severity=1")
    assert told["networks"][0]["conditions"][0]["metrics"]["images"] == 6
    told = document("robustness", *NETWORK, "--num-classes", "1000", *data)
    assert [one["condition"] for one in told["networks"][0]["conditions"]] == ["clean"]  # hard enough as they are
    assert "10 outputs" in refusal("robustness", *NETWORK, *data)
    (tmp_path / "a" / "cats").mkdir()
    assert "cats" in refusal("robustness", *NETWORK, "--num-classes", "1000", *data)


# --- other commands


def test_evaluation_under_conditions(tmp_path: Path) -> None:
    told = document("eval", "digits-resnet8", *DIGITS, "--under", "contrast:severity=5", "-o", tmp_path / "out")
    (one,) = told["under"]
    assert one["metrics"]["accuracy"] == pytest.approx(told["metrics"]["accuracy"] + one["against_clean"]["difference"])
    assert one["against_clean"]["high"] < 0
    assert 'id="under-table"' in (tmp_path / "out" / "report.html").read_text("utf-8")


SWEEP = ("sweep", "digits-resnet8", "--data", "digits", "--alpha", "0,0.1,0.3")


def test_a_sweep_chooses_under_conditions_and_confirms_under_others(tmp_path: Path) -> None:
    conditions = ("--under", "noise:severity=5", "--under", "contrast:severity=4")
    told = document(*SWEEP, *conditions, "--confirm", "--apply", "-o", tmp_path / "out")
    assert set(told["under"]) == {"gaussian-noise", "shot-noise", "impulse-noise"}
    assert told["confirmed_under"] == ["contrast"]
    assert all(point["clean"]["images"] == told["choosing_images"] for point in told["points"])
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert 'id="trade-off-heading"' in page
    history = json.loads((tmp_path / "out" / "checkpoint" / "surgery.json").read_text("utf-8"))
    assert '"confirmed_under"' in json.dumps(history)
    again = document(*SWEEP, *conditions, "--confirm", "--apply", "-o", tmp_path / "out")
    assert without_times(again) == without_times(told)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("robustness", "digits-resnet8", *DIGITS, "--under", "gausian-noise"), "gaussian-noise"),
        (("robustness", "digits-resnet8", *DIGITS, "--under", "contrast:severity=6"), "severity"),
        (("robustness", "digits-resnet8", *DIGITS, "--under", "contrast:severity=0"), "severity"),
        (("robustness", "digits-resnet8", *DIGITS, "--under", "fgsm:eps=-1"), "eps"),
        (("eval", "digits-resnet8", *DIGITS, "--under", "nothing"), "nothing"),
        ((*SWEEP, "--max-clean-loss", "1"), "--under"),
        ((*SWEEP, "--under", "clean"), "changes nothing"),
        ((*SWEEP, "--under", "contrast", "--per-layer"), "--per-layer"),
    ],
)
def test_bad_input_gets_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    assert said in refusal(*arguments)


def test_python_finds_what_the_command_finds() -> None:
    told = document("robustness", "digits-resnet8", *DIGITS, *UNDER)
    found = surgeon.robustness("digits-resnet8", "digits", under=["gaussian-noise", "contrast:severity=3"], limit=80)
    assert without_times(json.loads(found.model_dump_json())) == without_times(told)
