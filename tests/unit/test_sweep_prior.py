"""A swept prior: statistics as a reference computes them, in any combination with what else is swept."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from surgeon.checkpoint.reading import open_model
from surgeon.commands.sweep import operation
from surgeon.commands.sweep.investigation import Investigation
from surgeon.commands.sweep.operation import SweepRequest, run_sweep
from surgeon.commands.sweep.settings import Swept
from surgeon.commands.sweep.sweepable import axes_but_the_prior, combined, make_sweepable
from surgeon.core.errors import SurgeonError
from surgeon.core.progress import say_nothing
from surgeon.data.images import ImageSet
from surgeon.data.opening import open_data
from surgeon.measuring.axes import kept_if_it_fails
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork, prepare
from surgeon.measuring.prior_axis import PriorAxis
from surgeon.models.origin import LoadedModel
from surgeon.results import Sweep
from tests.helpers import Snapshot

REQUEST = InferenceRequest("digits", split="validation", batch_size=16)


def some_digits(number: int) -> ImageSet:
    return open_data("digits", "validation").subset(np.arange(number))


def task_of(spec: str | None = None, number: int = 40) -> PreparedNetwork:
    loaded = open_model("digits-resnet8")
    if spec is not None:
        make_sweepable(loaded, [spec], None)
    return prepare(loaded, replace(REQUEST, batch_size=number), some_digits(number))


def inputs_of(task: PreparedNetwork) -> Tensor:
    return torch.cat([batch.images for batch in task.batches()])


def reference_statistics(model: nn.Module, images: Tensor, prior: float) -> dict[str, tuple[Tensor, Tensor]]:
    """Layer by layer in float64, each with all before it at their mixed statistics: of one batch, so all at once."""
    model = model.double().eval()
    weight = len(images) / (prior + len(images))
    found = {}

    def mix(name: str):  # type: ignore[no-untyped-def]
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x = inputs[0]
            mean, square = x.mean((0, 2, 3)), x.square().mean((0, 2, 3))
            layer.running_mean.copy_((1 - weight) * layer.running_mean + weight * mean)
            layer.running_var.copy_((1 - weight) * layer.running_var + weight * (square - mean.square()))
            found[name] = layer.running_mean.clone(), layer.running_var.clone()

        return hook

    handles = [
        layer.register_forward_pre_hook(mix(name))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.BatchNorm2d)
    ]
    with torch.no_grad():
        model(images.double())
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("prior", [0.0, 16.0, 1000.0])
def test_statistics_and_predictions_are_those_of_a_reference(prior: float) -> None:
    task = task_of()
    images = inputs_of(task)
    axis = PriorAxis(task, task.image_set, [prior])
    (found,) = axis.logits(images, [prior])
    plain = open_model("digits-resnet8").model
    expected = reference_statistics(plain, images, prior)
    assert axis.statistics[prior].keys() == expected.keys()
    for name, (mean, var) in expected.items():
        torch.testing.assert_close(axis.statistics[prior][name].mean.double(), mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(axis.statistics[prior][name].var.double(), var, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(found.double(), plain(images.double()), rtol=1e-4, atol=1e-4)


def test_the_prior_of_infinity_is_the_original_to_the_bit() -> None:
    task = task_of()
    images = inputs_of(task)
    before = Snapshot(task.model)
    with torch.no_grad():
        original = task.model.eval()(images)
        axis = PriorAxis(task, task.image_set, [0.0, 64.0, math.inf])
        before.assert_unchanged()
        forgotten, kept = axis.logits(images, [0.0, math.inf])
    assert torch.equal(kept, original)
    assert not torch.equal(forgotten, original)


@pytest.mark.parametrize("spec", ["alpha", "instance-aware.k"])
def test_with_another_axis_statistics_are_those_of_the_network_without_it(spec: str) -> None:
    alone = task_of()
    expected = PriorAxis(alone, alone.image_set, [8.0]).statistics[8.0]
    request = SweepRequest(REQUEST, values=(0.0,), axis=spec, second=Swept("prior", (8.0,)))
    task = task_of(spec)
    for axis in axes_but_the_prior(task.model, request.axes, False).values():
        assert axis.original == (0.0 if spec == "alpha" else math.inf)
        axis.set(0.3 if spec == "alpha" else 1.0)
        axis.set(axis.original)
    found = PriorAxis(task, task.image_set, [8.0]).statistics[8.0]
    assert found.keys() == expected.keys()
    for name in found:
        assert torch.equal(found[name].mean, expected[name].mean)
        assert torch.equal(found[name].var, expected[name].var)


def swept(loaded: LoadedModel, number: int = 60, **changes: object) -> Sweep:
    request = replace(
        SweepRequest(REQUEST, values=(0.0, 64.0, math.inf), axis="prior", metric="cross-entropy"), **changes
    )  # type: ignore[arg-type]
    return run_sweep(loaded, request, say_nothing, some_digits(number))


@pytest.mark.parametrize("found_at", [0.0, 0.4])
def test_a_sweep_of_pairs_does_not_depend_on_where_alpha_was(found_at: float) -> None:
    """Recalibrate, then alpha: at alpha 0 the figures are those of the prior alone."""
    pairs = {"axis": "alpha", "values": (0.0, 0.2), "second": Swept("prior", (0.0, 64.0, math.inf))}
    loaded = open_model("digits-resnet8")
    make_sweepable(loaded, ["alpha"], None)
    axes_but_the_prior(loaded.model, {"alpha": ()}, False)["alpha"].set(found_at)
    both, alone = swept(loaded, **pairs), swept(open_model("digits-resnet8"))
    assert (both.axis, both.second_axis, both.axes) == ("alpha", "prior", "alpha × prior")
    assert (both.original, both.second_original) == (0.0, math.inf)
    at_zero = [point for point in both.points if point.value == 0]
    assert [point.second for point in at_zero] == [0.0, 64.0, math.inf]
    for pair, single in zip(at_zero, alone.points, strict=True):
        assert pair.metrics.cross_entropy == pytest.approx(single.metrics.cross_entropy, rel=1e-6)


def test_images_of_statistics_are_those_of_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    used: dict[str, list[int]] = {}

    class Watched(PriorAxis):
        def __init__(self, task: PreparedNetwork, images: ImageSet, *rest: object) -> None:
            used["estimating"], used["choosing"] = list(images.positions), list(task.image_set.positions)
            super().__init__(task, images, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(operation, "PriorAxis", Watched)
    found = swept(open_model("digits-resnet8"))
    assert (found.estimating_images, found.choosing_images) == (30, 30)
    assert sorted([*used["estimating"], *used["choosing"]]) == sorted(some_digits(60).positions)
    assert any("Statistics of 30 images are noisy" in warning for warning in found.warnings)


@pytest.mark.parametrize("second", [None, Swept("alpha", (0.0, 0.5)), Swept("instance-aware.k", (1.0, 8.0))])
@pytest.mark.parametrize("when", ["estimating", "measuring"])
def test_a_sweep_that_fails_leaves_the_network_as_it_was(second: Swept | None, when: str) -> None:
    loaded = open_model("digits-resnet8")
    if second is not None:
        make_sweepable(loaded, [second.axis], None)
        axes_but_the_prior(loaded.model, {second.axis: ()}, False)[second.axis].set(0.25)
    prepare(loaded, REQUEST, some_digits(8))
    before = Snapshot(loaded.model)
    with torch.no_grad():
        images = torch.linspace(-1, 1, 256).reshape(4, 1, 8, 8)
        logits = loaded.model.eval()(images)
    calls: list[str] = []

    def fail(doing: str, done: int, total: int, _: str = "", /) -> None:
        calls.append(doing)
        if (when == "estimating") == (doing == "estimating statistics") and (when == "measuring" or done > total / 2):
            raise RuntimeError("stopped")

    changes = {} if second is None else {"second": second}
    request = SweepRequest(REQUEST, values=(0.0, 64.0), axis="prior", **changes)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="stopped"):
        run_sweep(loaded, request, fail, some_digits(60))
    assert calls
    before.assert_unchanged()
    with torch.no_grad():
        assert torch.equal(loaded.model.eval()(images), logits)
    assert loaded.origin.history == () or all(step.kind != "recalibrated" for step in loaded.origin.history)


def test_axes_remember_where_they_were_made() -> None:
    loaded = open_model("digits-resnet8")
    make_sweepable(loaded, ["instance-aware.k", "instance-aware.weight"], None)
    axes = axes_but_the_prior(loaded.model, {"instance-aware.k": (), "instance-aware.weight": ()}, False)
    both, _ = combined(axes, {"instance-aware.k": (1.0,), "instance-aware.weight": (1.0,)})
    before = Snapshot(loaded.model)

    def stopped() -> None:
        with kept_if_it_fails(both):
            both.set((2.0, 0.5))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    before.assert_unchanged()
    layer = next(layer for layer in loaded.model.modules() if hasattr(layer, "rewrites"))
    assert layer.rewrites["instance-aware"].k == math.inf


def test_of_equal_pairs_that_few_steps_from_the_original_is_chosen() -> None:
    class Pairs:
        original = (0.0, math.inf)
        name = "alpha × prior"

    values = tuple((alpha, prior) for alpha in (0.0, 0.1, 0.2) for prior in (0.0, 64.0, math.inf))
    question = type("Question", (), {"values": values})
    runner = type("Runner", (), {"axis": Pairs})
    away = Investigation(runner, question, None, None)._steps_away()  # type: ignore[arg-type]
    assert away["original"] == 0
    assert away["alpha 0, prior 64"] == away["alpha 0.1, prior inf"] == 1
    assert away["alpha 0.1, prior 0"] == 3


def test_too_few_images_are_refused() -> None:
    with pytest.raises(SurgeonError, match="1 image cannot be halved"):
        swept(open_model("digits-resnet8"), number=1)
