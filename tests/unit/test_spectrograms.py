"""What a network hears: log-mel spectrograms as they are defined, and what is done to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from surgeon.augment.base import augments
from surgeon.augment.geometry import evaluation_geometry
from surgeon.augment.pipeline import build_augmentation
from surgeon.conditions.base import ask
from surgeon.core.errors import SurgeonError
from surgeon.data.clips import as_picture
from surgeon.data.loaders import Batch
from surgeon.data.mel import log_mel
from surgeon.data.seeding import seeded
from surgeon.data.transforms import normalise
from surgeon.measuring.conditions import ConditionMaker
from surgeon.models.origin import Preprocessing
from surgeon.models.spectrogram import Spectrogram
from surgeon.views import views, views_for
from tests.reference import sound as reference

USUAL = Spectrogram(samples=4000)
SHAPES = (
    USUAL,
    Spectrogram(samples=1999, window=401, hop=160, bands=23),
    Spectrogram(rate=8000, samples=801, window=256, hop=100, bands=13, floor=1e-4),
    Spectrogram(samples=1, window=64, hop=16, bands=8),
)


def for_network(sound: Spectrogram = USUAL, **changes: Any) -> Preprocessing:
    size = {"input_size": (1, sound.bands, sound.frames), "mean": (-7.0,), "std": (3.0,)}
    return Preprocessing(**(size | changes), sound=sound)


def clips(sound: Spectrogram = USUAL, count: int = 3) -> Tensor:
    """Hiss that swells, a tone, and silence."""
    draws = torch.Generator().manual_seed(0)
    time = torch.arange(sound.samples) / sound.rate
    hiss = torch.randn(sound.samples, generator=draws) * torch.linspace(1e-4, 0.5, sound.samples)
    tone = 0.4 * torch.sin(2 * torch.pi * 440 * time)
    return torch.stack([hiss, tone, torch.zeros(sound.samples)])[:count, None, None]


@pytest.mark.parametrize("sound", SHAPES, ids=["usual", "odd", "8 kHz", "one sample"])
def test_is_what_its_definition_says(sound: Spectrogram) -> None:
    waveforms = clips(sound)
    found = log_mel(waveforms[:, 0, 0], sound)
    settings = (sound.rate, sound.bands, sound.window, sound.hop, sound.floor)
    expected = np.stack([reference.log_mel(one[0, 0].double().numpy(), *settings) for one in waveforms])
    assert found.shape == (3, sound.bands, sound.frames)
    assert np.abs(found.numpy() - expected).max() < 2e-3  # float32, where the power is a millionth of the loudest
    preprocessing = for_network(sound)
    seen = normalise(waveforms, preprocessing)
    assert seen.shape == (3, *preprocessing.input_size)
    assert np.abs(seen[:, 0].numpy() - (expected + 7) / 3).max() < 1e-3


def test_is_what_librosa_computes() -> None:
    librosa = pytest.importorskip("librosa")
    waveforms = clips()
    theirs = librosa.feature.melspectrogram(
        y=waveforms[:, 0, 0].numpy(), sr=USUAL.rate, n_fft=USUAL.window, hop_length=USUAL.hop, n_mels=USUAL.bands
    )
    assert np.abs(log_mel(waveforms[:, 0, 0], USUAL).numpy() - np.log(theirs + USUAL.floor)).max() < 2e-3


def test_one_second_is_as_large_as_in_the_papers() -> None:
    assert (Spectrogram().bands, Spectrogram().frames) == (40, 101)
    assert Spectrogram().text == (
        "clips of 1 s at 16,000 Hz, 40 mel bands x 101 frames (window 25 ms, hop 10 ms), log(power + 1e-08)"
    )


def test_another_size_is_resized_to() -> None:
    preprocessing = for_network(input_size=(1, 64, 64))
    seen = normalise(clips(), preprocessing)
    assert seen.shape == (3, 1, 64, 64)
    whole = normalise(clips(), for_network())
    assert float(seen.mean()) == pytest.approx(float(whole.mean()), abs=0.05)


def test_records_of_networks_for_images_say_nothing_of_sound() -> None:
    images = Preprocessing(input_size=(3, 8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)
    assert "sound" not in images.model_dump_json()
    heard = for_network()
    assert Preprocessing.model_validate_json(heard.model_dump_json()) == heard
    assert hash(heard) == hash(for_network())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hop": 1, "samples": 1 << 22}, "more than 8,388,608 values"),
        ({"window": 1 << 16, "hop": 8}, "more than 8,388,608 values"),
        ({"rate": 0}, "greater than or equal to 1000"),
        ({"floor": 0.0}, "greater than 0"),
    ],
)
def test_a_record_that_would_fill_the_memory_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Spectrogram(**changes)


def test_a_spectrogram_has_one_channel() -> None:
    with pytest.raises(ValidationError, match="a spectrogram has one channel"):
        for_network(input_size=(3, 40, 26), mean=(0,) * 3, std=(1,) * 3)


# Augmentation -----------------------------------------------------------------------


def shifted(spec: str, clip: Tensor, seed: int, preprocessing: Preprocessing) -> Tensor:
    with seeded(seed):
        made = build_augmentation([spec], preprocessing).geometry(as_picture(clip.flatten().numpy(), USUAL.rate))
    return torch.from_numpy(np.array(made))[0]


def test_a_time_shift_moves_the_clip_and_leaves_silence() -> None:
    clip = clips(count=1).flatten()
    preprocessing, farthest = for_network(), round(0.1 * USUAL.samples)
    by = set()
    for seed in range(40):
        found = shifted("time-shift", clip, seed, preprocessing)
        places = found.nonzero().flatten()
        start = int(places[0]) if found[0] == 0 else -int((clip == found[0]).nonzero()[0])
        by.add(start)
        moved = torch.zeros_like(clip)
        if start >= 0:
            moved[start:] = clip[: len(clip) - start]
        else:
            moved[:start] = clip[-start:]
        assert torch.equal(found, moved)
    assert len(by) > 20
    assert max(map(abs, by)) <= farthest
    assert torch.equal(shifted("time-shift:most=0", clip, 0, preprocessing), clip)


def test_of_a_longer_clip_any_part_is_taken_and_in_evaluation_the_middle() -> None:
    clip = torch.arange(1, 3 * USUAL.samples + 1).float()
    starts = {int(shifted("time-shift:most=0", clip, seed, for_network())[0]) for seed in range(30)}
    assert min(starts) < USUAL.samples < max(starts) <= 2 * USUAL.samples + 1
    middle = evaluation_geometry(for_network())(as_picture(clip.numpy(), USUAL.rate))
    assert np.array(middle)[0, 0] == USUAL.samples + 1


def test_spec_augment_blanks_bands_and_time_within_its_shares() -> None:
    (operation,) = build_augmentation(["spec-augment:frequency=0.25,time=0.5"], for_network()).batch
    images, targets = torch.ones(400, 1, 20, 30), torch.rand(400, 3)
    found, labels = operation(images, targets, torch.Generator().manual_seed(0))
    assert labels is targets
    assert bool((images == 1).all())
    rows, columns = ((found == 0).all(dim).squeeze(1) for dim in (3, 2))
    assert torch.equal(found[:, 0] == 0, rows[:, :, None] | columns[:, None])
    for masked, largest in ((rows, 5), (columns, 15)):
        lengths = masked.sum(1)
        assert set(lengths.tolist()) == set(range(largest + 1))
        jumps = masked.float().diff(dim=1).abs().sum(1) + masked[:, 0] + masked[:, -1]
        assert bool((jumps[lengths > 0] == 2).all())  # one stretch
    again, _ = operation(images, targets, torch.Generator().manual_seed(0))
    assert torch.equal(found, again)


@pytest.mark.parametrize("name", ["standard", "randaugment", "strong", "gaussian-noise"])
def test_what_is_for_pictures_is_refused_for_sound(name: str) -> None:
    with pytest.raises(SurgeonError, match=f"'{name}' is for images, not for clips of sound") as caught:
        build_augmentation([name], for_network())
    assert "spec-augment and time-shift" in caught.value.hint


@pytest.mark.parametrize("name", ["time-shift", "spec-augment"])
def test_what_is_for_sound_is_refused_for_pictures(name: str) -> None:
    images = Preprocessing(input_size=(3, 8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)
    with pytest.raises(SurgeonError, match=f"'{name}' is for clips of sound, not for images"):
        build_augmentation([name], images)
    assert augments[name].facts()["works on"] == "clips of sound"


@pytest.mark.parametrize("name", list(views))
def test_views_are_of_images(name: str) -> None:
    with pytest.raises(SurgeonError, match="are for images, and this network takes clips of sound"):
        views_for(name, for_network())


# Conditions -------------------------------------------------------------------------


@pytest.mark.parametrize("snr", [-5, 0, 12.5, 40])
def test_white_noise_has_the_ratio_in_every_clip(snr: float) -> None:
    (asked,) = ask([f"white-noise:snr={snr}"])
    waveforms = clips()
    found = asked.apply(waveforms, torch.zeros(3, dtype=torch.int64), torch.arange(3))
    for clip, noisy in zip(waveforms[:2].double(), found[:2].double(), strict=True):
        assert reference.decibels(clip.numpy(), (noisy - clip).numpy()) == pytest.approx(snr, abs=1e-3)
    assert torch.equal(found[2], waveforms[2])  # over silence there is no ratio


def test_white_noise_of_a_clip_is_the_same_in_every_batch_and_another_for_another_seed() -> None:
    (asked,) = ask(["white-noise:snr=5"])
    waveforms, labels = clips(), torch.zeros(3, dtype=torch.int64)
    together = asked.apply(waveforms, labels, torch.tensor([7, 3, 9]))
    assert torch.equal(asked.apply(waveforms[1:2], labels[1:2], torch.tensor([3])), together[1:2])
    assert not torch.equal(asked.apply(waveforms, labels, torch.tensor([7, 3, 9]), seed=1), together)
    assert [one.name for one in ask(["white-noise"])] == [f"white-noise:snr={snr}" for snr in (20, 10, 0)]


def test_noise_is_added_before_the_spectrogram_is_taken() -> None:
    (asked,) = ask(["white-noise:snr=0"])
    preprocessing, waveforms = for_network(), clips()
    labels = torch.zeros(3, dtype=torch.int64)
    batch = Batch(normalise(waveforms, preprocessing), labels, torch.arange(3), signals={preprocessing: waveforms})
    condition = ConditionMaker().make(asked, preprocessing)
    assert condition is not None
    found = condition(batch)
    expected = normalise(asked.apply(waveforms, labels, torch.arange(3)), preprocessing)
    assert torch.equal(found.images, expected)
    assert float((found.images - batch.images)[:2].mean()) > 0.1  # louder


@pytest.mark.parametrize("spec", ["gaussian-noise:severity=1", "fgsm", "augment-cutout", "low-pass"])
def test_conditions_for_images_are_refused_for_sound(spec: str) -> None:
    (asked,) = ask([spec])[:1]
    with pytest.raises(SurgeonError, match="is for images, not for clips of sound") as caught:
        ConditionMaker().make(asked, for_network(), torch.nn.Identity())
    assert "Use white-noise." in caught.value.hint


def test_noise_at_a_ratio_is_refused_for_images() -> None:
    images = Preprocessing(input_size=(3, 8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)
    with pytest.raises(SurgeonError, match="is for clips of sound, not for images"):
        ConditionMaker().make(ask(["white-noise:snr=5"])[0], images)
