"""What every insert promises, checked for all of them: a new one is covered without an edit here."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx
import torch.utils.checkpoint as checkpointing
from torch import Tensor, nn

import surgeon
from surgeon import checkpoint
from surgeon.core.errors import SurgeonError
from surgeon.inserts import Effect, inserts
from surgeon.inserts.base import RESIDUAL
from surgeon.layers.running import evaluate_once
from surgeon.surgery.apply import convert
from surgeon.surgery.inserting import taken_out, units_of
from tests.helpers import randn, small_images, small_resnet

# Settings under which something happens in every step, and other choices of each insert.
LIVELY = {
    "moex": ["p=1,seed=3", "p=1,norm=in,site=stage2", "p=1,norm=group-pono,groups=3,positive_only=true"],
    "crossnorm": [
        "p=1,seed=3",
        "p=1,mode=one-instance,active=9",
        "p=1,crop=both,active=3",
        "p=1,site=image",
        "p=1,site=layer2",
    ],
    "selfnorm": ["", "two_sided=true", "form=published", "site=stem"],
}
SPECS = [f"{name}:{options}" for name in inserts for options in LIVELY.get(name, [""])]
every_spec = pytest.mark.parametrize("spec", SPECS)
every_insert = pytest.mark.parametrize("name", list(inserts))
both_modes = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])


def converted(spec: str, *more: str) -> nn.Module:
    return convert(small_resnet(), spec, *more, inputs=(small_images(),))


def trained(model: nn.Module, steps: int = 2) -> nn.Module:
    """Moves every parameter, so that a unit which began as the identity is one no longer."""
    optimiser = torch.optim.SGD(model.train().parameters(), lr=0.1)
    for step in range(steps):
        optimiser.zero_grad()
        model(small_images(6, seed=step)).square().sum().backward()
        optimiser.step()
    return model


def effect(spec: str) -> Effect:
    (insertion, _), *_ = units_of(converted(spec))
    return insertion.effect


@every_spec
def test_the_original_is_left_alone_and_its_names_stay(spec: str) -> None:
    original = small_resnet()
    names = original.state_dict().keys()
    model = convert(original, spec, inputs=(small_images(),))
    assert original.state_dict().keys() == names
    assert names <= model.state_dict().keys()
    assert all("inserted_" in name for name in model.state_dict().keys() - names)
    assert all(isinstance(new, type(old)) for old, new in zip(original.modules(), _without_units(model), strict=True))


def _without_units(model: nn.Module) -> list[nn.Module]:
    return [module for name, module in model.named_modules() if "inserted_" not in name]


@every_spec
def test_evaluation_is_the_original_to_the_bit_unless_it_says_otherwise(spec: str) -> None:
    original, model = small_resnet(), converted(spec)
    ours, theirs = (evaluate_once(each, (small_images(),))[0] for each in (model, original))
    assert torch.equal(ours, theirs) is (effect(spec) is not Effect.AT_ONCE)
    with taken_out(model, model.surgery.insertions):
        assert torch.equal(evaluate_once(model, (small_images(),))[0], theirs)


@every_spec
def test_what_has_no_effect_has_none_after_training_either(spec: str) -> None:
    model = trained(converted(spec))
    plain = small_resnet()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if "inserted_" not in k})
    same = torch.equal(*(evaluate_once(each, (small_images(),))[0] for each in (model, plain)))
    assert same is (effect(spec) is Effect.NONE)


@every_spec
@pytest.mark.parametrize("batch", [2, 5])
def test_training_changes_what_passes_and_takes_any_batch(spec: str, batch: int) -> None:
    model = trained(converted(spec))
    x = small_images(batch)
    y = model(x)
    assert torch.isfinite(y).all()
    with taken_out(model, model.surgery.insertions):
        unchanged = model(x)
    if batch > 2:  # a permutation of two may be none
        assert not torch.equal(y, unchanged)
    assert y.shape == unchanged.shape


@every_spec
def test_gradients_reach_every_parameter_after_one_step(spec: str) -> None:
    model = trained(converted(spec), steps=1)
    model.zero_grad()
    model(small_images(6)).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


@every_spec
def test_a_copy_has_a_life_of_its_own(spec: str) -> None:
    model = trained(converted(spec)).train()
    twin, revived = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    outputs = []
    for each in (model, twin, revived):  # from the same state, whoever draws first
        torch.manual_seed(1)
        outputs.append([each(small_images(6, seed=step)).detach() for step in range(3)])
    for other in outputs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(outputs[0], other, strict=True))
    units = {id(m) for m in model.modules()}
    assert not units & {id(m) for each in (twin, revived) for m in each.modules()}


@every_insert
def test_a_seed_decides(name: str) -> None:
    if "seed" not in inserts[name].config.model_fields:
        pytest.skip(f"{name} draws nothing")

    def run(seed: int) -> Tensor:
        model = converted(f"{name}:p=0.5,seed={seed}").train()
        return torch.stack([model(small_images(6, seed=step)) for step in range(8)])

    first = run(3)
    torch.rand(5)  # torch's own generator has no say
    assert torch.equal(run(3), first)
    assert not torch.equal(run(4), first)


@every_spec
def test_a_checkpoint_gives_back_the_same_network(spec: str, tmp_path: Path) -> None:
    model = trained(converted(spec, "ghost:size=3")).eval()
    checkpoint.save(model, tmp_path / "out")
    loaded = checkpoint.load(tmp_path / "out", small_resnet())
    assert loaded.surgery == model.surgery
    assert torch.equal(*(evaluate_once(each, (small_images(),))[0] for each in (model, loaded)))


@every_spec
def test_norms_are_rewritten_before_and_after_and_units_are_no_norms(spec: str) -> None:
    one = convert(converted(spec), "ghost:size=3")
    other = convert(convert(small_resnet(), "ghost:size=3"), spec, inputs=(small_images(),))
    assert [o.layer for o in one.surgery.operations] == [o.layer for o in other.surgery.operations]
    assert not any("inserted_" in o.layer for o in one.surgery.operations)
    assert torch.equal(*(evaluate_once(each, (small_images(),))[0] for each in (one, other)))


@both_modes
@every_insert
@pytest.mark.long
def test_compiled_equals_eager(name: str, training: bool) -> None:
    torch._dynamo.reset()
    model = trained(converted(f"{name}:{LIVELY.get(name, [''])[0]}")).train(training)
    compiled = copy.deepcopy(model)
    compiled.compile(backend="eager")
    for step in range(2):
        x = small_images(6, seed=step)
        expected, actual = model(x), compiled(x)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)
        gradients = []
        for each, y in ((model, expected), (compiled, actual)):
            each.zero_grad()
            y.square().sum().backward()
            gradients.append([p.grad.clone() for p in each.parameters()])
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)


@every_insert
def test_evaluation_compiles_into_one_graph_and_is_traced(name: str) -> None:
    torch._dynamo.reset()
    model, x = trained(converted(name)).eval(), small_images()
    torch.compile(model, backend="eager", fullgraph=True)(x)
    assert torch.equal(torch.fx.symbolic_trace(model)(x), model(x))


@every_insert
def test_half_precision_and_double(name: str) -> None:
    model = converted(f"{name}:{LIVELY.get(name, [''])[0]}").train()
    for dtype in (torch.bfloat16, torch.float64):
        y = copy.deepcopy(model).to(dtype)(small_images(6).to(dtype))
        assert y.dtype == dtype
        assert torch.isfinite(y).all()


@every_insert
def test_is_documented_and_imports_no_torch(name: str) -> None:
    insert = inserts[name]
    assert insert.summary
    assert insert.paper
    assert all(field.description for field in insert.config.model_fields.values())
    code = f"import sys; from surgeon.inserts import inserts; inserts[{name!r}]; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@every_insert
def test_twice_at_one_site_is_refused(name: str) -> None:
    model = converted(name)
    with pytest.raises(SurgeonError, match=name):
        convert(model, name, inputs=(small_images(),))


def test_units_follow_one_another_in_the_order_asked_for() -> None:
    class Add(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1

    class Double(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    model = convert(small_resnet(), "crossnorm", "selfnorm", inputs=(small_images(),))
    block: Any = model.layer1[0]
    block.inserted_crossnorm_addition, block.inserted_selfnorm_addition = Add(), Double()
    x = randn(2, 6, 5, 5)
    original: Any = small_resnet().layer1[0]
    branch = original.bn2(original.conv2(torch.relu(original.bn1(original.conv1(x)))))
    assert torch.equal(block(x), torch.relu(2 * (x + branch + 1)))
    assert inserts["crossnorm"].config().site == RESIDUAL


def test_only_a_few_crossnorm_units_act_in_a_step() -> None:
    model = converted("crossnorm:active=2,p=0.5,seed=0").train()
    turns = next(unit.turns for _, unit in units_of(model))
    assert all(unit.turns is turns for _, unit in units_of(model))
    numbers = []
    for _ in range(60):
        model(small_images(2))
        numbers.append(len(turns.acting))
    assert set(numbers) == {0, 2}
    assert 15 < numbers.count(2) < 45
    acting = turns.acting
    model.eval()(small_images(2))
    assert turns.acting is acting  # evaluation is no step


class Recomputed(nn.Module):
    """Runs a module with activation checkpointing."""

    def __init__(self, module: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.module, self.reentrant = module, reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpointing.checkpoint(self.module, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("whole", [False, True], ids=["a stage", "the network"])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        "crossnorm:active=9,p=1",
        "crossnorm:active=2,p=0.7,crop=both,seed=1",
        "crossnorm:active=2,p=1,mode=one-instance,seed=1",
        "moex:site=layer2.0.bn1,p=0.5",
        "moex:site=layer2.0.bn1,p=0.5,seed=1",
    ],
)
def test_a_recomputation_draws_what_the_forward_drew(spec: str, reentrant: bool, whole: bool) -> None:
    model: Any = trained(converted(spec)).train()
    model.layer2.append(nn.Dropout(0.5))  # what follows a unit draws the same as well
    twin = copy.deepcopy(model)
    if whole:
        twin = Recomputed(twin, reentrant)
    else:
        twin.layer2 = Recomputed(twin.layer2, reentrant)
    for step in range(4):
        gradients = []
        for each in (model, twin):
            torch.manual_seed(step)
            each.zero_grad()
            each(small_images(6, seed=step).requires_grad_()).square().sum().backward()
            gradients.append([p.grad for p in each.parameters()])
        torch.testing.assert_close(gradients[1], gradients[0])


def test_a_recomputation_has_the_permutation_that_was_given() -> None:
    model: Any = trained(converted("moex:site=layer2.0.bn1,p=1")).train()
    twin = copy.deepcopy(model)
    twin.layer2 = Recomputed(twin.layer2, reentrant=False)
    following = torch.arange(6)
    gradients = []
    for each in (model, twin):
        unit = surgeon.exchange_unit(each)
        unit.permutation = torch.tensor([1, 2, 3, 4, 5, 0])
        each.zero_grad()
        loss = each(small_images(6)).square().sum()
        unit.permutation = following  # of the next step
        loss.backward()
        assert unit.permutation is following
        gradients.append([p.grad for p in each.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])
