"""Averages, disagreement, the choice of members, averaged weights and re-estimated statistics, against plain torch."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from surgeon import convert
from surgeon.commands.ensemble.comparison import disagreement_of, gain_over_mean, mean_of_pairs
from surgeon.commands.ensemble.greedy import MemberLogits, choose_members
from surgeon.commands.ensemble.soup import average_weights, check_alike
from surgeon.core.errors import SurgeonError
from surgeon.measuring.variants import average
from surgeon.metrics import Scores, metrics
from surgeon.models.origin import BaseWeights, LoadedModel, Origin
from surgeon.report.wording import short_names
from surgeon.surgery.branches import branch, mix_branches
from surgeon.surgery.recalibration import FORGET, keeps_statistics, reestimate, without_example_weighting
from surgeon.surgery.temperature import set_temperature, temperature_of
from surgeon.views import Merge
from tests.helpers import randn, small_images, small_resnet

CLASSES = 4


def scores_of(logits: Tensor, labels: Tensor) -> Scores:
    scores = Scores()
    scores.update(logits, labels, torch.arange(len(labels)))
    return scores


def predicting(classes: list[int], sure: float = 5.0) -> Tensor:
    """Logits of a network that predicts these classes."""
    return sure * torch.eye(CLASSES)[torch.tensor(classes)]


# Averages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("merge", Merge)
def test_the_average_is_the_one_it_is_called(merge: Merge) -> None:
    members = [3 * randn(7, CLASSES, seed=seed, dtype=torch.float64) for seed in range(3)]
    together = average(members, merge).softmax(1)
    probabilities = torch.stack([logits.softmax(1) for logits in members])
    expected = {
        Merge.LOGITS: torch.stack(members).mean(0).softmax(1),
        Merge.PROBABILITIES: probabilities.mean(0),
        Merge.GEOMETRIC: probabilities.prod(0) ** (1 / 3) / (probabilities.prod(0) ** (1 / 3)).sum(1, keepdim=True),
    }
    torch.testing.assert_close(together, expected[merge])
    for other in {Merge.LOGITS, Merge.PROBABILITIES} - {merge}:
        if {other, merge} != {Merge.LOGITS, Merge.GEOMETRIC}:  # which have the same probabilities
            assert not torch.allclose(together, expected[other])


def test_disagreement_counted_by_hand() -> None:
    labels = torch.tensor([0, 1, 2, 3])
    predictions = ([0, 1, 2, 3], [0, 1, 2, 0], [1, 1, 2, 0])
    matrix = disagreement_of([scores_of(predicting(classes), labels) for classes in predictions])
    assert matrix == ((0, 0.25, 0.5), (0.25, 0, 0.25), (0.5, 0.25, 0))
    assert mean_of_pairs(matrix) == pytest.approx(1 / 3)


def test_the_gain_over_the_mean_member_is_paired() -> None:
    labels = torch.tensor([0, 1, 2, 3])
    members = [scores_of(predicting(classes), labels) for classes in ([0, 1, 0, 0], [0, 0, 2, 0])]
    gain = gain_over_mean(members, scores_of(predicting([0, 1, 2, 0]), labels), metrics["accuracy"])
    differences = np.array([0, 0.5, 0.5, 0])
    assert gain.difference == differences.mean()
    # Eight images: of the four imagined ones, the candidate alone gets one right, and both members alone another.
    values = np.array([*differences, 0, 0, 1, -1])
    half = stats.t.ppf(0.975, 7) * values.std(ddof=1) / math.sqrt(8)
    longer = stats.skew(values) * (1 + 2 * stats.t.ppf(0.975, 7) ** 2) / 6 / 8 * values.std(ddof=1)
    expected = values.mean() - half + min(longer, 0), 0.25 + half + max(longer, 0)
    assert (gain.low, gain.high) == pytest.approx(expected)


def test_short_names() -> None:
    assert short_names(["runs/a/1", "runs/a/2"]) == {"runs/a/1": "1", "runs/a/2": "2"}
    assert short_names(["runs/a/last", "runs/b/last"]) == {"runs/a/last": "a/last", "runs/b/last": "b/last"}
    assert short_names(["runs/a/checkpoint", "runs/b/checkpoint"]) == {
        "runs/a/checkpoint": "a",
        "runs/b/checkpoint": "b",
    }
    assert short_names(["a/checkpoint", "checkpoint"]) == {"a/checkpoint": "a/checkpoint", "checkpoint": "checkpoint"}
    assert short_names(["runs/a", "runs/a/x"]) == {"runs/a": "a", "runs/a/x": "a/x"}


# Choice -----------------------------------------------------------------------------------------


def kept(*members: list[int], labels: list[int]) -> MemberLogits:
    return MemberLogits([predicting(m) for m in members], torch.tensor(labels), torch.arange(len(labels)))


def test_greedy_keeps_members_that_help_and_no_others() -> None:
    """Three that are wrong on different images correct each other; one that is always wrong stays out."""
    labels = [0, 1, 2, 3, 0, 1]
    good = ([1, 1, 2, 3, 0, 1], [0, 2, 3, 3, 0, 1], [0, 1, 2, 0, 1, 2])
    bad = [(label + 1) % CLASSES for label in labels]
    members = kept(bad, *good, labels=labels)
    members.logits[0] *= 2  # loud enough to spoil any average
    chosen, steps = choose_members(["bad", "a", "b", "c"], members, metrics["cross-entropy"], Merge.LOGITS)
    assert chosen == [1, 2, 3]
    assert [step.member for step in steps] == ["a", "b", "c", "bad"]
    assert [step.kept for step in steps] == [True, True, True, False]
    together = torch.stack(members.logits[1:]).mean(0)
    expected = nn.functional.cross_entropy(together, members.labels).item()
    assert steps[2].value == pytest.approx(expected, rel=1e-5)


def test_a_member_that_adds_nothing_stays_out() -> None:
    labels = [0, 1, 2]
    chosen, _ = choose_members(["a", "same"], kept(labels, labels, labels=labels), metrics["accuracy"], Merge.LOGITS)
    assert chosen == [0]


# Soup -------------------------------------------------------------------------------------------


def loaded(model: nn.Module, name: str = "a") -> LoadedModel:
    return LoadedModel(name, model, Origin())


def test_the_average_of_equal_weights_is_the_member() -> None:
    model = convert(small_resnet(), "ghost:size=4", "example-weighted:alpha=0.2")
    set_temperature(model, 1.7)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    soup = average_weights([loaded(model), loaded(copy.deepcopy(model), "b"), loaded(copy.deepcopy(model), "c")])
    assert soup.model is not model
    torch.testing.assert_close(soup.model.state_dict(), before)
    images = small_images()
    torch.testing.assert_close(soup.model(images), model(images))
    assert temperature_of(soup.model) == 1.7


def test_every_weight_is_the_mean() -> None:
    first, second = small_resnet(), small_resnet()
    for parameter in second.parameters():
        parameter.data += randn(*parameter.shape, seed=3)
    set_temperature(second, 2.0)
    soup = average_weights([loaded(first), loaded(second, "b")])
    for name, tensor in soup.model.state_dict().items():
        mean = (first.state_dict()[name].double() + second.state_dict()[name].double()) / 2
        torch.testing.assert_close(tensor.double(), mean, rtol=1e-6, atol=1e-6)
    assert temperature_of(soup.model) is None, "a temperature that is not everybody's is nobody's"


def test_an_average_has_the_base_that_all_members_have() -> None:
    one, other = BaseWeights(origin="resnet18.a1_in1k", sha256="1" * 64), BaseWeights(origin="mine.pth")
    for second, expected in ((one, one), (other, BaseWeights(origin="those of resnet18.a1_in1k and mine.pth"))):
        members = [loaded(small_resnet(), name) for name in ("a", "b")]
        for member, weights in zip(members, (one, second), strict=True):
            member.origin = member.origin.model_copy(update={"weights": weights})
        assert average_weights(members).origin.weights == expected


def _split(model: nn.Module, share: float) -> nn.Module:
    model = convert(model, "split")
    mix_branches(model, share)
    return model


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 2)), "the architecture is SmallResNet in one, but Sequential"),
        (lambda: convert(small_resnet(), "ghost:size=4"), "the rewrites are none in one, but ghost:size=4"),
        (lambda: small_resnet(nn.InstanceNorm2d), "among the tensors there is"),
    ],
    ids=["architecture", "plan", "tensors"],
)
def test_networks_that_are_not_alike_are_refused(other, told: str) -> None:
    with pytest.raises(SurgeonError, match=told):
        check_alike([loaded(small_resnet()), loaded(other(), "b")])


def test_the_first_layer_that_differs_is_named() -> None:
    plans = [{"*": 0.1, "layer2.*": 0.2, "layer3.*": value} for value in (0.3, 0.4)]
    members = [loaded(convert(small_resnet(), "example-weighted", alpha=alpha)) for alpha in plans]
    with pytest.raises(SurgeonError, match=r"layer3\.0\.bn1 is rewritten with .*0\.3.* in one, but .*0\.4"):
        check_alike(members)


def test_another_mix_of_branches_is_refused() -> None:
    with pytest.raises(SurgeonError, match=r"branches are mixed with \(0.5.* in one, but none"):
        check_alike([loaded(_split(small_resnet(), 0.5)), loaded(_split(small_resnet(), 0), "b")])


# Statistics -------------------------------------------------------------------------------------


def batches(sizes: tuple[int, ...] = (8, 8, 3)) -> Iterator[tuple[Tensor, None]]:
    """The last one is smaller."""
    for images in small_images(sum(sizes)).split(list(sizes)):
        yield images, None


def restate_statistics(model: nn.Module, given: Iterable[Any]) -> int:
    """As a soup does it; returns in how many layers."""
    images = (batch[0] if isinstance(batch, tuple) else batch for batch in given)
    with without_example_weighting(model):
        return len(reestimate(model, images, prior=FORGET, auxiliary=False, frozen=False).layers)


def direct(model: nn.Module, sizes: tuple[int, ...] = (8, 8, 3)) -> dict[str, tuple[Tensor, Tensor]]:
    """Moments of each BatchNorm's inputs over all images, in float64, each batch normalised by itself."""
    model = copy.deepcopy(model).train()
    seen: dict[str, list[Tensor]] = {}
    norms = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.BatchNorm2d)}
    for name, layer in norms.items():
        layer.register_forward_pre_hook(lambda _, x, name=name: seen.setdefault(name, []).append(x[0].double()))
    with torch.no_grad():
        for images, _ in batches(sizes):
            model(images)
    values = {name: torch.cat(parts).transpose(0, 1).flatten(1) for name, parts in seen.items()}
    return {name: (x.mean(1), x.var(1, correction=0)) for name, x in values.items()}


@pytest.mark.parametrize(
    "rewrites",
    [(), ("example-weighted:alpha=0.3",), ("ghost:size=2", "example-weighted:alpha=0.3")],
    ids=["plain", "example-weighted", "ghost"],
)
def test_statistics_are_the_moments_of_all_images(rewrites: tuple[str, ...]) -> None:
    original = small_resnet()
    model = convert(original, *rewrites) if rewrites else copy.deepcopy(original)
    modes = {name: module.training for name, module in model.named_modules()}
    assert restate_statistics(model, batches()) == 7
    modules = dict(model.named_modules())
    for name, (mean, var) in direct(original).items():
        torch.testing.assert_close(modules[name].running_mean.double(), mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(modules[name].running_var.double(), var, rtol=1e-4, atol=1e-5)
    assert {name: module.training for name, module in model.named_modules()} == modes
    if rewrites:
        assert modules["bn1"].alpha_values == 0.3
        assert modules["bn1"].rewrites["example-weighted"].alpha == 0.3


def test_every_image_counts_alike_whatever_its_batch() -> None:
    """Only the first layer's input does not depend on how the images are cut into batches."""
    means = []
    for sizes in ((19,), (18, 1), (8, 8, 3)):
        model = small_resnet()
        restate_statistics(model, batches(sizes))
        means.append(torch.cat([model.bn1.running_mean, model.bn1.running_var]))
    torch.testing.assert_close(means[0], means[1])
    torch.testing.assert_close(means[0], means[2])


def test_dropout_stays_off() -> None:
    model = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm2d(3)).train()
    restate_statistics(model, batches())
    torch.testing.assert_close(model[1].running_mean, small_images(19).mean((0, 2, 3)))
    assert model[0].training, "the mode is what it was"


def test_a_batch_of_one_value() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    restate_statistics(model, [randn(4, 3), randn(1, 3, seed=1)])
    values = torch.cat([randn(4, 3), randn(1, 3, seed=1)])
    torch.testing.assert_close(model[0].running_mean, values.mean(0))
    torch.testing.assert_close(model[0].running_var, values.var(0, correction=0))


def test_an_auxiliary_branch_keeps_its_statistics_also_in_a_mixed_network() -> None:
    original = small_resnet()
    model = _split(original, 0.5)
    aux = model.bn1.aux.running_mean.clone()
    restate_statistics(model, batches())
    assert torch.equal(model.bn1.aux.running_mean, aux)
    for name, (mean, _) in direct(original).items():
        torch.testing.assert_close(dict(model.named_modules())[name].running_mean.double(), mean, rtol=1e-4, atol=1e-5)
    assert len(keeps_statistics(model, auxiliary=False)) == 7
    assert not keeps_statistics(model)
    with branch(model, "aux"):
        torch.testing.assert_close(model(small_images()), original(small_images()))


def test_nothing_changes_if_it_fails() -> None:
    model = small_resnet()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def broken() -> Iterator[Tensor]:
        yield small_images(4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restate_statistics(model, broken())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("model", "given"), [(nn.Linear(2, 2), [randn(2, 2)]), (nn.BatchNorm1d(2), [])], ids=["no layer", "no batch"]
)
def test_nothing_to_estimate(model: nn.Module, given: list[Tensor]) -> None:
    with pytest.raises(SurgeonError):
        restate_statistics(model, given)
