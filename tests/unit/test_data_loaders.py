"""Batches come in order, once, from a bounded number of threads that end with the loop."""

from __future__ import annotations

import threading
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from surgeon.core.errors import SurgeonError
from surgeon.data.images import ImageFiles, ImageSet, PixelArrays, UnreadableImageError
from surgeon.data.loaders import BATCHES_AHEAD, batches
from surgeon.models.origin import Preprocessing

GREY = Preprocessing(input_size=(1, 4, 4), mean=(0.0,), std=(1.0,))
COLOUR = Preprocessing(input_size=(3, 4, 4), mean=(0.0,) * 3, std=(1.0,) * 3)


class CountedReads(PixelArrays):
    """Remembers which images were read."""

    def __init__(self, size: int) -> None:
        super().__init__(np.broadcast_to(np.arange(size, dtype=np.uint8)[:, None, None], (size, 4, 4)).copy())
        self.reads: list[int] = []

    def read(self, position: int) -> bytes:
        self.reads.append(position)
        return super().read(position)


def numbered(size: int) -> tuple[ImageSet, CountedReads]:
    """Image i is filled with the shade i and has the label i."""
    source = CountedReads(size)
    return ImageSet.over(source, range(size), map(str, range(size)), name="numbers", split="test"), source  # type: ignore[arg-type]


def decoding_threads() -> int:
    return sum(thread.name.startswith("decode") for thread in threading.enumerate())


@pytest.mark.parametrize("batch_size", [1, 7, 40, 100])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_image_comes_once_and_in_order(batch_size: int, workers: int) -> None:
    images, source = numbered(90)
    loader = batches(images, GREY, batch_size, workers)
    seen = list(loader)
    assert len(seen) == len(loader)
    assert [len(batch.labels) for batch in seen[:-1]] == [batch_size] * (len(seen) - 1)
    for part in ("labels", "indices"):
        assert torch.equal(torch.cat([getattr(batch, part) for batch in seen]), torch.arange(90))
    shades = torch.cat([batch.images[:, 0, 0, 0] for batch in seen])
    assert torch.equal((shades * 255).round().long(), torch.arange(90))
    assert sorted(source.reads) == list(range(90))
    assert decoding_threads() == 0


def test_batches_are_channels_last_floats() -> None:
    images, _ = numbered(5)
    (batch,) = batches(images, COLOUR, 8)
    assert batch.images.dtype == torch.float32
    assert batch.images.shape == (5, 3, 4, 4)
    assert batch.images.is_contiguous(memory_format=torch.channels_last)


def test_one_image() -> None:
    images, _ = numbered(1)
    (batch,) = batches(images, GREY, 32)
    assert batch.images.shape == (1, 1, 4, 4)


def test_a_subset_keeps_its_order() -> None:
    images, _ = numbered(10)
    (batch,) = batches(images.subset([7, 2, 5]), GREY, 32)
    assert batch.labels.tolist() == [7, 2, 5]
    assert batch.indices.tolist() == [0, 1, 2]


def test_decoding_stays_a_bounded_number_of_batches_ahead() -> None:
    images, source = numbered(200)
    iterator = iter(batches(images, GREY, 10))
    next(iterator)
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert len(source.reads) <= (2 + BATCHES_AHEAD) * 10


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_no_thread_survives_an_interrupted_loop(interruption: type[BaseException]) -> None:
    images, source = numbered(200)

    def stop_at_the_second_batch() -> None:
        for number, _ in enumerate(batches(images, GREY, 10)):
            if number == 1:
                raise interruption

    with pytest.raises(interruption):
        stop_at_the_second_batch()
    assert decoding_threads() == 0
    assert len(source.reads) < 200


def test_a_loop_can_be_left_early() -> None:
    images, _ = numbered(200)
    for _ in batches(images, GREY, 10):
        break
    assert decoding_threads() == 0


def damaged_folder(root: Path, bad: set[int], size: int = 6) -> ImageSet:
    stream = BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(stream, "JPEG")
    for number in range(size):
        (root / f"{number}.jpg").write_bytes(stream.getvalue()[: 500 if number in bad else None])
    files = ImageFiles(root, [f"{number}.jpg" for number in range(size)])
    return ImageSet.over(files, [0] * size, ["thing"], name="photos", split="test")


def test_a_truncated_image_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImageError, match=r"The image 3\.jpg of photos cannot be read: Truncated.*--skip-bad"):
        list(batches(damaged_folder(tmp_path, {3}), COLOUR, 4))


def test_several_bad_images_of_a_batch_are_counted(tmp_path: Path) -> None:
    said = r"2 images of one batch cannot be read: 1\.jpg of photos and 3\.jpg.* remove them"
    with pytest.raises(SurgeonError, match=said):
        list(batches(damaged_folder(tmp_path, {1, 3}), COLOUR, 6))


def test_bad_images_can_be_skipped_and_are_listed(tmp_path: Path) -> None:
    loader = batches(damaged_folder(tmp_path, {0, 1, 3}), COLOUR, 2, skip_bad=True)
    assert [batch.indices.tolist() for batch in loader] == [[], [2], [4, 5]]
    assert loader.bad == ["0.jpg of photos", "1.jpg of photos", "3.jpg of photos"]
    assert len(list(loader)) == 3
    assert len(loader.bad) == 3


def test_nothing_but_bad_images_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SurgeonError, match="None of the 6 images of 'photos' can be read"):
        list(batches(damaged_folder(tmp_path, set(range(6))), COLOUR, 4, skip_bad=True))


def test_a_vanished_and_an_empty_file(tmp_path: Path) -> None:
    images = damaged_folder(tmp_path, set())
    (tmp_path / "0.jpg").unlink()
    (tmp_path / "1.jpg").write_bytes(b"")
    with pytest.raises(UnreadableImageError, match="No such file"):
        images.image(0)
    with pytest.raises(UnreadableImageError, match="not an image"):
        images.image(1)
    assert images.fingerprint


def test_a_batch_size_of_nothing_is_refused() -> None:
    with pytest.raises(SurgeonError, match="batch size cannot be 0"):
        batches(numbered(3)[0], GREY, 0)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells how many threads there are")
def test_threads_that_decode_start_no_threads_of_their_own() -> None:
    """As torch's would be: with more threads than cores, all of them wait less patiently for one another."""

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    pictures = np.random.default_rng(0).integers(0, 255, (64, 180, 180, 3), np.uint8)
    images = ImageSet.over(PixelArrays(pictures), range(64), map(str, range(64)), name="noise", split="test")  # type: ignore[arg-type]
    large = Preprocessing(input_size=(3, 160, 160), mean=(0.5,) * 3, std=(0.5,) * 3)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        torch.ones(1_000_000).add_(1)  # those of this thread
        already = threads()
        assert all(threads() <= already + 2 for _ in batches(images, large, 32, workers=2))
    finally:
        torch.set_num_threads(before)
