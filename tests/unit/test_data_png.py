"""Plain PNG files are read without a picture, to the same bytes; all others are left to Pillow."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterable
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, PngImagePlugin

from surgeon.core.errors import SurgeonError
from surgeon.data import png
from surgeon.data.images import ImageFiles, ImageSet, PixelArrays
from surgeon.data.loaders import batches
from surgeon.data.png import PlainPngs
from surgeon.models.origin import Preprocessing

HEIGHT, WIDTH = 9, 14


@pytest.fixture(params=["compiled", "Pillow"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of undoing the filters of lines."""
    if request.param == "Pillow":
        monkeypatch.setattr(png, "_kernel", lambda: None)
    elif png._kernel() is None:
        pytest.skip("no kernel was compiled")


def read(content: bytes, size: tuple[int, int, int] = (3, HEIGHT, WIDTH)) -> torch.Tensor | None:
    """One file as it is read among others."""
    plain = PlainPngs(size)
    compressed = plain.compressed(content)
    return None if compressed is None else plain.pixels([compressed])


def preprocessing(channels: int, crop_pct: float = 1.0) -> Preprocessing:
    return Preprocessing(
        input_size=(channels, HEIGHT, WIDTH), mean=(0.4,) * channels, std=(0.3,) * channels, crop_pct=crop_pct
    )


def pixels(seed: int, channels: int) -> np.ndarray:
    """Noise on a gradient, so that lines are filtered in several ways."""
    random = np.random.default_rng(seed)
    shape = (HEIGHT, WIDTH) if channels == 1 else (HEIGHT, WIDTH, channels)
    ramp = np.linspace(0, 200, np.prod(shape)).reshape(shape)
    return (ramp + random.integers(0, 1 + 50 * (seed % 2), shape)).astype(np.uint8)


def stored(image: Image.Image, **options: object) -> bytes:
    stream = BytesIO()
    image.save(stream, "PNG", **options)
    return stream.getvalue()


def written(image: np.ndarray, filters: Iterable[int], lines: bytes | None = None) -> bytes:
    """A file whose lines have the filters of the PNG specification (section 9.2), in turn, or other lines."""
    values = image.reshape(*image.shape[:2], -1).astype(int)
    around = np.pad(values, ((1, 0), (1, 0), (0, 0)))
    left, above, corner = around[1:, :-1], around[:-1, 1:], around[:-1, :-1]
    estimate = left + above - corner
    far = [np.abs(estimate - one) for one in (left, above, corner)]
    paeth = np.where(
        (far[0] <= far[1]) & (far[0] <= far[2]), left, np.where(far[1] <= far[2], above, corner)
    )  # ties: left, above, corner
    predictions = [np.zeros_like(values), left, above, (left + above) // 2, paeth]
    kinds = list(islice(cycle(filters), len(values)))
    filtered = b"".join(
        bytes([kind]) + ((values[i] - predictions[min(kind, 4)][i]) % 256).astype(np.uint8).tobytes()
        for i, kind in enumerate(kinds)
    )
    header = struct.pack(">IIBBBBB", image.shape[1], image.shape[0], 8, 0 if image.ndim == 2 else 2, 0, 0, 0)
    chunks = (b"IHDR" + header, b"IDAT" + zlib.compress(filtered if lines is None else lines), b"IEND")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("filters", [[0], [1], [2], [3], [4], [4, 3, 2, 1, 0], [2, 4], [3, 1]], ids=str)
def test_every_filter_is_undone(channels: int, filters: list[int]) -> None:
    for seed in range(4):
        image = pixels(seed, channels)
        content = written(image, filters)
        assert np.array_equal(np.asarray(Image.open(BytesIO(content))), image)
        found = read(content, (channels, HEIGHT, WIDTH))
        assert found is not None
        assert np.array_equal(found[0].squeeze(2).numpy(), image)


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("channels", [1, 3])
def test_files_are_read_together(channels: int) -> None:
    images = [pixels(seed, channels) for seed in range(20)]
    plain = PlainPngs((channels, HEIGHT, WIDTH))
    compressed = [
        plain.compressed(stored(Image.fromarray(image), compress_level=i % 10)) for i, image in enumerate(images)
    ]
    found = plain.pixels([one for one in compressed if one is not None])
    assert found is not None
    assert np.array_equal(found.numpy().squeeze(3) if channels == 1 else found.numpy(), np.stack(images))


LINES = HEIGHT * (1 + 3 * WIDTH)


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize(
    "lines",
    [
        b"",
        bytes(LINES - 1),
        bytes([5]) + bytes(LINES - 1),
        bytes(LINES - 1 - 3 * WIDTH) + bytes([255]) + bytes(3 * WIDTH),
    ],
    ids=["nothing", "too short", "an unknown filter", "an unknown filter at the end"],
)
def test_lines_that_are_none(lines: bytes) -> None:
    image = pixels(1, 3)
    plain = PlainPngs((3, HEIGHT, WIDTH))
    whole, other = plain.compressed(written(image, [0])), plain.compressed(written(image, [0], lines))
    assert whole is not None
    assert other is not None
    assert plain.pixels([whole, whole]) is not None
    assert plain.pixels([whole, other]) is None


def peak_kilobytes() -> int:
    """The most memory that this process has had."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux tells how much memory there was")
    return int(status.read_text().partition("VmHWM:")[2].split()[0])


@pytest.mark.usefixtures("decoder")
def test_what_expands_without_end_is_not_expanded() -> None:
    """Fifty megabytes in a file of fifty kilobytes: no more of them is in memory than the header says."""
    content = written(pixels(1, 3), [0], bytes(50_000_000))
    before = peak_kilobytes()
    read(content)
    assert peak_kilobytes() - before < 25_000


def with_chunk(content: bytes, kind: bytes, data: bytes) -> bytes:
    """A file with a chunk before its pixels."""
    chunk = kind + data
    return content[:33] + struct.pack(">I", len(data)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + content[33:]


def noted(content: bytes) -> bytes:
    text = PngImagePlugin.PngInfo()
    text.add_text("Comment", "hello")
    return stored(Image.open(BytesIO(content)), pnginfo=text)


OTHERS: dict[str, Callable[[bytes], bytes]] = {
    "palette": lambda content: stored(Image.open(BytesIO(content)).quantize(8)),
    "alpha": lambda content: stored(Image.open(BytesIO(content)).convert("RGBA")),
    "grey": lambda content: stored(Image.open(BytesIO(content)).convert("L")),
    "16 bits": lambda _: stored(Image.fromarray(np.full((HEIGHT, WIDTH), 40_000, np.uint16))),
    "gamma": lambda content: with_chunk(content, b"gAMA", struct.pack(">I", 10_000)),
    "transparent colour": lambda content: with_chunk(content, b"tRNS", bytes(6)),
    "text": noted,
    "another size": lambda content: stored(Image.open(BytesIO(content)).crop((0, 0, WIDTH - 1, HEIGHT))),
    "JPEG": lambda content: _jpeg(Image.open(BytesIO(content))),
    "cut off": lambda content: content[:-20],
    "cut off in the header": lambda content: content[:30],
    "something after the end": lambda content: content + b"\0",
    "damaged pixels": lambda content: content[:60] + bytes([content[60] ^ 255]) + content[61:],
    "nothing": lambda _: b"",
}


def _jpeg(image: Image.Image) -> bytes:
    stream = BytesIO()
    image.save(stream, "JPEG")
    return stream.getvalue()


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("kind", OTHERS)
def test_other_files_are_left_to_pillow(kind: str) -> None:
    content = stored(Image.fromarray(pixels(1, 3)))
    assert read(content) is not None
    assert read(OTHERS[kind](content)) is None


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("crop_pct", [1.0, 0.8])
@pytest.mark.parametrize("in_turns", [False, True])
def test_batches_are_those_of_pictures(channels: int, crop_pct: float, in_turns: bool) -> None:
    source = PixelArrays(np.stack([pixels(seed, 3) for seed in range(10)]))
    images = ImageSet.over(source, range(10), map(str, range(10)), name="noise", split="test")  # type: ignore[arg-type]
    quick = batches(images, preprocessing(channels, crop_pct), 4, in_turns=in_turns)
    slow = batches(images, preprocessing(channels, crop_pct), 4, keep_pictures=True)
    for one, other in zip(quick, slow, strict=True):
        assert torch.equal(one.images, other.images)
        assert one.images.stride() == other.images.stride()
        assert one.indices.tolist() == other.indices.tolist()
        assert not one.pictures


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("in_turns", [False, True])
def test_a_set_may_mix_plain_files_with_others(tmp_path: Path, in_turns: bool) -> None:
    content = stored(Image.fromarray(pixels(1, 3)))
    for number, change in enumerate(OTHERS.values()):
        (tmp_path / f"{number}.png").write_bytes(change(content))
        (tmp_path / f"{number}-plain.png").write_bytes(content)
    for number in range(7):  # so that the first batch is a plain one
        (tmp_path / f"0-{number}.png").write_bytes(content)
    names = sorted(path.name for path in tmp_path.iterdir())
    images = ImageSet.over(ImageFiles(tmp_path, names), [0] * len(names), ["0"], name="mixed", split="test")
    quick = batches(images, preprocessing(3), 5, skip_bad=True, in_turns=in_turns)
    slow = batches(images, preprocessing(3), 5, skip_bad=True, keep_pictures=True)
    assert torch.equal(torch.cat([one.images for one in quick]), torch.cat([one.images for one in slow]))
    assert quick.bad == slow.bad
    assert len(quick.bad) >= 3
    with pytest.raises(SurgeonError) as error:
        list(batches(images, preprocessing(3), 5, in_turns=in_turns))
    with pytest.raises(SurgeonError) as expected:
        list(batches(images, preprocessing(3), 5, keep_pictures=True))
    assert str(error.value) == str(expected.value)


def test_small_images_are_decoded_in_turns_without_threads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    source = PixelArrays(np.stack([pixels(seed, 3) for seed in range(10)]))
    images = ImageSet.over(source, range(10), map(str, range(10)), name="noise", split="test")  # type: ignore[arg-type]
    threads: list[str] = []
    original = PixelArrays.read

    def noting(self: PixelArrays, position: int) -> bytes:
        threads.append(threading.current_thread().name)
        return original(self, position)

    monkeypatch.setattr(PixelArrays, "read", noting)
    read_so_far = [len(threads) for _ in batches(images, preprocessing(3), 4, in_turns=True)]
    assert read_so_far == [4, 8, 10]
    assert set(threads) == {threading.current_thread().name}
    threads.clear()
    list(batches(images, preprocessing(3), 4))
    assert all(name.startswith("decode") for name in threads)
