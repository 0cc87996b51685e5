"""What every rewrite promises, checked for all of them: a new variant is covered without an edit here."""

from __future__ import annotations

import copy
import io
import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
import torch.fx
from pydantic import ValidationError
from timm.layers import BatchNormAct2d, FrozenBatchNormAct2d
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from surgeon.core.errors import SurgeonError
from surgeon.layers.surgical import SurgicalNorm
from surgeon.norms import NormVariant, Phase, norms
from surgeon.surgery.adapters import NormLayer, to_surgical
from surgeon.surgery.apply import convert
from surgeon.surgery.branches import branch
from surgeon.surgery.plan import RewriteRequest
from tests.helpers import randn, randomise, small_images, small_resnet
from tests.pairs import by_cases, covering_cases, in_pairs

CHANNELS = 6
BATCH = 7  # odd, and with groups of 3 the last group is a single example

Specs = tuple[str, ...]


def spec_text(name: str, options: dict[str, Any]) -> str:
    return f"{name}:{','.join(f'{key}={value}' for key, value in options.items())}"


def lively_specs(variant: NormVariant) -> Iterator[str]:
    """A variant at settings that show on small tensors: groups of 3, the far end of a swept range, every choice."""
    fields = variant.config.model_fields
    sweeps = {key: (field.json_schema_extra or {}).get("sweep") for key, field in fields.items()}
    identity = {} if variant.identity is None else variant.identity(SurgicalNorm(CHANNELS))
    options = {
        key: low if identity.get(key) == math.inf else high
        for key, (low, high) in ((key, sweep) for key, sweep in sweeps.items() if sweep)
    }
    options |= {key: 3 for key, field in fields.items() if type(field.default) is int}
    choices = {
        key: get_args(field.annotation) for key, field in fields.items() if get_origin(field.annotation) is Literal
    }
    choices |= {key: (False, True) for key, field in fields.items() if field.annotation is bool}
    for chosen in itertools.product(*choices.values()):
        yield spec_text(variant.name, options | dict(zip(choices, chosen, strict=True)))


def variants(specs: Specs) -> list[NormVariant]:
    return [norms[RewriteRequest.parse(spec).name] for spec in specs]


def phases(specs: Specs) -> set[Phase]:
    return {phase for variant in variants(specs) for phase in variant.changes}


def adds_state(specs: Specs) -> bool:
    return any(variant.adds_state for variant in variants(specs))


def trains_away(specs: Specs) -> bool:
    return any(variant.trains_away for variant in variants(specs))


SINGLE: list[Specs] = [(spec,) for name in norms for spec in lively_specs(norms[name])]
COMPOSED: list[Specs] = [
    ("ghost:size=3", "example-weighted:alpha=0.3"),
    ("batch-group:channel_groups=3,examples_per_group=3", "example-weighted:alpha=0.3"),
    ("split", "ghost:size=3"),
    ("split", "example-weighted:alpha=0.3"),
    ("split", "ghost:size=3", "example-weighted:alpha=0.3"),
    ("ghost:size=3", "instance-aware:k=1.0,weight=0.7"),
    ("instance-aware:k=1.0,weight=0.7", "example-weighted:alpha=0.3"),
    ("batch-group:channel_groups=3,examples_per_group=3", "instance-aware:k=1.0,weight=0.7"),
    ("split", "instance-aware:k=1.0,weight=0.7"),
]
EVERY = SINGLE + COMPOSED
every_rewrite = pytest.mark.parametrize("specs", EVERY, ids=" + ".join)
every_rewrite_of_inference_alone = pytest.mark.parametrize(
    "specs", [specs for specs in EVERY if Phase.TRAINING not in phases(specs)], ids=" + ".join
)
SPLITS = [specs for specs in EVERY if RewriteRequest.parse(specs[0]).name == "split"]
every_split = pytest.mark.parametrize("specs", SPLITS, ids=" + ".join)
every_variant = pytest.mark.parametrize("name", list(norms))

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], torch.memory_format]] = {
    "1d": (lambda: nn.BatchNorm1d(CHANNELS), (), torch.contiguous_format),
    "1d-sequence": (lambda: nn.BatchNorm1d(CHANNELS), (5,), torch.contiguous_format),
    "2d": (lambda: nn.BatchNorm2d(CHANNELS, eps=1e-3), (4, 3), torch.contiguous_format),
    "2d-channels-last": (lambda: nn.BatchNorm2d(CHANNELS), (4, 3), torch.channels_last),
    "3d": (lambda: nn.BatchNorm3d(CHANNELS), (2, 4, 3), torch.contiguous_format),
    "3d-channels-last": (lambda: nn.BatchNorm3d(CHANNELS), (2, 4, 3), torch.channels_last_3d),
    "unaffine": (lambda: nn.BatchNorm2d(CHANNELS, affine=False), (4, 3), torch.contiguous_format),
    "momentum-none": (lambda: nn.BatchNorm2d(CHANNELS, momentum=None), (4, 3), torch.contiguous_format),
    "relu": (lambda: BatchNormAct2d(CHANNELS, act_layer=nn.ReLU), (4, 3), torch.contiguous_format),
    "silu": (lambda: BatchNormAct2d(CHANNELS, act_layer=nn.SiLU), (4, 3), torch.channels_last),
    "sync": (lambda: nn.SyncBatchNorm(CHANNELS), (4, 3), torch.contiguous_format),
    "frozen-torchvision": (lambda: FrozenBatchNorm2d(CHANNELS), (4, 3), torch.contiguous_format),
    "frozen-timm": (lambda: FrozenBatchNormAct2d(CHANNELS, act_layer=nn.SiLU), (4, 3), torch.contiguous_format),
}
FROZEN = [kind for kind in LAYERS if "frozen" in kind]
every_frozen_layer = pytest.mark.parametrize("kind", FROZEN)
TRAINABLE = [kind for kind in LAYERS if kind not in FROZEN]
every_trainable_layer = pytest.mark.parametrize("kind", TRAINABLE)


def rewritten_kinds(kinds: list[str]) -> list[tuple[Specs, str]]:
    """Every rewrite alone with every kind of layer; and compositions, whose parts have met all, in turn with each."""
    rounds = range(max(len(COMPOSED), len(kinds)))
    return [
        *itertools.product(SINGLE, kinds),
        *((COMPOSED[i % len(COMPOSED)], kinds[i % len(kinds)]) for i in rounds),
    ]


every_rewritten_layer = by_cases(("specs", "kind"), rewritten_kinds(TRAINABLE))
BATCHES = [2, 3, 4, 5]


def make(kind: str = "2d") -> tuple[nn.Module, Tensor]:
    """A layer with random state in evaluation mode, and an input with a mean and a scale of its own."""
    build, positions, memory_format = LAYERS[kind]
    x = 0.3 + 1.7 * randn(BATCH, CHANNELS, *positions)
    return randomise(build()).eval(), x.to(memory_format=memory_format)


def identity_specs(specs: Specs, layer: nn.Module) -> Specs:
    """The same rewrites at the settings where they must equal the original in evaluation."""
    result = []
    for request in map(RewriteRequest.parse, specs):
        identity = norms[request.name].identity
        if identity is None:
            pytest.skip(f"{request.name} has no identity setting")
        norm = to_surgical(NormLayer("", copy.deepcopy(layer)))
        result.append(spec_text(request.name, {**request.options, **identity(norm)}))
    return tuple(result)


def as_bits(layer: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in layer.state_dict().items()}


def assert_same_state(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def assert_same_up_to_rounding(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    """Running statistics of both halves at once come from another kernel; all else is the same to the bit."""
    assert first.keys() == second.keys()
    for name, value in first.items():
        tolerance = 1e-6 if name in ("running_mean", "running_var") else 0
        torch.testing.assert_close(value, second[name], rtol=tolerance, atol=tolerance)


def floats(layer: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in layer.state_dict().items() if value.is_floating_point()}


def original_part(converted: nn.Module, original: nn.Module, specs: Specs) -> dict[str, Tensor]:
    """What a converted layer or network holds under the original's names; others only by rewrites that say so."""
    ours, theirs = as_bits(converted), original.state_dict()
    kept = {name: value for name, value in ours.items() if name in theirs}
    assert list(kept) == list(theirs)
    assert (len(ours) > len(theirs)) == adds_state(specs)
    return kept


def outputs_and_gradients(layer: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Output and gradients of the input and of what took part, under a loss that no symmetry can hide."""
    x = x.clone().requires_grad_()
    y = layer(x)
    (y * randn(*y.shape, seed=9, dtype=y.dtype)).sum().backward()
    parameters = {name: p.grad for name, p in layer.named_parameters() if p.grad is not None}
    gradients = {f"gradient of {name}": gradient for name, gradient in parameters.items()}
    return {"output": y.detach(), "gradient of input": x.grad, **gradients}


def names_of_gradients(layer: nn.Module) -> set[str]:
    return {f"gradient of {name}" for name in ("input", *dict(layer.named_parameters()))}


# ---- evaluation ----


def assert_identical_in_evaluation(specs: Specs, kind: str) -> None:
    layer, x = make(kind)
    converted = convert(layer, *identity_specs(specs, layer))
    assert isinstance(converted, SurgicalNorm)
    assert not converted.training
    with torch.no_grad():
        expected, actual = layer(x.clone()), converted(x.clone())
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
    assert actual.stride() == expected.stride()


@every_rewritten_layer
def test_at_its_identity_setting_evaluation_is_the_original(specs: Specs, kind: str) -> None:
    assert_identical_in_evaluation(specs, kind)


@every_frozen_layer
@every_rewrite
def test_a_frozen_layer_is_refused_or_stays_the_original_in_evaluation(specs: Specs, kind: str) -> None:
    try:
        assert_identical_in_evaluation(specs, kind)
    except SurgeonError as error:
        assert "is frozen" in error.message  # noqa: PT017
        assert Phase.TRAINING in phases(specs)


@every_frozen_layer
@every_rewrite_of_inference_alone
def test_a_frozen_layer_trains_as_it_was(specs: Specs, kind: str) -> None:
    layer, x = make(kind)
    converted = convert(layer, *specs).train()
    added = as_bits(converted)
    assert torch.equal(converted(x.clone()), layer.train()(x.clone()))
    assert_same_state(original_part(converted, layer, specs), as_bits(layer))
    assert_same_state(as_bits(converted), added)


@every_rewritten_layer
def test_evaluating_an_example_does_not_depend_on_its_batch(specs: Specs, kind: str) -> None:
    layer, x = make(kind)
    converted = convert(layer, *specs)
    with torch.no_grad():
        together = converted(x.clone())
        assert together.stride() == layer(x.clone()).stride()
        for index in range(len(x)):
            alone = converted(x[index : index + 1].clone())
            torch.testing.assert_close(alone, together[index : index + 1], rtol=1e-5, atol=1e-5)


@every_rewrite
def test_evaluation_leaves_the_layer_alone_and_is_deterministic(specs: Specs) -> None:
    layer, x = make()
    converted = convert(layer, *specs)
    before = as_bits(converted)
    assert torch.equal(converted(x), converted(x))
    assert_same_state(as_bits(converted), before)


@every_rewrite
def test_evaluation_takes_an_empty_batch_like_the_original(specs: Specs) -> None:
    layer, x = make()
    assert convert(layer, *specs)(x[:0]).shape == layer(x[:0]).shape


@pytest.mark.parametrize("channels", [1, CHANNELS // 2, 2 * CHANNELS])
@every_rewrite
def test_another_number_of_channels_is_refused_like_by_the_original(specs: Specs, channels: int) -> None:
    layer, _ = make()
    converted = convert(layer, *specs)
    for batch in (1, 2):
        with torch.no_grad(), pytest.raises(RuntimeError):
            converted(randn(batch, channels, 4, 3))


# ---- training ----


@every_rewritten_layer
def test_training_moves_the_running_statistics_and_evaluation_then_uses_them(specs: Specs, kind: str) -> None:
    """The layer's own statistics or added ones; a rewrite with none at all does the same in training."""
    layer, x = make(kind)
    converted = convert(layer, *specs)
    with torch.no_grad():
        before, state = converted(x.clone()), as_bits(converted)
        y = converted.train()(x.clone())
        after = converted.eval()(x.clone())
    assert y.shape == x.shape
    assert y.stride() == before.stride()
    assert torch.isfinite(y).all()
    moved = moved_statistics(state, as_bits(converted))
    if trains_away(specs) and not moved:
        assert converted.num_batches_tracked == state["num_batches_tracked"]
        torch.testing.assert_close(y, before)
        return
    part = "modes." if trains_away(specs) else ""
    assert moved == {f"{part}running_mean", f"{part}running_var"}
    assert converted.num_batches_tracked == state["num_batches_tracked"] + 1
    assert not torch.allclose(after, before)


def moved_statistics(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    """The running statistics of which every number has moved; of the others, none has."""
    names = [name for name in before if "running" in name]
    moved = {name for name in names if not torch.isclose(after[name], before[name]).any()}
    assert all(name in moved or torch.equal(after[name], before[name]) for name in names)
    return moved


@every_rewrite
def test_training_is_deterministic(specs: Specs) -> None:
    layer, x = make()
    first, second = (convert(layer, *specs).train() for _ in range(2))
    assert torch.equal(first(x), second(x))
    assert_same_state(as_bits(first), as_bits(second))


@every_trainable_layer
@every_rewrite_of_inference_alone
def test_a_rewrite_of_inference_alone_trains_like_the_original(specs: Specs, kind: str) -> None:
    layer, x = make(kind)
    converted = convert(layer, *specs).train()
    layer.train()
    added = as_bits(converted)
    for step in range(3):
        theirs, ours = (outputs_and_gradients(each, x + step) for each in (layer, converted))
        assert_same_state(ours, theirs)
    state = original_part(converted, layer, specs)
    assert_same_state(state, as_bits(layer))
    shared = () if "split:shared_affine=True" not in specs else ("aux.weight", "aux.bias")
    assert_same_state(
        {name: value for name, value in as_bits(converted).items() if name not in (*state, *shared)},
        {name: value for name, value in added.items() if name not in (*state, *shared)},
    )


@by_cases(
    ("specs", "batch", "kind"),
    [  # without positions, what is left of a batch may be a single value
        *itertools.product(EVERY, BATCHES, ["1d"]),
        *covering_cases(EVERY, BATCHES, ["1d-sequence", "2d-channels-last"]),
    ],
)
def test_training_takes_any_batch(specs: Specs, batch: int, kind: str) -> None:
    layer, x = make(kind)
    converted = convert(layer, *specs).train()
    results = outputs_and_gradients(converted, x[:batch])
    assert names_of_gradients(layer) <= results.keys()
    for name, value in results.items():
        assert torch.isfinite(value).all(), name
    for name, value in converted.state_dict().items():
        assert torch.isfinite(value).all(), name


@every_rewrite
def test_training_on_one_value_per_channel_is_refused_like_by_the_original(specs: Specs) -> None:
    layer, x = make("1d")
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        convert(layer, *identity_specs(specs, layer)).train()(x[:1])


@pytest.mark.parametrize("kind", ["1d", "2d", "2d-channels-last", "silu"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@every_rewrite
def test_gradients_reach_input_and_parameters(specs: Specs, training: bool, kind: str) -> None:
    """Those of the original, and the added ones that take part: all but a branch that is not taken."""
    layer, x = make(kind)
    converted = convert(layer, *specs).train(training)
    results = outputs_and_gradients(converted, x)
    taking_part = {name for name in names_of_gradients(converted) if "gradient of aux." not in name}
    assert results.keys() == {"output", *taking_part}
    for name, value in results.items():
        assert torch.isfinite(value).all(), name
        if training or name in names_of_gradients(layer):  # modes start equal: evaluation cannot tell their gates apart
            assert value.abs().sum() > 1e-3, name


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@every_rewrite
def test_gradients_are_those_of_finite_differences(specs: Specs, training: bool) -> None:
    layer, _ = make("1d-sequence")
    converted = convert(layer.double(), *specs).train(training)

    names = [name for name, _ in converted.named_parameters() if not name.startswith("aux.")]

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(converted, dict(zip(names, parameters, strict=True)), (x,))

    x = randn(4, CHANNELS, 2, dtype=torch.float64).requires_grad_()
    parameters = [converted.get_parameter(name).detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(run, (x, *parameters))


# ---- number formats ----


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@every_rewrite
def test_float64_stays_float64(specs: Specs, training: bool) -> None:
    layer, x = make()
    single, double = convert(layer, *specs).train(training), convert(layer.double(), *specs).train(training)
    y = double(x.double())
    assert y.dtype == torch.float64
    torch.testing.assert_close(y, single(x).double(), rtol=1e-5, atol=1e-5)
    for name, value in floats(double).items():
        assert value.dtype == torch.float64
        torch.testing.assert_close(value, single.state_dict()[name].double(), rtol=1e-5, atol=1e-5)


@in_pairs(specs=EVERY, training=[True, False], kind=["2d", "unaffine"])
def test_bfloat16_inputs_are_normalised_as_exactly_as_they_can_be_written(
    specs: Specs, training: bool, kind: str
) -> None:
    layer, x = make(kind)
    x = (x + 20).bfloat16()
    single = convert(layer, *specs).train(training)
    half = copy.deepcopy(single)
    expected, y = single(x.float()), half(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, rtol=2**-7, atol=2**-7)
    for name, value in floats(half).items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, single.state_dict()[name], rtol=1e-4, atol=1e-4)


@in_pairs(specs=EVERY, training=[True, False], kind=["2d", "unaffine"])
def test_a_bfloat16_layer_is_close_to_float32(specs: Specs, training: bool, kind: str) -> None:
    layer, x = make(kind)
    single = convert(layer, *specs).train(training)
    half = copy.deepcopy(single).bfloat16()
    expected, y = single(x.bfloat16().float()), half(x.bfloat16())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), expected, rtol=0.05, atol=0.05)
    for name, value in floats(half).items():
        torch.testing.assert_close(value.float(), single.state_dict()[name], rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@every_rewrite
def test_the_weight_of_the_example_follows_the_layer_but_is_never_rounded(specs: Specs, dtype: torch.dtype) -> None:
    converted = convert(make()[0], *specs)
    alpha = converted.alpha.clone()
    assert "alpha" not in converted.state_dict()
    moved = converted.to(dtype)
    assert moved.alpha.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    torch.testing.assert_close(moved.alpha.float(), alpha, rtol=0, atol=0)


# ---- compilation ----


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@every_rewrite
@pytest.mark.long
def test_compiles_into_one_graph_that_equals_eager(specs: Specs, training: bool) -> None:
    torch._dynamo.reset()
    layer, x = make()
    eager = convert(layer.double(), *specs).train(training)
    compiled = copy.deepcopy(eager)
    compiled.compile(backend="aot_eager", fullgraph=True)
    expected, actual = ({**outputs_and_gradients(each, x.double()), **each.state_dict()} for each in (eager, compiled))
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@every_rewrite
def test_a_network_is_traced_symbolically_like_the_original(specs: Specs) -> None:
    """torchvision's and timm's feature extractors trace networks with torch.fx."""
    converted, images = convert(small_resnet(), *specs), small_images()
    with torch.no_grad():
        torch.testing.assert_close(torch.fx.symbolic_trace(converted)(images), converted(images))


def test_compiled_by_inductor_equals_eager() -> None:
    torch._dynamo.reset()
    layer, x = make("2d-channels-last")
    eager = convert(layer, *COMPOSED[0])
    compiled = torch.compile(copy.deepcopy(eager))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), eager(x), rtol=1e-5, atol=1e-5)


# ---- state ----


@by_cases(
    ("specs", "kind"),
    [(s, kind) for s, kind in rewritten_kinds(list(LAYERS)) if kind not in FROZEN or Phase.TRAINING not in phases(s)],
)
def test_state_has_the_original_names_and_loads_back_into_the_original_class(specs: Specs, kind: str) -> None:
    layer, x = make(kind)
    converted = convert(layer, *identity_specs(specs, layer))
    assert_same_state(original_part(converted, layer, specs), as_bits(layer))
    if not trains_away(specs):
        converted.train()(x.clone())
    plain = LAYERS[kind][0]()
    load_back(converted, plain, specs)
    with torch.no_grad():
        torch.testing.assert_close(converted.eval()(x.clone()), plain.eval()(x.clone()), rtol=1e-6, atol=1e-6)


def load_back(converted: nn.Module, plain: nn.Module, specs: Specs) -> None:
    """Into the original class; what was added is left over, and nothing is missing."""
    kept = original_part(converted, plain, specs)
    left = plain.load_state_dict(converted.state_dict(), strict=not adds_state(specs))
    assert not left.missing_keys
    assert_same_state(as_bits(plain), kept)


@every_rewrite
def test_a_converted_network_loads_back_into_the_plain_one(specs: Specs) -> None:
    plain, images = small_resnet(), small_images(BATCH)
    converted = convert(plain, *identity_specs(specs, nn.BatchNorm2d(CHANNELS)))
    if not trains_away(specs):
        converted.train()(images).sum().backward()
    load_back(converted, plain, specs)
    with torch.no_grad():
        torch.testing.assert_close(converted.eval()(images), plain(images), rtol=1e-5, atol=1e-5)


@every_rewrite
def test_a_layer_restored_from_its_state_continues_where_it_stopped(specs: Specs) -> None:
    layer, x = make("momentum-none")
    trained = convert(layer, *specs).train()
    for step in range(3):
        trained(x + step)
    restored = convert(LAYERS["momentum-none"][0](), *specs).train()
    restored.load_state_dict(trained.state_dict(), strict=True)
    assert torch.equal(trained(x), restored(x))
    assert_same_state(as_bits(trained), as_bits(restored))
    assert torch.equal(trained.eval()(x), restored.eval()(x))


@every_rewrite
def test_a_file_from_before_the_batch_counter_loads_like_into_the_original(specs: Specs) -> None:
    layer, _ = make()
    old = {name: value for name, value in layer.state_dict().items() if name != "num_batches_tracked"}
    LAYERS["2d"][0]().load_state_dict(dict(old), strict=True)
    fill(convert(layer, *specs), old, specs)


def fill(converted: nn.Module, plain_state: dict[str, Tensor], specs: Specs) -> None:
    """From a file of the original; what the rewrite added stays as it was."""
    for name, buffer in converted.named_buffers():
        if name.endswith("num_batches_tracked"):
            buffer.fill_(5)
    before = as_bits(converted)
    lost = converted.load_state_dict(dict(plain_state), strict=not adds_state(specs))
    assert not lost.unexpected_keys
    added = {name: value for name, value in as_bits(converted).items() if "." in name}
    assert set(lost.missing_keys) <= added.keys()
    assert_same_state(added, {name: before[name] for name in added})


@every_frozen_layer
@every_rewrite_of_inference_alone
def test_a_frozen_layer_ignores_the_batch_counter_of_a_file_like_the_original(specs: Specs, kind: str) -> None:
    layer, _ = make(kind)
    thawed = make("2d")[0].state_dict()
    layer.load_state_dict(dict(thawed), strict=True)
    fill(convert(layer, *specs), thawed, specs)


@every_rewrite
def test_a_copy_is_equal_and_independent(specs: Specs) -> None:
    layer, x = make("silu")
    converted = convert(layer, *specs)
    before, y = as_bits(converted), converted(x)
    duplicate = copy.deepcopy(converted)
    assert duplicate.rewrites == converted.rewrites
    assert torch.equal(duplicate(x), y)
    outputs_and_gradients(duplicate.train(), x)
    assert not converted.training
    assert converted.weight.grad is None
    assert_same_state(as_bits(converted), before)
    assert torch.equal(converted(x), y)


@every_rewrite
def test_a_pickled_layer_is_the_same_layer(specs: Specs) -> None:
    layer, x = make("silu")
    converted = convert(layer, *specs)
    file = io.BytesIO()
    torch.save(converted, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert torch.equal(loaded(x), converted(x))
    assert torch.equal(loaded.train()(x), converted.train()(x))


@every_rewritten_layer
def test_buffers_stay_in_place_and_hold_all_state(specs: Specs, kind: str) -> None:
    """DistributedDataParallel broadcasts registered buffers by reference: none may be exchanged or hidden."""
    layer, x = make(kind)
    converted = convert(layer, *specs).train()
    buffers = dict(converted.named_buffers())
    added = {name for name in buffers if "." in name}
    assert buffers.keys() - added == {*dict(layer.named_buffers()), "alpha"}
    assert adds_state(specs) or not added
    for step in range(3):
        converted(x + step)
    converted.eval()(x.clone())
    assert {name: id(t) for name, t in converted.named_buffers()} == {name: id(t) for name, t in buffers.items()}
    rules = [rule for rule in (converted.training_rule, converted.whole_rule) if rule is not None]
    hidden = [value for holder in (*converted.modules(), *rules) for value in vars(holder).values()]
    assert not any(isinstance(value, Tensor) for value in hidden)


# ---- branches ----


def make_even(kind: str = "2d") -> tuple[nn.Module, Tensor]:
    """The same with an even batch: an odd one has no halves."""
    layer, x = make(kind)
    return layer, x[: BATCH - 1]


@in_pairs(specs=SPLITS, kind=list(LAYERS), taken=["main", "aux", "halves"])
def test_every_branch_starts_as_the_original_in_evaluation(specs: Specs, kind: str, taken: str) -> None:
    if kind in FROZEN and Phase.TRAINING in phases(specs):
        pytest.skip("a frozen layer never takes batch statistics")
    layer, x = make_even(kind)
    converted = convert(layer, *identity_specs(specs, layer))
    with torch.no_grad(), branch(converted, taken):
        expected, actual = layer(x.clone()), converted(x.clone())
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)
    assert actual.stride() == expected.stride()


@in_pairs(specs=SPLITS, kind=TRAINABLE, training=[True, False])
def test_halves_are_two_layers_that_each_see_one_half(specs: Specs, kind: str, training: bool) -> None:
    layer, x = make_even(kind)
    converted = convert(layer, *specs).train(training)
    if "split:shared_affine=True" not in specs:
        randomise(converted.aux, seed=3)
    alone = [convert(layer, *specs[1:] or ["example-weighted"]).train(training) for _ in range(2)]
    own = {name: value for name, value in converted.aux.state_dict().items() if not name.startswith("aux.")}
    alone[1].load_state_dict(own)
    for _ in range(2):
        with branch(converted, "halves"):
            y = converted(x.clone())
        halves = x.chunk(2)
        torch.testing.assert_close(y, torch.cat([each(half) for each, half in zip(alone, halves, strict=True)]))
    assert y.stride() == layer(x.clone()).stride()
    first, second = (each.state_dict() for each in alone)
    state = as_bits(converted)
    assert_same_up_to_rounding({name: state[name] for name in first}, first)
    assert_same_up_to_rounding({name: state[f"aux.{name}"] for name in second}, second)


@pytest.mark.parametrize("taken", ["main", "aux", "halves"])
@every_split
def test_gradients_and_statistics_of_the_branches_that_are_taken(specs: Specs, taken: str) -> None:
    layer, x = make_even()
    converted = convert(layer, *specs).train()
    before = as_bits(converted)
    with branch(converted, taken):
        results = outputs_and_gradients(converted, x)
    shared = "split:shared_affine=True" in specs
    parts = {"main": [""], "aux": ["aux."], "halves": ["", "aux."]}[taken]
    parameters = {f"{'' if shared else part}{name}" for part in parts for name in ("weight", "bias")}
    assert results.keys() == {"output", "gradient of input", *(f"gradient of {name}" for name in parameters)}
    assert all(value.abs().sum() > 1e-3 for value in results.values())
    after = as_bits(converted)
    assert moved_statistics(before, after) == {f"{part}running_{name}" for part in parts for name in ("mean", "var")}
    for part in ("", "aux."):
        counted = after[f"{part}num_batches_tracked"] - before[f"{part}num_batches_tracked"]
        assert counted == (part in parts)


@every_split
def test_a_compiled_layer_takes_the_branch_that_is_asked_for(specs: Specs) -> None:
    torch._dynamo.reset()
    layer, x = make_even()
    eager = convert(layer, *specs)
    randomise(eager.aux, seed=3)
    compiled = copy.deepcopy(eager)
    compiled.compile(backend="eager", fullgraph=True)
    with torch.no_grad():
        for taken in ("main", "aux", "halves", "main"):
            with branch(eager, taken), branch(compiled, taken):
                torch.testing.assert_close(compiled(x), eager(x))


# ---- registration ----


@every_variant
def test_every_option_is_documented_and_fixed(name: str) -> None:
    variant = norms[name]
    assert variant.summary
    assert variant.paper
    assert variant.version >= 1
    assert variant.changes
    config = variant.configure({})
    for key, field in variant.config.model_fields.items():
        assert (field.description or "").strip(), f"{name}: {key} is not documented"
        with pytest.raises(ValidationError, match="frozen"):
            setattr(config, key, field.default)


@every_variant
def test_an_unknown_option_is_refused(name: str) -> None:
    with pytest.raises(SurgeonError, match="has no option 'colour'"):
        norms[name].configure({"colour": 1})


@every_variant
def test_a_swept_option_takes_both_ends_of_its_range(name: str) -> None:
    variant = norms[name]
    for key, field in variant.config.model_fields.items():
        for end in (field.json_schema_extra or {}).get("sweep", []):
            assert math.isclose(getattr(variant.configure({key: end}), key), end)


def test_variants_are_listed_without_importing_torch() -> None:
    code = "import sys, surgeon.norms; assert list(surgeon.norms.norms); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
