"""A race over alpha computes a few values and interpolates the rest; what it chooses it has computed on all images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from surgeon.commands.sweep.investigation import Investigation, Question
from surgeon.data.loaders import Batch
from surgeon.measuring.axes import AlphaAxis, Value
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.interpolation import InterpolatedAxis, lagrange, nodes_and_checks
from surgeon.measuring.journal import Journal
from surgeon.measuring.runner import Runner
from surgeon.metrics import Metrics, Scores, metrics, summarise
from surgeon.report.wording import interpolation_text
from surgeon.results import Method, Sweep

VALUES = [round(number / 20, 2) for number in range(21)]
IMAGES, BATCH = 1600, 32
Margins = Callable[[float], np.ndarray]
RANDOM = np.random.default_rng(5)
HARDNESS, TASTE = RANDOM.normal(1, 1, IMAGES), RANDOM.normal(0, 0.2, IMAGES)


class Made(AlphaAxis):
    """An axis whose logits are made up: by how much the label, class 0, is ahead of class 1 at each value."""

    def __init__(self, margins: Margins) -> None:
        self.original, self.margins, self.computed = 0.0, margins, 0

    def logits(self, images: Tensor, values: Sequence[Value]) -> list[Tensor]:
        self.computed += len(values) * len(images)
        places = images[:, 0].long().numpy()
        ahead = [torch.from_numpy(self.margins(float(value))[places]).float() for value in values]  # type: ignore[arg-type]
        return [torch.stack([margin, torch.zeros_like(margin)], 1) for margin in ahead]

    def set(self, value: Value) -> None:
        pass


class Numbered:
    """Batches of images that are their own numbers."""

    batch_size, repeatable = BATCH, True

    def __init__(self, numbers: Sequence[int] = range(math.ceil(IMAGES / BATCH))) -> None:
        self.numbers, self.bad = numbers, list[str]()

    def __len__(self) -> int:
        return len(self.numbers)

    def only(self, numbers: Sequence[int]) -> Numbered:
        return Numbered(numbers)

    def __iter__(self) -> Iterator[Batch]:
        for number in self.numbers:
            places = torch.arange(number * BATCH, min((number + 1) * BATCH, IMAGES))
            yield Batch(places[:, None].float(), torch.zeros(len(places), dtype=torch.int64), places)


def swept(
    margins: Margins, method: Method = Method.RACE, metric: str = "accuracy", journal: Journal | None = None
) -> tuple[Sweep, int]:
    """The result, and how often an image was predicted."""
    axis = Made(margins)
    runner = Runner(nn.Identity(), axis, InferenceSettings(torch.device("cpu")), journal=journal)
    question = Question(tuple(VALUES), metrics[metric], method)
    found = Investigation(runner, question, Numbered(), None).run(model="made", rewrites="", data="made", split="all")  # type: ignore[arg-type]
    return found, axis.computed


def peaked(at: float, height: float = 1.0) -> Margins:
    return lambda value: HARDNESS - height * (value - at - TASTE) ** 2 + height * TASTE**2


def flat(value: float) -> np.ndarray:
    del value
    return HARDNESS


def noisy(value: float) -> np.ndarray:
    return peaked(0.5)(value) + np.random.default_rng(round(value * 1000)).normal(0, 0.05, IMAGES)


def two_kinds_of_images(value: float) -> np.ndarray:
    """Half of them like 0.2 and the rather more numerous others 0.8: the curve has two peaks."""
    likes = np.where(np.arange(IMAGES) % 9 < 4, 0.2, 0.8)
    return HARDNESS * 0.3 + 0.5 - 6 * (value - likes) ** 2


def narrow(value: float) -> np.ndarray:
    """A second peak between the nodes, where no smooth curve has one."""
    return HARDNESS + 1.5 * math.exp(-(((value - 0.7) / 0.08) ** 2)) + 0.5 * math.exp(-(((value - 0.1) / 0.1) ** 2))


def computed(margins: Margins, value: float) -> Metrics:
    """The figures of a value on all images."""
    ahead = torch.from_numpy(margins(value)).float()
    scores = Scores()
    scores.update(
        torch.stack([ahead, torch.zeros_like(ahead)], 1), torch.zeros(IMAGES, dtype=torch.int64), range(IMAGES)
    )
    return summarise(scores)


# --- interpolation


def test_a_polynomial_through_the_nodes_is_reproduced() -> None:
    nodes, values = (0.0, 0.08, 0.2), np.linspace(0, 0.2, 21)
    parabola = 3 - 2 * values + 7 * values**2
    at_nodes = [3 - 2 * node + 7 * node**2 for node in nodes]
    np.testing.assert_allclose(lagrange(nodes, values.tolist()) @ at_nodes, parabola, rtol=1e-12)


def test_the_original_and_both_ends_are_nodes_and_checks_are_none() -> None:
    assert nodes_and_checks(VALUES, 0.0) == ((0.0, 0.5, 1.0), (0.2, 0.75))
    nodes, checks = nodes_and_checks(VALUES, 0.6)
    assert {0.0, 0.6, 1.0} <= set(nodes)
    assert not set(nodes) & set(checks)


def test_what_is_computed_is_not_changed_by_interpolation() -> None:
    axis = Made(noisy)
    images = torch.arange(40)[:, None].float()
    smooth = InterpolatedAxis(axis, (0.0, 0.4, 1.0))
    for place, logits in zip((1.0, 0.0, 0.4), smooth.logits(images, [1.0, 0.0, 0.4]), strict=True):
        assert torch.equal(logits, axis.logits(images, [place])[0])
    assert smooth.passes(21) == 3


# --- what a race finds


@pytest.mark.parametrize(
    ("name", "margins"),
    [
        ("best at the original", peaked(0.0)),
        ("best inside", peaked(0.45)),
        ("best at the end", peaked(1.2)),
        ("nearly flat", peaked(0.3, height=0.05)),
        ("flat", flat),
        ("noisy", noisy),
        ("two peaks", two_kinds_of_images),
        ("a narrow peak", narrow),
    ],
)
@pytest.mark.parametrize("metric", ["accuracy", "cross-entropy"])
def test_the_optimum_is_found(name: str, margins: Margins, metric: str) -> None:
    race, passes = swept(margins, metric=metric)
    merits = {value: metrics[metric].merit(computed(margins, value)) for value in VALUES}
    loss = max(merits.values()) - merits[race.chosen]
    assert loss <= 0.01, (name, race.chosen)
    assert passes == race.image_forwards
    if name == "a narrow peak":
        assert race.interpolation is None  # the checks have told
    else:
        assert passes <= 3.4 * IMAGES


def test_a_metric_without_numbers_per_image_goes_by_its_best_estimate() -> None:
    race, passes = swept(peaked(0.45), metric="ece")
    assert race.interpolation is not None
    assert passes <= 3.4 * IMAGES
    errors = {value: computed(peaked(0.45), value).ece for value in VALUES}
    assert errors[race.chosen] <= min(errors.values()) + 0.01


def test_what_is_told_of_the_chosen_value_was_computed_on_all_images() -> None:
    race, _ = swept(peaked(0.45))
    assert race.interpolation is not None
    for point in race.points:
        if point.dropped is None:
            assert point.metrics == computed(peaked(0.45), point.value)
        else:
            assert point.metrics.images == race.interpolation.images < IMAGES
        assert (point.dropped == "thinned out") <= (point.value in race.interpolation.computed)
    assert {point.value for point in race.points if point.dropped is None} == {0.0, race.chosen}
    assert set(race.interpolation.checked) == {0.2, 0.75, race.chosen}
    assert "0, 0.5, 1 on the first 640 images" in interpolation_text(race.interpolation, "alpha")
    assert {one.what for one in race.spent} == {"waiting for images", "predicting", "scoring", "other"}
    assert sum(one.seconds for one in race.spent) == pytest.approx(race.seconds)


def test_logits_that_are_not_numbers_are_not_interpolated() -> None:
    def broken(value: float) -> np.ndarray:
        return np.where(np.arange(IMAGES) == 7, math.nan if value == 1 else 1.0, peaked(0.45)(value))

    race, _ = swept(broken)
    assert race.interpolation is None
    assert race.chosen not in (0.0, 1.0)


# --- stopping and going on


def test_a_stopped_race_goes_on_from_any_line_of_its_journal(tmp_path: Path) -> None:
    def journal(folder: str) -> Journal:
        (tmp_path / folder).mkdir(exist_ok=True)
        return Journal(tmp_path / folder / "journal.jsonl", {"sweep": 1}, overwrite=False)

    whole, passes = swept(noisy, journal=journal("whole"))
    lines = journal("whole").path.read_bytes().splitlines(keepends=True)
    for kept in (2, len(lines) // 3, len(lines) // 2, len(lines) - 1):
        (tmp_path / f"{kept}").mkdir()
        (tmp_path / f"{kept}" / "journal.jsonl").write_bytes(b"".join(lines[:kept]))
        again, fewer = swept(noisy, journal=journal(f"{kept}"))
        times = {"seconds", "spent"}
        assert again.model_dump(exclude=times) == whole.model_dump(exclude=times), kept
        assert fewer < passes
