"""What comes before the first changing layer is computed once, and nothing else changes: equal to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import surgeon
from surgeon.measuring.axes import AlphaAxis
from surgeon.measuring.shared_prefix import SharedPrefix
from surgeon.models.origin import Preprocessing
from surgeon.views import views
from surgeon.views.run import predict_each
from tests.helpers import randn, randomise

ALPHAS = (0.0, 0.3, 1.0, 0.0)


class Counting(nn.Conv2d):
    """A convolution that counts its passes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.passes = 0

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        self.passes += 1
        return super().forward(x) * scale


def conv(inputs: int = 4, outputs: int = 4) -> Counting:
    return Counting(inputs, outputs, 3, padding=1, bias=False)


class Net(nn.Module):
    """A stem with a norm of its own, a middle that may change, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3)
        self.norm0 = nn.BatchNorm2d(4)
        self.conv = conv()
        self.norm1 = nn.BatchNorm2d(4)
        self.last = conv()
        self.norm2 = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm0(self.stem(x)))
        x = torch.tanh(self.norm1(self.conv(x)))
        return self.head(self.norm2(self.last(x)).mean((2, 3)))


class InPlaceActivation(Net):
    """An activation writes into the output of a norm that stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.LeakyReLU(0.2, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm0(self.stem(x)))
        x = torch.tanh(self.norm1(self.conv(x)))
        return self.head(self.norm2(self.last(x)).mean((2, 3)))


class CalledTwice(Net):
    """The same convolution at two places, one before and one after a changing layer."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.conv(torch.tanh(self.norm0(self.stem(x)))))
        return self.head(self.norm2(self.conv(torch.tanh(x))).mean((2, 3)))


class CalledTwiceBefore(Net):
    """The same convolution twice, both times before a changing layer, with different inputs."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(torch.tanh(self.conv(torch.tanh(self.norm0(self.stem(x))))))
        return self.head(self.norm2(self.last(torch.tanh(self.norm1(x)))).mean((2, 3)))


class FunctionalInPlace(Net):
    """Plain code writes into a module's output, through a view even."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        F.leaky_relu_(x, 0.2)
        x = self.norm0(x)
        x[:, 1:].mul_(0.5)
        x = self.norm1(self.conv(x))
        return self.head(self.norm2(self.last(torch.tanh(x))).mean((2, 3)))


class AddsInPlace(Net):
    """A residual sum is written into the output of the stem, after a changing layer."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm0(self.stem(x))
        x += self.norm1(self.conv(torch.tanh(x)))
        return self.head(self.norm2(self.last(torch.tanh(x))).mean((2, 3)))


class Branches(nn.Module):
    """A block with two branches; the first changing layer lies in the one that is computed first."""

    def __init__(self, side_first: bool) -> None:
        super().__init__()
        self.side_first = side_first
        self.conv, self.norm1, self.side = conv(), nn.BatchNorm2d(4), conv()

    def forward(self, x: Tensor) -> Tensor:
        if self.side_first:
            side = self.side(x)
            return side + self.norm1(self.conv(x))
        return self.norm1(self.conv(x)) + self.side(x)


class WithBranches(nn.Module):
    def __init__(self, side_first: bool) -> None:
        super().__init__()
        self.stem, self.norm0 = conv(3), nn.BatchNorm2d(4)
        self.block = Branches(side_first)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.block(torch.tanh(self.norm0(self.stem(x))))).mean((2, 3)))


class Keywords(Net):
    """Modules are called with keywords."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm0(self.stem(x, scale=0.5)))
        x = self.norm1(self.conv(x=x, scale=2.0))
        return self.head(self.norm2(self.last(torch.tanh(x))).mean((2, 3)))


class ReturnsEarly(Net):
    """Some images never reach the later layers, and some never reach a changing one."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm0(self.stem(x)))
        if len(x) == 1:
            return self.head(x.mean((2, 3)))
        x = torch.tanh(self.norm1(self.conv(x)))
        if len(x) == 2:
            return self.head(x.mean((2, 3)))
        return self.head(self.norm2(self.last(x)).mean((2, 3)))


class PassesThrough(Net):
    """Modules that give back what they were given, which is written into later."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing, self.drop = nn.Identity(), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.nothing(self.norm0(self.stem(x))))
        x.sub_(0.25)
        x = self.norm1(self.conv(x))
        return self.head(self.norm2(self.last(torch.tanh(x))).mean((2, 3)))


class GivesPairs(Net):
    """A module whose output is no tensor cannot be repeated, but what it is made of can."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = conv(3), conv(3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.one(x), self.two(x)

    def __init__(self) -> None:
        super().__init__()
        self.stem = self.Pair()

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.stem(x)
        x = self.norm1(self.conv(torch.tanh(self.norm0(one) - two)))
        return self.head(self.norm2(self.last(torch.tanh(x))).mean((2, 3)))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "stem": Net,
    "in-place activation": InPlaceActivation,
    "called twice": CalledTwice,
    "called twice before": CalledTwiceBefore,
    "functional in-place": FunctionalInPlace,
    "adds in place": AddsInPlace,
    "side branch first": lambda: WithBranches(True),
    "side branch last": lambda: WithBranches(False),
    "keywords": Keywords,
    "returns early": ReturnsEarly,
    "passes through": PassesThrough,
    "gives pairs": GivesPairs,
}


def built(make: Callable[[], nn.Module], layers: str = "*norm[12]") -> nn.Module:
    torch.manual_seed(0)
    return surgeon.convert(randomise(make()).eval(), "example-weighted", layers=layers)


def plainly(model: nn.Module, images: Tensor, alphas: Sequence[float] = ALPHAS) -> list[Tensor]:
    """Whole passes, one per alpha, on fresh copies of the images."""
    axis = AlphaAxis(model)
    outputs = []
    with torch.inference_mode():
        for alpha in alphas:
            axis.set(alpha)
            outputs.append(model(images.clone()))
    return outputs


def shared(axis: AlphaAxis, images: Tensor, alphas: Sequence[float] = ALPHAS) -> list[Tensor]:
    with torch.inference_mode():
        return axis.logits(images.clone(), alphas)


def assert_equal(got: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.equal(mine, theirs)


def images(count: int = 3, seed: int = 0) -> Tensor:
    return randn(count, 3, 8, 8, seed=seed)


@pytest.mark.parametrize("network", NETWORKS)
def test_outputs_are_those_of_whole_passes_to_the_bit(network: str) -> None:
    model = built(NETWORKS[network])
    axis = AlphaAxis(model)
    for number, count in enumerate((3, 3, 1, 2, 5)):  # batches of different sizes, the traced one first
        batch = images(count, seed=number)
        expected = plainly(model, batch)
        assert_equal(shared(axis, batch), expected)
        if count > 2:
            assert not torch.equal(expected[0], expected[1]), "alpha has to matter"


@pytest.mark.parametrize("network", NETWORKS)
def test_the_forwards_of_all_modules_are_restored(network: str) -> None:
    model = built(NETWORKS[network])
    shared(AlphaAxis(model), images())
    for module in model.modules():
        assert "forward" not in vars(module)
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


@pytest.mark.parametrize(
    ("network", "once", "each_time"),
    [
        ("stem", ["stem", "conv"], ["last"]),
        ("side branch first", ["stem", "block.side", "block.conv"], []),
        ("side branch last", ["stem", "block.conv"], ["block.side"]),
        ("keywords", ["stem", "conv"], ["last"]),
        ("gives pairs", ["stem.one", "stem.two", "conv"], ["last"]),
    ],
)
def test_what_comes_before_is_computed_once_per_batch(network: str, once: list[str], each_time: list[str]) -> None:
    model = built(NETWORKS[network])
    axis = AlphaAxis(model)
    shared(axis, images())  # the first batch is traced, too
    counters = {name: m for name, m in model.named_modules() if isinstance(m, Counting)}
    for seed in (1, 2):
        for counter in counters.values():
            counter.passes = 0
        shared(axis, images(seed=seed))
        passes = {name: counter.passes for name, counter in counters.items()}
        assert passes == dict.fromkeys(once, 1) | dict.fromkeys(each_time, len(ALPHAS))


def test_finding_out_costs_no_pass_of_its_own() -> None:
    model = built(Net)
    shared(AlphaAxis(model), images())
    assert (model.stem.passes, model.last.passes) == (2, len(ALPHAS))


def test_two_networks_in_turn_do_not_mix() -> None:
    first, second = built(Net), built(InPlaceActivation)
    axes = AlphaAxis(first), AlphaAxis(second)
    for seed in range(3):
        batch = images(seed=seed)
        expected = [plainly(model, batch) for model in (first, second)]
        for axis, outputs in zip(axes, expected, strict=True):
            assert_equal(shared(axis, batch), outputs)


def test_a_batch_does_not_see_the_one_before() -> None:
    model = built(Net)
    axis = AlphaAxis(model)
    first, second = images(seed=1), images(seed=2)
    before = shared(axis, first)
    assert not torch.equal(shared(axis, second)[0], before[0])
    assert_equal(shared(axis, first), before)


def test_a_forward_of_the_modules_own_is_put_back() -> None:
    model = built(Net)
    own = model.stem.forward
    model.stem.forward = own
    shared(AlphaAxis(model), images())
    assert vars(model.stem)["forward"] is own


def test_forwards_are_restored_after_an_exception() -> None:
    model = built(Net)
    prefix = SharedPrefix(model, AlphaAxis(model).layers.values())
    over = prefix.over(images())
    over.__enter__()()
    assert "forward" in vars(model.stem)
    assert not over.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert not any("forward" in vars(module) for module in model.modules())


def test_hooks_are_removed_after_an_exception_in_the_traced_pass() -> None:
    model = built(Net)
    axis = AlphaAxis(model)
    with pytest.raises(RuntimeError):
        shared(axis, randn(2, 7, 8, 8))  # of 7 channels
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    batch = images()
    assert_equal(shared(axis, batch), plainly(model, batch))


def test_a_network_all_of_whose_norms_change_still_shares_its_stem() -> None:
    model = built(Net, layers="*")
    axis = AlphaAxis(model)
    batch = images()
    shared(axis, batch)
    model.stem.passes = model.conv.passes = 0
    got = shared(axis, batch)
    assert (model.stem.passes, model.conv.passes) == (1, len(ALPHAS))
    assert_equal(got, plainly(model, batch))


def test_views_of_different_sizes_share_too() -> None:
    torch.manual_seed(0)
    model = surgeon.convert(randomise(timm.create_model("resnet10t", num_classes=5)).eval(), "example-weighted")
    of_network = views["multi-scale"].for_network(
        Preprocessing(input_size=(3, 32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
    )
    batch = randn(2, *of_network.preprocessing.input_size)
    axis = AlphaAxis(model)
    got = predict_each(lambda x: axis.logits(x, ALPHAS), batch, of_network)
    expected = []
    for alpha in ALPHAS:
        axis.set(alpha)
        expected += predict_each(lambda x: [model(x)], batch, of_network)
    assert_equal(got, expected)


def test_a_real_network_with_only_its_last_stage_converted() -> None:
    torch.manual_seed(0)
    model = randomise(timm.create_model("resnet18", num_classes=10)).eval()
    model = surgeon.convert(model, "example-weighted", layers="layer4.*")
    model = model.to(memory_format=torch.channels_last)
    axis = AlphaAxis(model)
    for count in (2, 3):
        batch = randn(count, 3, 64, 64, seed=count).contiguous(memory_format=torch.channels_last)
        expected = plainly(model, batch)
        assert_equal(shared(axis, batch), expected)
        assert not torch.equal(expected[0], expected[1])
    with torch.inference_mode(), axis._prefix.over(batch) as forward:
        forward()
        replaced = {name for name, module in model.named_modules() if "forward" in vars(module)}
    assert {"conv1", "layer1", "layer2", "layer3", "layer4.0.conv1"} <= replaced
    assert "layer4" not in replaced


# --- networks that do unusual things


class CallsForward(Net):
    """The norm's forward is called directly, which no hook sees."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm1.forward(self.conv(torch.tanh(self.norm0(self.stem(x))))))
        return self.head(self.norm2.forward(self.last(x)).mean((2, 3)))


class WritesIntoImages(Net):
    """Scales its input in place."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mul_(0.5))


class OnlySometimesInPlace(Net):
    """Writes into the stem's output, of which the first batch shows nothing."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        F.leaky_relu_(x, 0.2)
        x = torch.tanh(self.norm1(x))
        return self.head(self.norm2(self.last(x)).mean((2, 3)))


def test_a_changing_layer_whose_forward_is_called_directly_still_changes() -> None:
    model = built(CallsForward)
    batch = images()
    assert_equal(shared(AlphaAxis(model), batch), plainly(model, batch))


def test_a_network_that_writes_into_its_images() -> None:
    model = built(WritesIntoImages)
    batch = images()
    assert_equal(shared(AlphaAxis(model), batch), plainly(model, batch))


def test_writing_in_place_is_found_out_also_where_the_first_images_are_black() -> None:
    model = built(OnlySometimesInPlace)
    axis = AlphaAxis(model)
    shared(axis, torch.zeros(2, 3, 8, 8))
    batch = images()
    assert_equal(shared(axis, batch), plainly(model, batch))
