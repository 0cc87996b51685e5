"""Every command on clips of sound: it works, or refuses in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import yaml
from PIL import Image

import surgeon
from surgeon.checkpoint.record import read_surgery
from tests.cli.running import document, done, invoke, refusal
from tests.clips import chirping, encoded, tone

NETWORK = "digits-resnet8"
TRAIN = ("--no-pretrained", "--batch-size", 9, "--workers", 0, "--set", "lr=0.1")


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chirping(tmp_path_factory.mktemp("sound") / "clips", {"train": 12, "validation": 6, "test": 6})


@pytest.fixture(scope="module")
def run(clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound-run") / "run"
    given = ("--insert", "moex", "--bn", "example-weighted", "--augment", "spec-augment:time=0.1", "--epochs", 12)
    done("finetune", NETWORK, "--data", clips, *given, "--set", "sweep=0,0.1", *TRAIN, "-o", folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(run: Path) -> Path:
    return run / "checkpoint"


def test_a_network_learns_to_tell_sounds_apart(run: Path, checkpoint: Path, clips: Path) -> None:
    result = json.loads((run / "result.json").read_text("utf-8"))
    record = read_surgery(checkpoint)
    assert record.preprocessing is not None
    assert record.preprocessing.sound is not None
    assert record.preprocessing.sound.samples == 3200
    assert record.preprocessing.input_size == (1, 40, 21)
    assert record.class_names == ("high", "hiss", "low")
    evaluated = document("eval", checkpoint, "--data", clips)
    assert evaluated["metrics"]["accuracy"] == result["test"]["accuracy"] > 0.8
    assert evaluated["warnings"] == []
    assert surgeon.load(checkpoint)(torch.zeros(2, 1, 40, 21)).shape == (2, 3)
    done("verify", checkpoint)
    told = done("inspect", checkpoint).stderr
    assert "Input: clips of 0.2 s at 16,000 Hz, 40 mel bands x 21 frames" in " ".join(told.split())
    assert document("inspect", checkpoint)["preprocessing"]["sound"]["rate"] == 16_000


def test_its_card_is_of_a_network_that_hears(checkpoint: Path) -> None:
    _, header, text = (checkpoint / "README.md").read_text("utf-8").split("---\n", 2)
    assert yaml.safe_load(header)["pipeline_tag"] == "audio-classification"
    assert "clips of 0.2 s at 16,000 Hz" in text


def test_what_it_is_told_of_clips(checkpoint: Path, here: Path) -> None:
    (here / "new").mkdir()
    (here / "new" / "hum.flac").write_bytes(encoded(tone(420), form="FLAC"))
    (here / "new" / "whistle.wav").write_bytes(encoded(np.stack([tone(2400, 0.3, 44_100)] * 2, 1), 44_100))
    (here / "new" / "notes.txt").write_text("not a clip")
    told = document("predict", checkpoint, "new")
    assert {one["image"]: one["classes"][0]["name"] for one in told["images"]} == {
        "new/hum.flac": "low",
        "new/whistle.wav": "high",
    }
    assert told["remarks"] == [
        "1 of 2 clips resampled to 16,000 Hz, from 44,100 Hz.",
        "1 of 2 clips longer than 0.2 s: only the middle is taken.",
    ]
    outcome = done("predict", checkpoint, "new/hum.flac")
    assert "clip" in outcome.stdout + outcome.stderr
    assert surgeon.predict(surgeon.load(checkpoint), "new").images[0].classes[0].name == "low"
    (here / "new" / "broken.wav").write_bytes(b"RIFF")
    assert "The clip new/broken.wav cannot be read" in refusal("predict", checkpoint, "new")
    skipped = document("predict", checkpoint, "new", "--skip-bad")
    assert len(skipped["images"]) == 2
    assert "broken.wav" in skipped["bad_images"][0]
    (here / "pictures").mkdir()
    Image.new("L", (8, 8)).save(here / "pictures" / "a.png")
    assert "The folder 'pictures' holds no clips of sound." in refusal("predict", checkpoint, "pictures")


def test_settings_are_chosen_and_statistics_adapted_as_for_images(checkpoint: Path, clips: Path, here: Path) -> None:
    swept = document("sweep", checkpoint, "--data", clips, "--alpha", "0,0.1", "--under", "white-noise:snr=0")
    assert swept["under"] == ["white-noise:snr=0"]
    done("recalibrate", checkpoint, "--data", clips, "--prior", "16", "-o", "adapted", "--confirm")
    assert read_surgery(here / "adapted").preprocessing == read_surgery(checkpoint).preprocessing
    assert document("inspect", checkpoint, "--data", clips)["shift"]["images"] == 18
    told = document("ensemble", checkpoint, "adapted", "--data", clips)
    assert told["split"] == "test"


def test_robustness_is_measured_under_noise(checkpoint: Path, clips: Path, here: Path) -> None:
    told = document("robustness", checkpoint, "--data", clips, "-o", "robustness")
    names = [one["condition"] for one in told["networks"][0]["conditions"]]
    assert names == ["clean", "white-noise:snr=20", "white-noise:snr=10", "white-noise:snr=0"]
    accuracies = [one["metrics"]["accuracy"] for one in told["networks"][0]["conditions"]]
    assert accuracies[0] > accuracies[-1]
    assert (here / "robustness" / "report.html").is_file()
    same = document("eval", checkpoint, "--data", clips, "--under", "white-noise:snr=0")["under"][0]
    assert same["metrics"]["accuracy"] == accuracies[-1]
    told = document("affinity", checkpoint, "--data", clips, "--augment", "time-shift", "--augment", "mixup")
    assert {one["augment"] for one in told["augments"]} == {"time-shift", "mixup"}


def test_exported_networks_take_the_spectrogram(checkpoint: Path, clips: Path, here: Path) -> None:
    done("export", checkpoint, "--to", "torch-export", "-o", "net.pt2", "--data", clips)
    beside = json.loads((here / "net.pt2.json").read_text("utf-8"))
    assert beside["input_shape"] == ["batch", 1, 40, 21]
    assert beside["preprocessing"]["sound"]["hop"] == 160


@pytest.mark.parametrize("name", ["white-noise", "spec-augment", "mixup"])
def test_spectrograms_are_drawn(name: str, clips: Path, here: Path) -> None:
    done("preview", name, "--data", clips, "--count", 2)
    pixels = np.asarray(Image.open(here / "preview.png").convert("RGB"))
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 100  # in colours


def test_what_is_for_images_is_refused(checkpoint: Path, clips: Path) -> None:
    data = ("--data", clips)
    for given, sentence in {
        ("eval", checkpoint, *data, "--tta", "flip"): "The views 'flip' are for images",
        ("eval", checkpoint, *data, "--crop-pct", 0.9): "--crop-pct is for images",
        ("eval", checkpoint, *data, "--under", "contrast:severity=1"): "is for images, not for clips of sound",
        ("eval", checkpoint, "--data", "digits"): "'digits' holds images, but",
        ("eval", NETWORK, *data): "'clips' holds clips of sound, but 'digits-resnet8' takes images",
        ("export", NETWORK, *data, "--to", "torch-export", "-o", "x.pt2"): "takes images",
        ("finetune", checkpoint, "--data", "digits", "-o", "run"): "takes clips of sound",
        ("finetune", NETWORK, *data, "--augment", "randaugment", "-o", "run"): "is for images",
        ("finetune", NETWORK, *data, "--attack", "fgsm", "-o", "run"): "is for images",
        ("finetune", NETWORK, *data, "--unlabelled", "digits", "-o", "run"): "'digits' holds images, the training data",
        ("preview", "standard", *data): "is for images",
        ("preview", "contrast", *data): "is for images",
        ("preview", "time-shift", "--data", "digits"): "is for clips of sound, not for images",
    }.items():
        assert sentence in refusal(*given)


def test_networks_of_timm_and_torchvision_take_one_channel(clips: Path, here: Path) -> None:
    """Their weights are summed over colours, and all of it is restored."""
    for name in ("mobilenetv3_small_050", "torchvision:mobilenet_v3_small"):
        folder = name.replace(":", "-")
        done("finetune", name, "--data", clips, *TRAIN, "--epochs", 1, "--set", "sweep=null", "-o", folder)
        done("verify", here / folder / "checkpoint")
        record = read_surgery(here / folder / "checkpoint")
        assert record.source is not None
        assert record.source.arguments["in_chans"] == 1
        assert invoke("eval", f"{folder}/checkpoint", "--data", clips).code == 0
    theirs = timm.create_model(f"local-dir:{here / 'mobilenetv3_small_050' / 'checkpoint'}", pretrained=True).eval()
    ours = surgeon.load(here / "mobilenetv3_small_050" / "checkpoint")
    spectrogram = torch.randn(2, 1, 40, 21, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.allclose(theirs(spectrogram), ours(spectrogram), atol=1e-6)


def test_a_network_that_was_trained_on_colours_is_fitted_and_says_so(clips: Path, here: Path) -> None:
    model = timm.create_model("resnet18", num_classes=4)
    torch.save(model.state_dict(), here / "colours.pth")
    given = ("--weights", "colours.pth", "--epochs", 1, "--batch-size", 9, "--workers", 0)
    told = document("finetune", "resnet18", "--data", clips, *given, "--set", "lr=1e-9", "-o", "run")
    assert "its filters were summed over colours" in " ".join(told["settings"])
    found = surgeon.load(here / "run" / "checkpoint").conv1.weight
    assert torch.allclose(found, model.conv1.weight.sum(1, keepdim=True), atol=1e-5)
