"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="timm name (resnet50, resnet50.a1_in1k), torchvision:NAME, hf-hub:OWNER/NAME, a checkpoint folder, "
        "cifar-resnet20…, or the bundled digits-resnet8. List: surgeon ls models.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", "-w", metavar="FILE", help="Local weights: .safetensors, .pth, .th, .pt, .ckpt or .bin."),
]
Pretrained = Annotated[
    bool,
    typer.Option("--pretrained/--no-pretrained", help="Pretrained weights, or random ones (the same each run)."),
]
NumClasses = Annotated[
    int | None,
    typer.Option("--num-classes", metavar="N", min=1, help="Classes of the head, if not the model's own."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document on stdout.")]
