"""Real clips: they are opened as they are described, and nothing has to be done to their rate and length."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from surgeon.data.clips import SoundSet
from surgeon.data.hearing import preprocessing_for
from surgeon.data.loaders import batches
from surgeon.data.opening import open_data
from surgeon.models.spectrogram import Spectrogram


def test_speech_commands(shared: Path) -> None:
    folder = str(shared / "data" / "speech-commands")
    parts = {split: open_data(folder, split) for split in ("train", "validation", "test")}
    assert {split: len(clips) for split, clips in parts.items()} == {"train": 2012, "validation": 578, "test": 462}
    assert all(isinstance(clips, SoundSet) and len(clips.class_names) == 12 for clips in parts.values())
    heard = preprocessing_for(parts["train"].subset(np.arange(200)))
    assert heard.sound == Spectrogram()
    assert heard.input_size == (1, 40, 101)
    assert parts["test"].remarks(heard) == ()
    (batch,) = batches(parts["test"].subset(np.arange(50)), heard, 50)
    assert abs(float(batch.images.mean())) < 0.5
    assert 0.5 < float(batch.images.std()) < 2
