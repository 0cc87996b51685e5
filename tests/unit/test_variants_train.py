"""Every variant trains: the loss falls, everything new learns, compiled as not, and on two processes as on one."""

from __future__ import annotations

import contextlib
import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import surgeon
from surgeon.data.digits import load_digits
from surgeon.inserts import inserts
from surgeon.models.cifar import CifarResNet

VARIANTS = {
    "ghost": "ghost:size=8",
    "batch-group": "batch-group:channel_groups=4,examples_per_group=8",
    "split": "split",
    "mode": "mode:modes=2",
    "mode-group": "mode-group:modes=2",
}
BATCH = 32
every_variant = pytest.mark.parametrize("name", VARIANTS)


def small_net(name: str) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    return surgeon.convert(net, VARIANTS[name]).train()


def batch(step: int, size: int = BATCH) -> tuple[Tensor, Tensor]:
    images, labels = load_digits("train")
    rows = torch.randint(len(labels), (size,), generator=torch.Generator().manual_seed(step))
    return images[rows], labels[rows]


def loss_of(model: nn.Module, images: Tensor, labels: Tensor, name: str) -> Tensor:
    """Half of a split network's batch takes the auxiliary branch: here with noise, as if strongly augmented."""
    if name != "split":
        return F.cross_entropy(model(images), labels)
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    return F.cross_entropy(model(torch.cat([images, images + 0.3 * noise])), labels.repeat(2))


@contextlib.contextmanager
def training_branch(model: nn.Module, name: str) -> Iterator[None]:
    with surgeon.branch(model, "halves") if name == "split" else contextlib.nullcontext():
        yield


def train(model: nn.Module, name: str, steps: int, forward: nn.Module | None = None) -> list[float]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    with training_branch(model, name):
        for step in range(steps):
            loss = loss_of(forward or model, *batch(step), name)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return losses


@every_variant
def test_the_loss_falls_and_evaluation_predicts(name: str) -> None:
    model = small_net(name)
    losses = train(model, name, 60)
    assert sum(losses[-5:]) < 0.3 * sum(losses[:5])
    images, labels = load_digits("test")
    branches = ("main", "aux") if name == "split" else ("",)
    for each in branches:
        with torch.no_grad(), surgeon.branch(model, each) if each else contextlib.nullcontext():
            accuracy = (model.eval()(images).argmax(1) == labels).double().mean()
        assert accuracy > 0.75, each


@every_variant
def test_everything_new_learns_and_running_statistics_move(name: str) -> None:
    model = small_net(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    train(model, name, 3)
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key
        assert not torch.equal(parameter, before[key]), key
    after = model.state_dict()
    moved = {key for key in before if "running" in key and not torch.equal(after[key], before[key])}
    part = "modes.running" if name.startswith("mode") else "running"
    assert moved == {key for key in before if part in key}
    assert bool(moved) == (name != "mode-group")


@every_variant
@pytest.mark.long
def test_compiled_training_and_evaluation_are_those_of_eager(name: str) -> None:
    torch._dynamo.reset()
    eager = small_net(name)
    model = copy.deepcopy(eager)
    compiled = torch.compile(model, backend="aot_eager")
    expected, found = train(eager, name, 3), train(model, name, 3, compiled)
    assert found == pytest.approx(expected, rel=1e-4)
    images, _ = batch(100)
    with torch.no_grad():
        torch.testing.assert_close(compiled.eval()(images), eager.eval()(images), rtol=1e-3, atol=1e-3)


INSERTS = {
    "moex": "moex:p=1,norm=in,site=layer1",
    "crossnorm": "crossnorm:p=1,active=9",
    "selfnorm": "selfnorm",
}
"""Settings under which every unit acts in every step."""


def net_with_units(name: str) -> nn.Module:
    torch.manual_seed(0)
    return surgeon.convert(CifarResNet(1, 10, 1), INSERTS[name], inputs=(batch(0, 2)[0],)).train()


def loss_with_units(model: nn.Module, forward: nn.Module, images: Tensor, labels: Tensor, name: str) -> Tensor:
    logits = forward(images)
    exchange = surgeon.exchange_unit(model).last if name == "moex" else None
    return surgeon.exchanged_loss(F.cross_entropy, logits, labels, exchange)


WORKER = """
import sys
from functools import partial
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tests.unit.test_variants_train import (
    INSERTS, VARIANTS, batch, loss_of, loss_with_units, net_with_units, small_net, training_branch
)

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
for name in (*VARIANTS, *INSERTS):
    model = (small_net if name in VARIANTS else net_with_units)(name)
    with torch.no_grad():  # the second process starts with other weights: the first one's are broadcast
        for parameter in model.parameters():
            parameter.add_(0.01 * dist.get_rank())
    parallel = DistributedDataParallel(model)
    loss = loss_of if name in VARIANTS else partial(loss_with_units, model)
    torch.manual_seed(dist.get_rank())  # each process draws partners and boxes of its own
    before = {key: value.clone() for key, value in model.named_parameters()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with training_branch(model, name):
        for step in range(4):
            optimiser.zero_grad()
            loss(parallel, *batch(2 * step + dist.get_rank(), 16), name).backward()
            optimiser.step()
        # Buffers are broadcast when the next step begins, in which batch and draws are the same for both.
        torch.manual_seed(0)
        parallel(batch(0, 4)[0])
    for key, value in model.state_dict().items():
        assert torch.isfinite(value).all(), (name, key)
        of_first = value.clone()
        dist.broadcast(of_first, 0)
        assert torch.allclose(of_first, value, rtol=1e-6, atol=1e-7), (name, key)
    assert not any(torch.equal(value, before[key]) for key, value in model.named_parameters()), name
    print(name, "synchronised", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.long
def test_two_processes_stay_synchronised(tmp_path: Path) -> None:
    assert INSERTS.keys() == set(inserts)
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "meeting"), str(rank)],
            cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        for process in processes:
            said, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
            assert said.split("\n")[:-1] == [f"{name} synchronised" for name in (*VARIANTS, *INSERTS)]
    finally:
        for process in processes:
            process.kill()
