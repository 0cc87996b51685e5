"""Clips of every kind become waveforms of the rate and length that a network takes; what is damaged says so."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
import torchvision
from scipy.signal import resample_poly

from surgeon.core.errors import SurgeonError
from surgeon.data import clips as clips_module
from surgeon.data.clips import SoundSet, as_picture, taken_from
from surgeon.data.hearing import preprocessing_for
from surgeon.data.images import ImageFiles, ImageSet, UnreadableImageError
from surgeon.data.loaders import batches
from surgeon.data.opening import open_data
from surgeon.models.channels import with_channels
from surgeon.models.origin import Preprocessing
from surgeon.models.sources import build, load_model
from surgeon.models.spectrogram import Spectrogram
from tests.clips import chirping, encoded, tone

CLASSES = ("high", "hiss", "low")


def one(content: bytes, tmp_path: Path) -> SoundSet:
    (tmp_path / "clip.wav").write_bytes(content)
    return SoundSet.over(ImageFiles(tmp_path, ["clip.wav"]), [0], ["a"], name="one", split="test")


def waveform(clips: ImageSet, index: int = 0) -> Any:
    return np.asarray(clips.image(index))[0]


@pytest.mark.parametrize(
    ("form", "subtype", "precision"),
    [
        ("WAV", "PCM_U8", 1 / 128),
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_24", 1e-6),
        ("WAV", "FLOAT", 1e-7),
        ("WAV", "DOUBLE", 1e-7),
        ("FLAC", "PCM_16", 1e-4),
        ("FLAC", "PCM_24", 1e-6),
        ("OGG", "VORBIS", 0.05),
    ],
)
def test_files_of_every_kind(form: str, subtype: str, precision: float, tmp_path: Path) -> None:
    expected = tone(440)
    clips = one(encoded(expected, form=form, subtype=subtype), tmp_path)
    assert clips.image(0).mode == "F"
    assert clips.image(0).info["rate"] == 16_000
    assert np.abs(waveform(clips) - expected).max() < precision


def test_stereo_is_the_mean_of_both_channels(tmp_path: Path) -> None:
    left, right = tone(440), tone(1000)
    clips = one(encoded(np.stack([left, right], 1), subtype="FLOAT"), tmp_path)
    assert np.abs(waveform(clips) - (left + right) / 2).max() < 1e-7


def damaged() -> dict[str, tuple[bytes, str]]:
    wav, flac = encoded(tone(440)), encoded(tone(440), form="FLAC")
    slow = bytearray(wav)
    slow[24:28] = struct.pack("<I", 8)
    nan = encoded(np.array([0.0, np.nan, 0.1]), subtype="FLOAT")
    return {
        "nothing": (b"", "Format not recognised"),
        "text": (b"not a clip" * 10, "Format not recognised"),
        "no samples": (encoded(np.zeros(0)), "it holds no samples"),
        "half a header": (wav[:20], ""),
        "header alone": (wav[:44], "it holds no samples"),
        "flac of noise": (flac[:60] + b"\xff" * 200, ""),
        "eight hertz": (bytes(slow), "its sample rate of 8 Hz is implausible"),
        "not numbers": (nan, "it holds samples that are not numbers"),
    }


@pytest.mark.parametrize("kind", list(damaged()))
def test_a_damaged_clip_is_named_with_the_reason(kind: str, tmp_path: Path) -> None:
    content, reason = damaged()[kind]
    with pytest.raises(UnreadableImageError, match=r"The clip clip\.wav of one cannot be read: .+\.") as caught:
        one(content, tmp_path).image(0)
    assert reason in caught.value.message
    assert "--skip-bad" in caught.value.hint


def test_what_is_cut_off_is_silent_and_what_is_missing_is_skipped(tmp_path: Path) -> None:
    folder = chirping(tmp_path / "data", {"test": 2})
    (folder / "test/low/1.wav").write_bytes(b"RIFF")
    clips = open_data(str(folder), "test")
    sound = for_clips(3200)
    loader = batches(clips, sound, 4, skip_bad=True)
    assert sum(len(batch.images) for batch in loader) == 5
    assert loader.bad == ["test/low/1.wav of data"]
    with pytest.raises(UnreadableImageError):
        list(batches(clips, sound, 4))
    for file in folder.rglob("*.wav"):
        file.write_bytes(b"")
    with pytest.raises(SurgeonError, match="None of the 6 clips of 'data' can be read"):
        list(batches(clips, sound, 4, skip_bad=True))


def for_clips(samples: int, rate: int = 16_000) -> Preprocessing:
    sound = Spectrogram(rate=rate, samples=samples)
    return Preprocessing(input_size=(1, 40, sound.frames), mean=(0,), std=(1,), sound=sound)


def test_of_a_long_file_only_the_middle_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips_module, "LONGEST_SECONDS", 1)
    ramp = np.linspace(-0.9, 0.9, 40_000)
    for form in ("WAV", "FLAC"):
        found = waveform(one(encoded(ramp, form=form), tmp_path))
        assert np.abs(found - ramp[12_000:28_000]).max() < 1e-4


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000, 15_999])
def test_other_rates_are_resampled(rate: int) -> None:
    wanted = Spectrogram(samples=8000)
    heard = tone(440, 1, rate)
    found = taken_from(as_picture(heard, rate), wanted)
    expected = tone(440, 1)[4000:12_000]
    assert np.abs(found - expected).max() < 2e-3
    # The same as resampling all of it, of which only a part is needed.
    divisor = np.gcd(rate, 16_000)
    whole = resample_poly(heard.astype(np.float32), 16_000 // divisor, rate // divisor)
    start = round((len(whole) - 8000) / 2)
    assert np.abs(found - whole[start : start + 8000]).max() < 1e-4


@pytest.mark.parametrize("rate", [16_000, 8000, 44_100])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_shorter_clips_lie_in_silence(rate: int, share: float) -> None:
    wanted = Spectrogram(samples=8000)
    found = taken_from(as_picture(tone(440, 0.25, rate), rate), wanted, share)
    sounding = np.flatnonzero(np.abs(found) > 0.01)
    first, last = round(share * 4000), round(share * 4000) + 4000
    assert abs(sounding[0] - first) < 60
    assert abs(sounding[-1] - last) < 60
    one_sample = taken_from(as_picture(np.array([0.5], dtype=np.float32), rate), wanted)
    assert one_sample.shape == (8000,)
    assert 0 < np.abs(one_sample).max() <= 0.6


def test_it_is_said_how_many_have_another_rate_or_length(tmp_path: Path) -> None:
    folder = chirping(tmp_path / "data", {"test": 2})
    (folder / "test/low/0.wav").write_bytes(encoded(tone(440, 0.2, 8000), 8000))
    (folder / "test/low/1.wav").write_bytes(encoded(tone(440, 0.5, 44_100), 44_100))
    (folder / "test/high/1.wav").write_bytes(encoded(tone(440, 0.1)))
    clips = open_data(str(folder))
    assert clips.remarks(for_clips(3200)) == (
        "2 of 6 clips resampled to 16,000 Hz, from 8,000 and 44,100 Hz.",
        "1 of 6 clips shorter than 0.2 s: padded with silence at both ends.",
        "1 of 6 clips longer than 0.2 s: only the middle is taken.",
    )
    assert clips.subset([0, 2, 3]).remarks(for_clips(3200)) == ()


def test_length_and_loudness_come_from_the_clips_given(tmp_path: Path) -> None:
    folder = chirping(tmp_path / "data", {"train": 3, "test": 2})
    (folder / "train/low/0.wav").write_bytes(b"")  # which training itself will refuse
    found = preprocessing_for(open_data(str(folder), "train"))
    assert found.sound == Spectrogram(samples=3200)
    assert found.input_size == (1, 40, 21)
    train = open_data(str(folder), "train").subset([0, 1, 2, 3, 4, 5, 7, 8])
    seen = torch.cat([batch.images for batch in batches(train, found, 3)])
    assert float(seen.mean()) == pytest.approx(0, abs=1e-4)
    assert float(seen.std()) == pytest.approx(1, abs=1e-3)
    for file in (folder / "train").rglob("*.wav"):
        file.write_bytes(encoded(np.zeros(3200)))
    with pytest.raises(SurgeonError, match="The training clips of 'data' are all silent"):
        preprocessing_for(open_data(str(folder), "train"))


# Sources ----------------------------------------------------------------------------


def test_folders_of_classes(tmp_path: Path) -> None:
    folder = chirping(tmp_path / "data", {"train": 2, "test": 1}, form="FLAC")
    clips = open_data(str(folder))
    assert isinstance(clips, SoundSet)
    assert isinstance(clips.subset([0]).without_labels(), SoundSet)
    assert (clips.split, clips.class_names, len(clips)) == ("test", ("high", "hiss", "low"), 3)
    assert isinstance(open_data(str(folder / "train" / "low"), labelled=False), SoundSet)
    (folder / "test" / "low" / "x.png").write_bytes(b"")
    with pytest.raises(SurgeonError, match=r"holds both images and clips of sound, such as test/low/x\.png and"):
        open_data(str(folder))


def table(column: str, kind: Any) -> datasets.Dataset:
    cells = [{"bytes": encoded(tone(frequency)), "path": None} for frequency in (300, 600, 1200)]
    features = datasets.Features({column: kind, "label": datasets.ClassLabel(names=["a", "b"])})
    return datasets.Dataset.from_dict({column: cells, "label": [0, 1, 0]}, features=features)


PLAIN = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}


@pytest.mark.parametrize(
    ("column", "kind", "given"),
    [
        ("audio", PLAIN, None),
        ("recording", datasets.Audio(), None),
        ("recording", datasets.Audio(sampling_rate=8000), "recording"),
        ("audio", datasets.Audio(), None),
    ],
    ids=["by name", "declared", "declared with a rate", "both"],
)
def test_tables_with_a_column_of_clips(
    column: str, kind: Any, given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    file = tmp_path / "data" / "test-00000-of-00001.parquet"
    file.parent.mkdir()
    table(column, PLAIN).cast(table(column, PLAIN).features).to_parquet(file)
    if kind is not PLAIN:  # without the package that would decode them, the library writes no such table itself
        import pyarrow.parquet as parquet

        found = parquet.read_table(file)
        features = datasets.Features({column: kind, "label": datasets.ClassLabel(names=["a", "b"])})
        found = found.replace_schema_metadata(features.arrow_schema.metadata)
        parquet.write_table(found, file)
    clips = open_data(str(tmp_path / "data"), image_column=given)
    assert isinstance(clips, SoundSet)
    assert clips.labels.tolist() == [0, 1, 0]
    assert np.abs(waveform(clips, 1) - tone(600)).max() < 1e-4


def test_a_union_is_of_clips_or_of_images(tmp_path: Path) -> None:
    first, second = (chirping(tmp_path / name, {"test": 1}) for name in ("first", "second"))
    both = open_data(f"union:{first}+{second}")
    assert isinstance(both, SoundSet)
    assert both.class_names == tuple(f"{name}/{label}" for name in ("first", "second") for label in CLASSES)
    assert both.image(5).mode == "F"
    with pytest.raises(SurgeonError, match="'digits' holds images and 'first' holds clips of sound"):
        open_data(f"union:digits+{first}")


def test_without_the_decoder_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = chirping(tmp_path / "data", {"test": 1})
    found = importlib.util.find_spec
    monkeypatch.setattr(clips_module, "find_spec", lambda name: None if name == "soundfile" else found(name))
    with pytest.raises(SurgeonError, match="Clips of sound need soundfile") as caught:
        open_data(str(folder))
    assert caught.value.hint == "Run: pip install 'norm-surgeon[audio]'"


# Networks ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "densenet121", "googlenet"])
def test_a_network_of_torchvision_for_one_channel_sums_over_colours(name: str) -> None:
    extra = {"googlenet": {"init_weights": False, "transform_input": False}}.get(name, {})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        colours = torchvision.models.get_model(name, **extra).eval()
    grey = with_channels(build_copy(colours, name, extra), 1, name).eval()
    images = torch.randn(2, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected, found = colours(images.expand(-1, 3, -1, -1)), grey(images)
    assert (found - expected).abs().max() < 1e-3 * expected.abs().max()


def build_copy(network: torch.nn.Module, name: str, extra: dict[str, Any]) -> torch.nn.Module:
    copy = torchvision.models.get_model(name, **extra)
    copy.load_state_dict(network.state_dict())
    return copy


def test_its_source_builds_it_again() -> None:
    loaded = load_model("torchvision:resnet18", pretrained=False)
    assert loaded.origin.source is not None
    source = loaded.origin.source.model_copy(update={"arguments": {"num_classes": 5, "in_chans": 1}})
    assert build(source)(torch.zeros(1, 1, 40, 101)).shape == (1, 5)


def test_other_numbers_of_channels_are_refused() -> None:
    with pytest.raises(SurgeonError, match="'net' cannot be built for images with 2 channels"):
        with_channels(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)), 2, "net")
