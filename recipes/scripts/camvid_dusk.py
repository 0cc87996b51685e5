"""Day to dusk on CamVid: a small residual network, plain and with CrossNorm and SelfNorm, over three seeds.

    python recipes/scripts/camvid_dusk.py CAMVID_FOLDER -o runs/camvid-dusk

The network learns from day images alone, at 72 x 96 pixels. Example weighting and recalibration are measured on the day
and on the dusk images of the test split; recalibration sees the dusk images of the training split, without masks. This
is no study file, because the network is one of its own. It takes about four minutes of processor time.
"""

from __future__ import annotations

import argparse
import copy
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import surgeon

HEIGHT, WIDTH, CLASSES, VOID, IGNORED = 72, 96, 11, 11, -100
DUSK = "0001TP"
"""How the names of dusk images begin."""
ARMS = {"plain": (), "crossnorm and selfnorm": ("crossnorm", "selfnorm")}
ALPHAS, PRIORS = (0.0, 0.02, 0.05, 0.1, 0.2), (0.0, 64.0, 1024.0)
METRICS = ("iou", "accuracy", "cross-entropy")
RATE, BATCH, FLIPPED, SMALLEST_CROP = 4e-3, 16, 0.5, 0.6
MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))

Batches = list[tuple[Tensor, Tensor]]


class Block(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class SmallSegmenter(nn.Module):
    """Residual blocks at half and at a quarter of the size; the head sees both."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(Block(16, 1))
        self.down, self.bn2 = nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)
        self.layer2 = nn.Sequential(Block(32, 1), Block(32, 2), Block(32, 4))
        self.head = nn.Conv2d(48, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.layer1(torch.relu(self.bn1(self.conv1(x))))
        coarse = self.layer2(torch.relu(self.bn2(self.down(fine))))
        coarse = F.interpolate(coarse, size=fine.shape[2:], mode="bilinear", align_corners=False)
        return F.interpolate(self.head(torch.cat([fine, coarse], 1)), size=x.shape[2:], mode="bilinear")


def load(folder: Path, split: str) -> tuple[Tensor, Tensor, Tensor]:
    """The images and masks of a split, and which of them are of dusk."""
    rows = [row for file in sorted(folder.glob(f"{split}-*.parquet")) for row in parquet.read_table(file).to_pylist()]
    images = torch.stack([_pixels(row["image"], Image.Resampling.BILINEAR, "RGB").permute(2, 0, 1) for row in rows])
    masks = torch.stack([_pixels(row["mask"], Image.Resampling.NEAREST, None).long() for row in rows])
    dusk = torch.tensor([row["name"].startswith(DUSK) for row in rows])
    return (images.float() / 255 - MEAN) / STD, masks.masked_fill(masks == VOID, IGNORED), dusk


def _pixels(cell: dict[str, Any], how: Image.Resampling, mode: str | None) -> Tensor:
    picture = Image.open(BytesIO(cell["bytes"]))
    picture = picture if mode is None else picture.convert(mode)
    return torch.from_numpy(np.array(picture.resize((WIDTH, HEIGHT), how)))


def train(arm: str, seed: int, images: Tensor, masks: Tensor, epochs: int) -> nn.Module:
    torch.manual_seed(seed)
    network: nn.Module = SmallSegmenter()
    if ARMS[arm]:
        network = surgeon.convert(network, *ARMS[arm], inputs=(torch.randn(2, 3, HEIGHT, WIDTH),))
    draws = torch.Generator().manual_seed(seed)
    steps = epochs * (len(images) // BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    network.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(images), generator=draws)[: steps // epochs * BATCH].split(BATCH):
            loss = F.cross_entropy(*_augmented(network, images[chosen], masks[chosen], draws), ignore_index=IGNORED)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def _augmented(network: nn.Module, images: Tensor, masks: Tensor, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Logits and masks of a batch, flipped or not, of a random part of it."""
    if torch.rand((), generator=draws) < FLIPPED:
        images, masks = images.flip(-1), masks.flip(-1)
    share = SMALLEST_CROP + (1 - SMALLEST_CROP) * float(torch.rand((), generator=draws))
    height, width = int(HEIGHT * share), int(WIDTH * share)
    top = int(torch.randint(HEIGHT - height + 1, (), generator=draws))
    left = int(torch.randint(WIDTH - width + 1, (), generator=draws))
    images = images[:, :, top : top + height, left : left + width]
    masks = masks[:, None, top : top + height, left : left + width].float()
    masks = F.interpolate(masks, size=(HEIGHT, WIDTH), mode="nearest")[:, 0].long()
    return network(F.interpolate(images, size=(HEIGHT, WIDTH), mode="bilinear")), masks


def measured(network: nn.Module, sets: dict[str, Batches]) -> dict[str, dict[str, float | None]]:
    """Every figure of each set."""
    figures = {name: surgeon.evaluate(network, batches) for name, batches in sets.items()}
    return {name: {metric: found.value(metric) for metric in METRICS} for name, found in figures.items()}


def run(arm: str, seed: int, splits: dict[str, tuple[Tensor, Tensor, Tensor]], epochs: int) -> dict[str, Any]:
    images, masks, dusk = splits["train"]
    network = train(arm, seed, images[~dusk], masks[~dusk], epochs)
    sets = {name: _batches(splits["test"], of_dusk) for name, of_dusk in (("day", False), ("dusk", True))}
    found: dict[str, Any] = {"trained": measured(network, sets)}
    chosen = surgeon.sweep(copy.deepcopy(network), _batches(splits["validation"], False), alphas=ALPHAS, metric="iou")
    found["alpha chosen on day images"], found["kept"] = chosen.chosen, chosen.kept
    for alpha in ALPHAS[1:]:
        weighted = surgeon.convert(copy.deepcopy(network), "example-weighted", alpha=alpha)
        found[f"alpha {alpha:g}"] = measured(weighted, sets)
    for prior in PRIORS:
        adapted = copy.deepcopy(network)
        surgeon.recalibrate(adapted, images[dusk].split(BATCH), prior=prior)
        found[f"prior {prior:g}"] = measured(adapted, sets)
    return found


def _batches(split: tuple[Tensor, Tensor, Tensor], of_dusk: bool) -> Batches:
    images, masks, dusk = split
    chosen = dusk == of_dusk
    return list(zip(images[chosen].split(BATCH), masks[chosen].split(BATCH), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    splits = {split: load(given.data, split) for split in ("train", "validation", "test")}
    results = {arm: [run(arm, seed, splits, given.epochs) for seed in range(given.seeds)] for arm in ARMS}
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "results.json").write_text(json.dumps(results, indent=1))
    columns = [f"{arm}: {name}" for arm in ARMS for name in ("day", "dusk")]
    print(f"| mean IoU (%), mean (range) over seeds | {' | '.join(columns)} |")
    for setting in ("trained", *(f"alpha {one:g}" for one in ALPHAS[1:]), *(f"prior {one:g}" for one in PRIORS)):
        cells = []
        for arm in ARMS:
            for name in ("day", "dusk"):
                values = [100 * one[setting][name]["iou"] for one in results[arm]]
                cells.append(f"{sum(values) / len(values):.1f} ({min(values):.1f} to {max(values):.1f})")
        print(f"| {setting} | " + " | ".join(cells) + " |")
    print({arm: [(one["alpha chosen on day images"], one["kept"]) for one in found] for arm, found in results.items()})


if __name__ == "__main__":
    main()
