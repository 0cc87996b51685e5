"""What the figures share: the bundled network and digits, a short training, the look, small files."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from surgeon import checkpoint
from surgeon.data.digits import load_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, RED, GREY = "#1f6f8b", "#c77d2e", "#b8324a", "#8a8f98"
COLOURS = (BLUE, ORANGE, RED)
DPI, PHOTOGRAPH_DPI = 120, 84
COLOURS_IN_FILE = 256  # a third of the bytes


@cache
def _digits(split: str) -> tuple[Tensor, Tensor]:
    return load_digits(split)  # type: ignore[arg-type]


def digits(count: int, split: str = "train") -> tuple[Tensor, Tensor]:
    """The first images and labels of a split, in a mixed order that is always the same."""
    images, labels = _digits(split)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:count]
    return images[order], labels[order]


def bundled_network() -> nn.Module:
    """The bundled network as plain BatchNorm, with its trained weights, in evaluation mode."""
    network = checkpoint.open_model("digits-resnet8", pretrained=False).model
    network.load_state_dict(checkpoint.open_model("digits-resnet8").model.state_dict())
    return network.eval()


@torch.no_grad()
def features(network: nn.Module, layer: str, images: Tensor) -> Tensor:
    """What goes into a layer."""
    seen: list[Tensor] = []
    handle = network.get_submodule(layer).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    network(images)
    handle.remove()
    return seen[0]


def train(network: nn.Module, batch: Callable[[Tensor], tuple[Tensor, Tensor]], steps: int, lr: float = 0.05) -> None:
    """A short training; `batch` gets indices of digits and gives images and labels."""
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr, momentum=0.9)
    network.train()
    for _ in range(steps):
        images, labels = batch(torch.randint(len(_digits("train")[0]), (64,), generator=generator))
        loss = nn.functional.cross_entropy(network(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    network.eval()


def plain_batch(indices: Tensor) -> tuple[Tensor, Tensor]:
    """Training digits as they are."""
    images, labels = _digits("train")
    return images[indices], labels[indices]


def panels(
    columns: int, height: float = 2.9, rows: int = 1, dpi: int = DPI, **settings: object
) -> tuple[Figure, list[Axes]]:
    """A figure of the site's width with panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, height), layout="constrained", facecolor="white", dpi=dpi)
    axes = figure.subplots(rows, columns, squeeze=False, **settings)  # type: ignore[arg-type]
    return figure, [panel for row in axes for panel in row]


def finish(axes: Axes, title: str, x: str = "", y: str = "", legend: bool = False) -> None:
    """Titles, labels and a quiet frame."""
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(frameon=False, fontsize=8)


def show(axes: Axes, picture: Tensor, title: str = "", **settings: object) -> None:
    """A picture without a frame: (H, W) in shades of grey, (3, H, W) in colour."""
    values = picture.detach()
    axes.imshow(values.permute(1, 2, 0).clamp(0, 1) if values.dim() == 3 else values, **{"cmap": "gray", **settings})
    axes.set_title(title, fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of few colours."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", metadata={"Software": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.open(drawn).convert("RGB").quantize(COLOURS_IN_FILE, dither=Image.Dither.NONE).save(path, optimize=True)
