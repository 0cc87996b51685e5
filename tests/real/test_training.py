"""Every rewrite trains on real images: the loss falls, gradients arrive, running statistics move."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.functional import to_tensor

import surgeon
from surgeon.inserts import inserts
from surgeon.models.sources import load_model
from surgeon.norms import norms
from tests.real.conftest import first_images

STEPS, BATCH, IMAGES = 200, 32, 2000
OPTIONS = {"batch-group": "channel_groups=8,examples_per_group=8"}  # the network's first layers have 16 channels

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("shared")]


def normalised(image: Image.Image) -> Tensor:
    return (to_tensor(image) - 0.5) / 0.25


@pytest.fixture(scope="module")
def images() -> tuple[Tensor, Tensor]:
    return first_images("cifar10/train-*.parquet", IMAGES, normalised)


def step_loss(model: nn.Module, name: str, x: Tensor, y: Tensor) -> Tensor:
    if name == "split":  # weak and strong copies of the same images
        with surgeon.branch(model, "halves"):
            return F.cross_entropy(model(torch.cat([x, x + 0.2 * torch.randn_like(x)])), y.repeat(2))
    logits = model(x)
    exchange = surgeon.exchange_unit(model).last if name == "moex" else None
    return surgeon.exchanged_loss(F.cross_entropy, logits, y, exchange)


@pytest.mark.parametrize("name", [*norms, *inserts])
def test_trains(name: str, images: tuple[Tensor, Tensor]) -> None:
    torch.manual_seed(0)
    spec = f"{name}:{OPTIONS.get(name, '')}"
    model = surgeon.convert(load_model("cifar-resnet20", pretrained=False).model, spec).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, reached = [], set()
    for step in range(STEPS):
        chosen = torch.randint(IMAGES, (BATCH,))
        loss = step_loss(model, name, images[0][chosen], images[1][chosen])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if step < 5:
            reached |= {key for key, p in model.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert sum(losses[-30:]) < 0.85 * sum(losses[:30])
    assert reached == {key for key, _ in model.named_parameters()}
    moved = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    statistics = {key for key in before if "running_" in key}
    if name == "mode":  # those of the modes move; the layer's own stay what they were
        statistics = {key for key in statistics if ".modes." in key}
    if name == "mode-group":
        statistics = set()
    assert statistics <= moved
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())
