"""What works on single images: every registered operation, and the policies of the papers."""

from __future__ import annotations

import random
import threading
from contextlib import suppress

import numpy as np
import pytest
import torch
from PIL import Image

from surgeon.augment.base import ImageOperation, Kind, augments
from surgeon.augment.geometry import fill_colour
from surgeon.augment.pipeline import build_augmentation
from surgeon.core.errors import SurgeonError
from surgeon.data.seeding import seed_from, seeded
from surgeon.models.origin import Preprocessing

OF_IMAGES = [name for name in augments if augments[name].kind is Kind.IMAGE]
SIZES = [(3, 32, 32), (1, 28, 28), (1, 8, 8), (3, 64, 48), (3, 224, 224)]


def preprocessing(size: tuple[int, ...] = (3, 32, 32)) -> Preprocessing:
    return Preprocessing(input_size=size, mean=(0.5,) * size[0], std=(0.25,) * size[0])


def picture(size: tuple[int, ...]) -> Image.Image:
    """Smooth shapes and some noise, as photographs have."""
    channels, height, width = size
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    noise = np.random.default_rng(0).normal(size=(height, width, 3), scale=8)
    pixels = 128 + 90 * np.stack([np.sin(7 * x), np.cos(5 * y), np.sin(4 * (x + y))], axis=-1) + noise
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).convert("L" if channels == 1 else "RGB")


def operation(name: str, size: tuple[int, ...], **options: object) -> ImageOperation:
    made: ImageOperation = augments[name].build(augments[name].configure(options), preprocessing(size))
    return made


def results(apply: ImageOperation, image: Image.Image, number: int = 30) -> list[bytes]:
    found = []
    for index in range(number):
        with seeded(0, index):
            found.append(apply(image).tobytes())
    return found


def test_there_are_some() -> None:
    assert {"randaugment", "autoaugment", "augmix", "gaussian-noise", "colour-jitter"} <= set(OF_IMAGES)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", OF_IMAGES)
class TestEveryOperation:
    def test_keeps_size_and_mode_and_leaves_its_input_alone(self, name: str, size: tuple[int, ...]) -> None:
        image, apply = picture(size), operation(name, size)
        before = image.tobytes()
        for index in range(30):
            with seeded(index):
                result = apply(image)
            assert (result.size, result.mode) == (image.size, image.mode)
        assert image.tobytes() == before

    def test_is_reproducible_and_changes_something(self, name: str, size: tuple[int, ...]) -> None:
        image, apply = picture(size), operation(name, size)
        first = results(apply, image)
        assert first == results(apply, image) == results(operation(name, size), image)
        assert len(set(first)) > 10
        assert sum(result != image.tobytes() for result in first) > 10


@pytest.mark.parametrize("magnitude", range(3, 31))
def test_every_operation_of_randaugment_takes_every_magnitude(magnitude: int) -> None:
    for step in operation("randaugment", (3, 32, 32), magnitude=magnitude).ops:  # type: ignore[attr-defined]
        assert step(picture((3, 32, 32))).size == (32, 32)


@pytest.mark.parametrize("name", OF_IMAGES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (30, 1)])
def test_tiny_images(name: str, shape: tuple[int, int]) -> None:
    apply = operation(name, (3, *shape))
    for index in range(20):
        with seeded(index):
            assert apply(picture((3, *shape))).size == shape[::-1]


def test_gaussian_noise_has_the_deviation_that_was_asked_for() -> None:
    grey = Image.new("RGB", (200, 200), (128, 128, 128))
    with seeded(0):
        pixels = np.asarray(operation("gaussian-noise", (3, 200, 200), sigma=0.1)(grey)).astype(float) / 255
    assert pixels.std() == pytest.approx(0.1, rel=0.02)
    assert pixels.mean() == pytest.approx(128 / 255, abs=0.002)
    assert abs(np.corrcoef(pixels[..., 0].ravel(), pixels[..., 1].ravel())[0, 1]) < 0.02


def test_gaussian_noise_is_clipped_not_wrapped() -> None:
    with seeded(0):
        pixels = np.asarray(operation("gaussian-noise", (1, 50, 50))(Image.new("L", (50, 50), 255)))
    assert pixels.min() > 40
    assert (pixels == 255).mean() == pytest.approx(0.5, abs=0.05)


def test_magnitude_and_number_of_operations_matter() -> None:
    image = picture((3, 64, 64))

    def distance(**options: object) -> float:
        apply = operation("randaugment", (3, 64, 64), **options)
        pixels = np.frombuffer(b"".join(results(apply, image, 60)), np.uint8).reshape(60, -1).astype(float)
        return float(np.abs(pixels - np.frombuffer(image.tobytes(), np.uint8)).mean())

    assert distance(magnitude=5) < distance(magnitude=9) < distance(magnitude=14)
    assert distance(num_ops=1) < distance(num_ops=4)
    with pytest.raises(SurgeonError, match="magnitude=2"):
        distance(magnitude=2)


def test_randaugment_is_told_the_colour_and_the_size() -> None:
    for size in ((3, 32, 32), (1, 32, 32)):
        made = operation("randaugment", size)
        for step in made.ops:  # type: ignore[attr-defined]
            expected = fill_colour(preprocessing(size))
            assert step.kwargs["fillcolor"] == (expected if size[0] == 3 else expected[0])
            assert step.hparams["translate_const"] == 14
            assert (step.prob, step.magnitude_std) == (1, 0)


def test_autoaugment_chooses_the_policy_by_size() -> None:
    assert operation("autoaugment", (3, 32, 32)).policy.value == "cifar10"  # type: ignore[attr-defined]
    assert operation("autoaugment", (3, 224, 224)).policy.value == "imagenet"  # type: ignore[attr-defined]
    assert operation("autoaugment", (3, 32, 32), policy="svhn").policy.value == "svhn"  # type: ignore[attr-defined]
    with pytest.raises(SurgeonError, match="policy='mnist'"):
        operation("autoaugment", (3, 32, 32), policy="mnist")


@pytest.mark.parametrize(
    ("name", "size", "specs"),
    [
        ("weak", 32, ("standard:flip=True", "cutout")),
        ("weak", 224, ("standard:flip=True", "cutout")),
        ("strong", 32, ("standard:flip=True", "randaugment:num_ops=3,magnitude=5")),
        ("strong", 224, ("standard:flip=True", "randaugment:num_ops=2,magnitude=9")),
    ],
)
def test_policies_have_the_values_of_the_papers(name: str, size: int, specs: tuple[str, ...]) -> None:
    policy = augments[name]
    assert policy.build(policy.configure({}), preprocessing((3, size, size))) == specs


@pytest.mark.parametrize(("size", "hole"), [(32, 16), (224, 90)])
def test_the_hole_of_the_weak_policy(size: int, hole: int) -> None:
    (cut,) = build_augmentation(["weak"], preprocessing((3, size, size))).batch
    images, _ = cut(torch.ones(200, 3, size, size), torch.eye(200), torch.Generator().manual_seed(0))
    blank = images[:, 0] == 0
    assert int(blank.sum(1).amax()) == int(blank.sum(2).amax()) == hole


def test_policies_for_digits_do_not_flip() -> None:
    for name in ("weak", "strong"):
        specs = augments[name].build(augments[name].configure({"flip": "false"}), preprocessing())
        assert specs[0] == "standard:flip=False"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["weak", "strong"])
def test_policies_can_be_built(name: str, size: tuple[int, ...]) -> None:
    built = build_augmentation([name], preprocessing(size))
    assert (len(built.image), len(built.batch), len(built.mixing)) == ((0, 1, 0) if name == "weak" else (1, 0, 0))


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_seeded_gives_the_same_for_the_same_numbers_and_other_for_others() -> None:
    found = []
    for numbers in [(1, 2), (1, 2), (12,), (2, 1), (1,), (-1,)]:
        with seeded(*numbers):
            found.append(draws())
    assert found[0] == found[1]
    assert len(set(found[1:])) == 5
    assert 0 <= seed_from(2**70, -5) < 2**63


def test_seeded_leaves_the_generators_as_they_were() -> None:
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    expected = draws()
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    with suppress(RuntimeError), seeded(0):
        draws()
        raise RuntimeError
    assert draws() == expected


def test_seeded_in_several_threads() -> None:
    found: dict[int, list[tuple[float, float, float]]] = {}

    def work(number: int) -> None:
        found[number] = []
        for index in range(50):
            with seeded(index):
                found[number].append(draws())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1] == found[2] == found[3]
