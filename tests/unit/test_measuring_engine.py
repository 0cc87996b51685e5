"""The engine: each sample is decoded once for all variants, each variant's figures are those it has alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.core.processes import Processes
from surgeon.data.images import ImageSet, PixelArrays
from surgeon.data.loaders import Batch, Batches, batches
from surgeon.measuring.axes import AlphaAxis
from surgeon.measuring.engine import measure
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.keeping import Logits, only_scores
from surgeon.measuring.spreading import spread
from surgeon.measuring.variants import Average, Variant
from surgeon.metrics import summarise
from surgeon.models.origin import Preprocessing
from surgeon.surgery.apply import convert
from surgeon.views import Merge

SMALL = Preprocessing(input_size=(1, 8, 8), mean=(0.5,), std=(0.25,))
LARGE = SMALL.model_copy(update={"input_size": (1, 12, 12)})
ON_CPU = InferenceSettings(torch.device("cpu"))
IMAGES, CLASSES = 23, 4


class CountedReads(PixelArrays):
    """Remembers which images were read."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0).integers(0, 256, (IMAGES, 16, 16), dtype=np.uint8))
        self.reads: list[int] = []

    def read(self, position: int) -> bytes:
        self.reads.append(position)
        return super().read(position)


def samples(*kinds: Preprocessing, **options: Any) -> tuple[Batches, CountedReads]:
    source = CountedReads()
    labels = np.arange(IMAGES) % CLASSES
    images = ImageSet.over(source, labels, [str(number) for number in range(CLASSES)], name="noise", split="test")
    return batches(images, kinds or [SMALL], 5, 2, **options), source


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(6, CLASSES))


def logits_of(model: nn.Module, *kinds: Preprocessing) -> Tensor:
    """Written without the engine."""
    loader, _ = samples(*kinds)
    with torch.no_grad():
        return torch.cat([model.eval()(batch.images) for batch in loader])


def all_logits(_: str) -> Logits:
    return Logits()


def test_networks_with_other_preprocessing_share_the_decoding() -> None:
    first, second = network(0), network(1)
    loader, source = samples(SMALL, LARGE)
    found = measure({"a": Variant(first, ON_CPU, SMALL), "b": Variant(second, ON_CPU, LARGE)}, loader, all_logits)
    assert sorted(source.reads) == list(range(IMAGES))
    for name, model, kind in (("a", first, SMALL), ("b", second, LARGE)):
        logits, labels, indices = found.kept[name].in_order()
        torch.testing.assert_close(logits, logits_of(model, kind), rtol=0, atol=0)
        assert labels.tolist() == [number % CLASSES for number in range(IMAGES)]
        assert indices.tolist() == list(range(IMAGES))


def test_an_average_is_that_of_the_members_logits() -> None:
    models = [network(seed) for seed in range(3)]
    variants = {str(number): Variant(model, ON_CPU) for number, model in enumerate(models)}
    averages = {"mean": Average(["0", "2"], Merge.LOGITS)}
    found = measure(variants, samples()[0], all_logits, averages=averages)
    expected = (logits_of(models[0]) + logits_of(models[2])) / 2
    torch.testing.assert_close(found.kept["mean"].in_order()[0], expected)


def test_a_condition_is_applied_once_for_all_networks_that_see_it() -> None:
    calls: list[int] = []

    def darkened(batch: Batch) -> Batch:
        calls.append(len(batch.labels))
        return replace(batch, images=batch.images * 0.5)

    models = [network(seed) for seed in range(2)]
    variants = {f"clean {number}": Variant(model, ON_CPU) for number, model in enumerate(models)}
    variants |= {f"dark {number}": Variant(model, ON_CPU, condition=darkened) for number, model in enumerate(models)}
    found = measure(variants, samples()[0], all_logits)
    assert calls == [5, 5, 5, 5, 3]
    for number, model in enumerate(models):
        loader, _ = samples()
        with torch.no_grad():
            expected = torch.cat([model.eval()(batch.images * 0.5) for batch in loader])
        torch.testing.assert_close(found.kept[f"dark {number}"].in_order()[0], expected)
        torch.testing.assert_close(found.kept[f"clean {number}"].in_order()[0], logits_of(model))


class Counting(nn.Module):
    """Hands its input on, and counts how often."""

    calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return images.clone()


def test_values_of_one_axis_share_what_comes_before_it() -> None:
    model = convert(nn.Sequential(Counting(), *network()), "example-weighted")
    (counting,) = (module for module in model.modules() if isinstance(module, Counting))
    axis, values = AlphaAxis(model), (0.0, 0.3, 0.6)
    variants = {f"{value:g}": Variant(model, ON_CPU, axis=axis, value=value) for value in values}
    found = measure(variants, samples()[0], all_logits)
    assert counting.calls == 5 + 1  # once per batch; the very first pass finds out what need not be repeated
    for value in values:
        axis.set(value)
        torch.testing.assert_close(found.kept[f"{value:g}"].in_order()[0], logits_of(model))


@pytest.mark.parametrize("processes", [2, 3, 7])
def test_shares_of_processes_make_up_the_whole(processes: int) -> None:
    """Each batch falls to one process, and is the same as if one did all."""
    whole, _ = samples()
    expected = {int(batch.indices[0]): batch for batch in whole}
    seen: dict[int, Batch] = {}
    for rank in range(processes):
        with spread(samples()[0], Processes(rank, processes)) as share:
            for batch in share._stream:
                assert seen.setdefault(int(batch.indices[0]), batch) is batch
    assert seen.keys() == expected.keys()
    for number, batch in seen.items():
        assert torch.equal(batch.images, expected[number].images)


def test_progress_counts_images() -> None:
    heard: list[tuple[str, int, int]] = []
    measure(
        {"": Variant(network(), ON_CPU)},
        samples()[0],
        only_scores,
        progress=lambda doing, done, total, _="": heard.append((doing, done, total)),
        doing="looking",
    )
    assert heard == [("looking", done, IMAGES) for done in (5, 10, 15, 20, 23)]


class Unreadable(PixelArrays):
    def read(self, position: int) -> bytes:  # noqa: ARG002
        return b"no picture"


def test_nothing_but_unreadable_images_is_an_error() -> None:
    source = Unreadable(np.zeros((6, 8, 8), np.uint8))
    images = ImageSet.over(source, [0] * 6, ["thing"], name="broken", split="test")
    with pytest.raises(SurgeonError, match="None of the 6 images of 'broken' can be read"):
        measure({"": Variant(network(), ON_CPU)}, batches(images, SMALL, 4, skip_bad=True), only_scores)


def test_a_network_is_left_as_it_was() -> None:
    model = network().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    measure({"": Variant(model, ON_CPU)}, samples()[0], only_scores)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_seconds_of_a_variant_leave_out_those_of_others() -> None:
    found = measure({name: Variant(network(), ON_CPU) for name in "ab"}, samples()[0], only_scores)
    assert found.seconds_alone("a") == pytest.approx(found.elapsed - found.seconds["b"])
    assert 0 < found.seconds["a"] < found.seconds_alone("a") < found.elapsed


def test_figures_do_not_depend_on_who_else_is_measured() -> None:
    models = [network(seed) for seed in range(3)]
    together = measure({str(n): Variant(model, ON_CPU) for n, model in enumerate(models)}, samples()[0], only_scores)
    for number, model in enumerate(models):
        alone = measure({"": Variant(model, ON_CPU)}, samples()[0], only_scores)
        assert summarise(alone.kept[""]) == summarise(together.kept[str(number)])
