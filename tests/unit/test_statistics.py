"""The arithmetic of statistics against formulas written out in float64, and the kernels against torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.layers import native, statistics
from surgeon.layers.statistics import Statistics
from surgeon.surgery.apply import convert
from tests.helpers import randn, randomise
from tests.reference.norms import example_weighted_reference, mixed_moments_reference

SINGLE = torch.finfo(torch.float32).eps

quick = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**31)
offsets = st.sampled_from([0.0, 1.0, -30.0, 1e3, 1e4])
needs_kernel = pytest.mark.skipif(not native.available(), reason="the kernels were not compiled at installation")


def moments(x: Tensor, *dims: int) -> Statistics:
    var, mean = torch.var_mean(x, dim=dims, correction=0)
    return Statistics(mean, var)


def assert_statistics(actual: Statistics, expected: Statistics, rtol: float, atol: float = 0.0) -> None:
    for name in ("mean", "var"):
        torch.testing.assert_close(
            getattr(actual, name).double(), getattr(expected, name).double(), rtol=rtol, atol=atol
        )


# ---- mixing ----


def random_statistics(seed: int, offset: float, dtype: torch.dtype) -> Statistics:
    return Statistics((offset + randn(5, seed=seed)).to(dtype), randn(5, seed=seed + 1).exp().to(dtype))


@given(seed=seeds, offset=offsets, share=st.floats(0, 1, width=32))
@example(seed=0, offset=1e4, share=0.0)
@example(seed=0, offset=1e4, share=1.0)
@quick
def test_mix_is_the_mixture_of_both_moments_and_does_not_cancel(seed: int, offset: float, share: float) -> None:
    base, other = (random_statistics(s, offset, torch.float32) for s in (seed, seed + 2))
    mixed = statistics.mix(base, other, share)
    assert (mixed.var >= 0).all()
    base64, other64 = (Statistics(*(t.double() for t in stats)) for stats in (base, other))
    mean = share * other64.mean + (1 - share) * base64.mean
    square = share * (other64.var + other64.mean.square()) + (1 - share) * (base64.var + base64.mean.square())
    torch.testing.assert_close(mixed.mean.double(), mean, rtol=4 * SINGLE, atol=4 * SINGLE)
    torch.testing.assert_close(mixed.var.double(), square - mean.square(), rtol=16 * SINGLE, atol=1e-7)


@given(seed=seeds)
@quick
def test_mix_takes_a_share_per_channel_and_keeps_its_ends_exactly(seed: int) -> None:
    base, other = (random_statistics(s, 3.0, torch.float64) for s in (seed, seed + 2))
    mixed = statistics.mix(base, other, torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64))
    assert mixed.mean[0] == base.mean[0]
    assert mixed.var[0] == base.var[0]
    torch.testing.assert_close(mixed.mean[4], other.mean[4])
    assert mixed.var[4] == other.var[4]
    for channel, share in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
        alone = statistics.mix(base, other, share)
        assert mixed.mean[channel] == alone.mean[channel]
        assert mixed.var[channel] == alone.var[channel]


@given(seed=seeds, sizes=st.lists(st.integers(1, 7), min_size=1, max_size=5), offset=offsets)
@quick
def test_pool_gives_the_statistics_of_the_union(seed: int, sizes: list[int], offset: float) -> None:
    parts = [offset + randn(size, 3, 4, seed=seed + i, dtype=torch.float64) for i, size in enumerate(sizes)]
    each = [moments(part, 0, 2) for part in parts]
    stacked = Statistics(torch.stack([s.mean for s in each]), torch.stack([s.var for s in each]))
    pooled = statistics.pool(stacked, torch.tensor(sizes))
    assert_statistics(pooled, moments(torch.cat(parts), 0, 2), rtol=1e-11, atol=1e-11)


@given(seed=seeds, groups=st.sampled_from([1, 2, 3, 6]), offset=offsets)
@quick
def test_sharing_within_groups_gives_the_statistics_of_all_channels_of_the_group(
    seed: int, groups: int, offset: float
) -> None:
    x = offset + randn(2, 6, 5, seed=seed, dtype=torch.float64)
    shared = statistics.share_within_groups(statistics.example_statistics(x), groups)
    per_group = moments(x.reshape(2, groups, -1), 2)
    expected = Statistics(*(t.repeat_interleave(6 // groups, dim=1) for t in per_group))
    assert_statistics(shared, expected, rtol=1e-9, atol=1e-12)


def test_an_example_without_positions_is_its_own_mean_without_variance() -> None:
    x = randn(3, 4)
    own = statistics.example_statistics(x)
    assert torch.equal(own.mean, x)
    assert not own.var.any()


# ---- groups of examples ----


@given(examples=st.integers(1, 50), size=st.integers(2, 60), values=st.integers(1, 3))
@example(examples=9, size=4, values=1)
@example(examples=9, size=4, values=2)
@example(examples=1, size=4, values=2)
@quick
def test_groups_cover_the_batch_in_order_and_only_the_last_differs(examples: int, size: int, values: int) -> None:
    assume(examples * values > 1)
    bounds = statistics.group_bounds(examples, size, values)
    assert [i for start, stop in bounds for i in range(start, stop)] == list(range(examples))
    sizes = [stop - start for start, stop in bounds]
    *full, last = sizes
    assert all(s == min(size, examples) for s in full)
    lonely_remainder = values == 1 and examples > size and examples % size == 1
    assert last == (size + 1 if lonely_remainder else (examples % size or min(size, examples)))


# ---- example weighting: formula and kernel ----

LAYOUTS = {
    "row": torch.contiguous_format,
    "image": torch.contiguous_format,
    "image-channels-last": torch.channels_last,
    "volume": torch.contiguous_format,
    "volume-channels-last": torch.channels_last_3d,
}
POSITIONS = {"row": 1, "image": 2, "image-channels-last": 2, "volume": 3, "volume-channels-last": 3}


def random_input(layout: str, examples: int, channels: int, side: int, seed: int) -> Tensor:
    x = randn(examples, channels, *[side + i for i in range(POSITIONS[layout])], seed=seed)
    return x.to(memory_format=LAYOUTS[layout])


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@given(
    layout=st.sampled_from(list(LAYOUTS)),
    examples=st.integers(1, 4),
    channels=st.integers(1, 20),
    side=st.integers(1, 5),
    thread_count=st.integers(1, 3),
    affine=st.tuples(st.booleans(), st.booleans()),
    alpha=st.one_of(st.sampled_from([0.0, 0.3, 1.0]), st.none()),
    offset=offsets,
    seed=seeds,
)
@example("image-channels-last", 1, 64, 16, 3, (True, True), 0.3, 0.0, 0)  # more than one block per thread
@example("image-channels-last", 5, 3, 60, 2, (True, True), 0.3, 1e3, 0)
@example("image-channels-last", 1, 9000, 2, 3, (True, True), None, 0.0, 0)  # a row is more than a block
@example("image", 2, 3, 100, 2, (True, True), 0.3, 1e4, 0)
@quick
def test_formula_and_kernel_equal_the_float64_reference(
    layout: str,
    examples: int,
    channels: int,
    side: int,
    thread_count: int,
    affine: tuple[bool, bool],
    alpha: float | None,
    offset: float,
    seed: int,
) -> None:
    layer = randomise(nn.BatchNorm2d(channels), seed)
    layer.running_mean += offset
    x = offset + random_input(layout, examples, channels, side, seed)
    weight, bias = (
        p.detach() if wanted else None for p, wanted in zip((layer.weight, layer.bias), affine, strict=True)
    )
    layer.register_parameter("weight", None if weight is None else nn.Parameter(weight))
    layer.register_parameter("bias", None if bias is None else nn.Parameter(bias))
    shares = torch.full((channels,), alpha) if alpha is not None else torch.linspace(0, 1, channels)
    _, var = mixed_moments_reference(x, layer, shares)
    assume(var.min() > 0.01)  # an example of one position, or of two close ones, has next to no variance of its own

    expected = example_weighted_reference(x, layer, shares)
    # Rounding the input moves the output by this much; a few such errors add up.
    allowed = (1 + expected.abs()) * (1e-5 + 8 * SINGLE * x.abs().max() * 1.5 / var.sqrt())
    running = Statistics(layer.running_mean, layer.running_var)
    results = {"torch": statistics.example_weighted(x, running, weight, bias, shares, 1e-5, channels)}
    if native.available():
        with threads(thread_count):
            y = native.example_weighted(x, *running, weight, bias, shares, 1e-5)
        assert y is not None
        results["kernel"] = y
    for name, y in results.items():
        assert y.stride() == x.stride(), name
        excess = ((y.double() - expected).abs() / allowed).max()
        assert excess <= 1, f"{name} is {excess:.1f} times further off than rounding explains"


def kernel_arguments(x: Tensor, layer: nn.Module) -> tuple[Tensor | float | None, ...]:
    alpha = torch.full_like(layer.running_mean, 0.3)
    return x, layer.running_mean, layer.running_var, layer.weight, layer.bias, alpha, 1e-5


@needs_kernel
def test_the_kernel_steps_aside_where_a_gradient_is_wanted() -> None:
    x = randn(2, 4, 3, 3)
    layer = nn.BatchNorm2d(4)
    frozen = nn.BatchNorm2d(4).requires_grad_(False)
    assert native.example_weighted(*kernel_arguments(x, layer)) is None
    assert native.example_weighted(*kernel_arguments(x, frozen)) is not None
    assert native.example_weighted(*kernel_arguments(x.clone().requires_grad_(), frozen)) is None
    with torch.no_grad():
        assert native.example_weighted(*kernel_arguments(x.clone().requires_grad_(), layer)) is not None


@needs_kernel
def test_the_kernel_steps_aside_where_it_does_not_apply() -> None:
    layer = nn.BatchNorm2d(4).requires_grad_(False)
    unsuitable = {
        "float64": randn(2, 4, 3, 3, dtype=torch.float64),
        "bfloat16": randn(2, 4, 3, 3, dtype=torch.bfloat16),
        "no positions": randn(2, 4),
        "no examples": randn(0, 4, 3, 3),
        "strided": randn(2, 4, 3, 6)[..., ::2],
        "transposed": randn(4, 2, 3, 3).transpose(0, 1),
    }
    for name, x in unsuitable.items():
        assert native.example_weighted(*kernel_arguments(x, layer)) is None, name
    strided_statistics = list(kernel_arguments(randn(2, 4, 3, 3), layer))
    strided_statistics[1] = randn(8)[::2]
    assert native.example_weighted(*strided_statistics) is None


@pytest.mark.parametrize("make_input", [lambda x: x[..., ::2], lambda x: x.transpose(2, 3), lambda x: x.flip(0)])
def test_a_layer_takes_inputs_of_any_layout(make_input: Callable[[Tensor], Tensor]) -> None:
    layer = convert(randomise(nn.BatchNorm2d(4)).eval(), "example-weighted:alpha=0.3")
    x = make_input(randn(2, 4, 3, 6))
    with torch.no_grad():
        torch.testing.assert_close(layer(x).double(), example_weighted_reference(x, layer, 0.3), rtol=1e-5, atol=1e-5)


# ---- ghost groups ----


def grouped_by_hand(x: Tensor, weight: Tensor | None, bias: Tensor | None, bounds: list[tuple[int, int]]) -> Tensor:
    return torch.cat([F.batch_norm(x[a:b], None, None, weight, bias, True, 0.0, 1e-5) for a, b in bounds])


@given(
    layout=st.sampled_from([*LAYOUTS, "strided"]),
    examples=st.integers(2, 7),
    size=st.integers(2, 8),
    affine=st.tuples(st.booleans(), st.booleans()),
    loss=st.sampled_from(["weighted", "sum", "channels-last"]),
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_ghost_groups_equal_autograd_of_separate_batches(
    layout: str, examples: int, size: int, affine: tuple[bool, bool], loss: str, seed: int
) -> None:
    x = (
        randn(examples, 3, 4, 6, seed=seed)[..., ::2]
        if layout == "strided"
        else random_input(layout, examples, 3, 2, seed)
    )
    bounds = statistics.group_bounds(examples, size, x[0, 0].numel())
    upstream = randn(*x.shape, seed=seed + 1)
    if loss == "channels-last" and x.dim() == 4:
        upstream = upstream.contiguous(memory_format=torch.channels_last)

    def results(normalise: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor | None]:
        own = x.detach().clone(memory_format=torch.preserve_format).to(dtype).requires_grad_()
        parameters = [
            (randn(3, seed=seed + 2 + i) + 1).to(dtype).requires_grad_() if a else None for i, a in enumerate(affine)
        ]
        y = normalise(own, *parameters, bounds)
        # The gradient of a sum has stride 0 everywhere.
        (y.sum() if loss == "sum" else (y * upstream).sum()).backward()
        return [y.detach(), own.grad, *(None if p is None else p.grad for p in parameters)]

    found = results(lambda *args: statistics.normalise_groups(*args, 1e-5)[0], torch.float32)
    # The gradient of a parameter is a sum over examples and positions, of rounded terms: torch's is off by 1.6e-5.
    summed = 2e-7 * x.numel() / x.shape[1]
    for number, (ours, exact) in enumerate(zip(found, results(grouped_by_hand, torch.float64), strict=True)):
        if exact is None:
            assert ours is None
        else:
            assert ours is not None
            torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-5 if number < 2 else max(1e-5, summed))


@needs_kernel
@pytest.mark.parametrize("layout", ["image", "image-channels-last", "row", "volume-channels-last"])
@pytest.mark.parametrize("shape", [(16, 5, 9, 4), (24, 48, 11, 8), (9, 33, 3, 32), (6, 40, 30, 2), (4, 7, 70, 3)])
@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_ghost_outputs_and_gradients_are_near_those_of_float64(
    layout: str, shape: tuple[int, int, int, int], offset: float
) -> None:
    """To 1e-5, with one channel to a set of statistics and with more, by one thread and by two."""
    examples, channels, side, size = shape
    side = side if layout.startswith("image") else 4
    x = offset + random_input(layout, examples, channels, side, 0)
    upstream = random_input(layout, examples, channels, side, 1)
    bounds = statistics.group_bounds(examples, size, x[0, 0].numel())
    shared = next(d for d in (4, 3, 5, 7) if channels % d == 0)
    for channel_groups in (channels, channels // shared):
        results = []
        for dtype, thread_count in ((torch.float64, 1), (torch.float32, 1), (torch.float32, 2)):
            # A copy of the same layout, and parameters of the same values.
            own = x.detach().to(dtype).clone(memory_format=torch.preserve_format).requires_grad_()
            weight, bias = (
                t.to(dtype).requires_grad_() for t in (1 + randn(channels, seed=2), randn(channels, seed=3))
            )
            with threads(thread_count):
                if dtype is torch.float64:
                    y = normalised_in_groups(own, weight, bias, bounds, channel_groups)
                else:
                    assert native.takes_groups(own, weight, bias)
                    y, _ = statistics.normalise_groups(own, weight, bias, bounds, 1e-5, channel_groups)
                y.backward(upstream.to(dtype))
            results.append([y.detach(), own.grad, weight.grad, bias.grad])
        expected, *ours = results
        for each in ours:
            for name, value, truth in zip(("y", "x", "weight", "bias"), each, expected, strict=True):
                error = ((value.double() - truth).abs() / (1 + truth.abs().max())).max()
                assert error <= 1e-5, f"{name} with {channel_groups} channel groups is off by {error:.1e}"


def normalised_in_groups(
    x: Tensor, weight: Tensor, bias: Tensor, bounds: list[tuple[int, int]], channel_groups: int
) -> Tensor:
    """Written out: each group of examples and of channels by its mean and deviation."""
    parts = []
    for start, stop in bounds:
        cut = x[start:stop].reshape(stop - start, channel_groups, -1)
        mean = cut.mean((0, 2), keepdim=True)
        var = ((cut - mean) ** 2).mean((0, 2), keepdim=True)
        parts.append(((cut - mean) / (var + 1e-5).sqrt()).reshape(x[start:stop].shape))
    column = (-1, *[1] * (x.dim() - 2))
    return torch.cat(parts) * weight.reshape(column) + bias.reshape(column)


@given(examples=st.integers(2, 7), size=st.integers(2, 8), seed=seeds, offset=st.sampled_from([0.0, 100.0]))
@quick
def test_ghost_groups_report_their_statistics(examples: int, size: int, seed: int, offset: float) -> None:
    x = offset + randn(examples, 3, 4, seed=seed)
    bounds = statistics.group_bounds(examples, size, 4)
    _, groups = statistics.normalise_groups(x, None, None, bounds, eps=0.1)  # must not show in the variance
    for group, (start, stop) in enumerate(bounds):
        expected = moments(x[start:stop].double(), 0, 2)
        assert_statistics(Statistics(groups.mean[group], groups.var[group]), expected, rtol=1e-5, atol=1e-5)


def test_only_the_wanted_gradients_of_ghost_groups_are_computed() -> None:
    weight, bias = torch.ones(3, requires_grad=True), torch.zeros(3)
    y, _ = statistics.normalise_groups(randn(4, 3, 5), weight, bias, [(0, 2), (2, 4)], 1e-5)
    (y * randn(4, 3, 5, seed=1)).sum().backward()
    assert weight.grad is not None
    assert bias.grad is None


@pytest.mark.parametrize("momentum", [0.1, None])
def test_ghost_running_statistics_of_the_batch(momentum: float | None) -> None:
    """One step: E[x] and E[x^2] of all examples, whatever the groups (here of 4 and 1)."""
    layer = randomise(nn.BatchNorm2d(3, momentum=momentum))
    x = 2 + randn(5, 3, 4, 4)
    converted = convert(layer, "ghost:size=4,running=batch").train()
    factor = 1.0 if momentum is None else momentum
    mean = (1 - factor) * layer.running_mean + factor * x.mean((0, 2, 3))
    square = (1 - factor) * (layer.running_var + layer.running_mean**2) + factor * x.square().mean((0, 2, 3))
    converted(x)
    torch.testing.assert_close(converted.running_mean, mean)
    torch.testing.assert_close(converted.running_var, square - mean**2, rtol=1e-5, atol=1e-5)
    assert converted.num_batches_tracked == 1


@pytest.mark.parametrize("momentum", [0.1, None])
def test_ghost_running_statistics_of_the_groups(momentum: float | None) -> None:
    """One step: the plain average of what each group would have given as a batch of its own."""
    layer = randomise(nn.BatchNorm2d(3, momentum=momentum))
    x = 2 + randn(5, 3, 4, 4)
    converted = convert(layer, "ghost:size=4,running=groups").train()
    factor = 1.0 if momentum is None else momentum
    groups = (x[:4], x[4:])
    mean = torch.stack([group.mean((0, 2, 3)) for group in groups]).mean(0)
    var = torch.stack([group.var((0, 2, 3), correction=1) for group in groups]).mean(0)
    converted(x)
    torch.testing.assert_close(converted.running_mean, (1 - factor) * layer.running_mean + factor * mean)
    torch.testing.assert_close(converted.running_var, (1 - factor) * layer.running_var + factor * var)
    assert converted.num_batches_tracked == 1


def test_without_a_momentum_running_statistics_are_the_average_of_all_steps() -> None:
    converted = convert(nn.BatchNorm2d(3, momentum=None), "ghost:size=2").train()
    batches = [step + randn(4, 3, 4, 4, seed=step) for step in range(3)]
    for batch in batches:
        converted(batch)
    expected = moments(torch.cat(batches), 0, 2, 3)
    assert_statistics(Statistics(converted.running_mean, converted.running_var), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", ["ghost:size=1", "batch-group:channel_groups=channels,examples_per_group=1"])
def test_a_group_of_a_single_value_is_not_silently_normalised_away(spec: str) -> None:
    """Its variance is 0 and its output the bias alone, for any input: torch refuses such a batch."""
    layer = convert(nn.BatchNorm1d(4), spec).train()
    try:
        y = layer(randn(6, 4))
    except (ValueError, SurgeonError):
        return
    assert (y.abs().amax(1) > 0.1).all()


def test_batch_group_of_single_examples_is_group_norm_and_of_single_channels_is_ghost() -> None:
    layer, x = randomise(nn.BatchNorm2d(6)), randn(5, 6, 4, 4)
    y = convert(layer, "batch-group:channel_groups=3,examples_per_group=1").train()(x)
    torch.testing.assert_close(y, F.group_norm(x, 3, layer.weight, layer.bias, 1e-5), rtol=1e-5, atol=1e-5)
    ours, ghost = (
        convert(layer, spec).train()
        for spec in ("batch-group:channel_groups=channels,examples_per_group=2", "ghost:size=2")
    )
    torch.testing.assert_close(ours(x), ghost(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.state_dict(), ghost.state_dict(), rtol=1e-5, atol=1e-5)
