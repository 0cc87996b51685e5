"""The layer as users handle it: alpha set by hand, hooks, torch.func, half precision, large images."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import surgeon
from surgeon.layers.surgical import SurgicalNorm


def layer(alpha: float = 0.3) -> SurgicalNorm:
    torch.manual_seed(0)
    original = nn.BatchNorm2d(4).eval()
    original.running_mean.normal_()
    original.running_var.uniform_(0.5, 2)
    norm = surgeon.convert(original, "example-weighted", alpha=alpha)
    assert isinstance(norm, SurgicalNorm)
    return norm


def test_an_alpha_set_by_hand_is_saved(tmp_path: Path) -> None:
    model = nn.Sequential(layer(0.1))
    model.surgery = surgeon.convert(nn.Sequential(nn.BatchNorm2d(4)), "example-weighted", alpha=0.1).surgery
    model[0].set_alpha(0.2)
    surgeon.save(model, tmp_path / "out")
    again = surgeon.load(tmp_path / "out", nn.Sequential(nn.BatchNorm2d(4)))
    assert again[0].constant_alpha == 0.2


def test_alpha_stays_exact_through_half_precision() -> None:
    norm = layer(0.03).bfloat16().float()
    assert torch.equal(norm.alpha, torch.full((4,), 0.03))


@pytest.mark.filterwarnings("ignore")
def test_forward_mode_derivatives_are_not_lost() -> None:
    norm = layer().requires_grad_(False)
    x, tangent = torch.randn(2, 4, 5, 5), torch.randn(2, 4, 5, 5)
    _, derivative = torch.func.jvp(norm, (x,), (tangent,))
    finite = (norm((x + 1e-3 * tangent).double().float()) - norm(x - 1e-3 * tangent)) / 2e-3
    torch.testing.assert_close(derivative, finite, rtol=1e-2, atol=1e-2)


def test_vmap_works() -> None:
    norm = layer().requires_grad_(False)
    x = torch.randn(3, 2, 4, 5, 5)
    torch.testing.assert_close(torch.vmap(norm)(x), torch.stack([norm(part) for part in x]))


def test_full_backward_hooks_are_kept() -> None:
    original = nn.BatchNorm2d(4)
    calls = []
    original.register_full_backward_hook(lambda *_: calls.append(1))
    surgeon.convert(original, "ghost", size=2)(torch.randn(4, 4, 3, 3, requires_grad=True)).sum().backward()
    assert calls == [1]


def test_large_images_are_summed_exactly_enough() -> None:
    norm = layer(1.0)
    x = torch.rand(1, 4, 1024, 1024) * 2 + 0.5
    with torch.inference_mode():
        torch.testing.assert_close(norm(x), norm.double()(x.double()).float(), rtol=0, atol=1e-5)
