"""Plain PNG files are read without a picture, to the same bytes; all others are left to Pillow."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, PngImagePlugin

from surgeon.core.errors import SurgeonError
from surgeon.data.images import ImageFiles, ImageSet, PixelArrays
from surgeon.data.loaders import batches
from surgeon.data.png import PlainPngs
from surgeon.models.origin import Preprocessing

HEIGHT, WIDTH = 9, 14


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


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_pixels_are_those_of_pillow(channels: int, seed: int) -> None:
    image = Image.fromarray(pixels(seed, channels))
    found = PlainPngs((channels, HEIGHT, WIDTH))(stored(image, compress_level=seed % 10))
    assert found is not None
    assert np.array_equal(found.permute(1, 2, 0).squeeze(2).numpy(), np.asarray(image))


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


@pytest.mark.parametrize("kind", OTHERS)
def test_other_files_are_left_to_pillow(kind: str) -> None:
    content = stored(Image.fromarray(pixels(1, 3)))
    plain = PlainPngs((3, HEIGHT, WIDTH))
    assert plain(content) is not None
    assert plain(OTHERS[kind](content)) is None


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("crop_pct", [1.0, 0.8])
def test_batches_are_those_of_pictures(channels: int, crop_pct: float) -> None:
    source = PixelArrays(np.stack([pixels(seed, 3) for seed in range(10)]))
    images = ImageSet.over(source, range(10), map(str, range(10)), name="noise", split="test")  # type: ignore[arg-type]
    quick = batches(images, preprocessing(channels, crop_pct), 4)
    slow = batches(images, preprocessing(channels, crop_pct), 4, keep_pictures=True)
    for one, other in zip(quick, slow, strict=True):
        assert torch.equal(one.images, other.images)
        assert one.images.stride() == other.images.stride()
        assert one.indices.tolist() == other.indices.tolist()
        assert not one.pictures


def test_a_set_may_mix_plain_files_with_others(tmp_path: Path) -> None:
    content = stored(Image.fromarray(pixels(1, 3)))
    for number, change in enumerate(OTHERS.values()):
        (tmp_path / f"{number}.png").write_bytes(change(content))
        (tmp_path / f"{number}-plain.png").write_bytes(content)
    names = sorted(path.name for path in tmp_path.iterdir())
    images = ImageSet.over(ImageFiles(tmp_path, names), [0] * len(names), ["0"], name="mixed", split="test")
    quick = batches(images, preprocessing(3), 5, skip_bad=True)
    slow = batches(images, preprocessing(3), 5, skip_bad=True, keep_pictures=True)
    assert torch.equal(torch.cat([one.images for one in quick]), torch.cat([one.images for one in slow]))
    assert quick.bad == slow.bad
    assert len(quick.bad) >= 3
    with pytest.raises(SurgeonError) as error:
        list(batches(images, preprocessing(3), 5))
    with pytest.raises(SurgeonError) as expected:
        list(batches(images, preprocessing(3), 5, keep_pictures=True))
    assert str(error.value) == str(expected.value)
