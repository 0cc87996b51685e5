"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surgeon.cli import completion

NETWORK, IMAGES, PREPROCESSING = "Network and weights", "Images", "Preprocessing"
VIEWS, CONDITIONS = "Test-time augmentation (TTA)", "Conditions"
BRANCHES, COMPUTING = "Branches of a split network", "Computing"
"""Panels of `--help`, the same in every command."""

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A timm name (resnet50, resnet50.a1_in1k), torchvision:NAME, hf-hub:OWNER/NAME, a checkpoint folder, "
        "cifar-resnet20…, or the bundled digits-resnet8. List: surgeon ls models.",
        autocompletion=completion.models,
    ),
]
Checkpoint = Annotated[Path, typer.Argument(metavar="CKPT", help="A checkpoint folder written by surgeon.")]
Weights = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        "-w",
        metavar="FILE",
        help="Local weights: .safetensors, .pth, .th, .pt, .ckpt or .bin.",
        rich_help_panel=NETWORK,
    ),
]
Rename = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="PATTERN=NEW",
        help="Rename keys of the weights file by a regular expression: 'stage_(\\d+)=layer\\1'. Repeatable, applied in "
        "order.",
        rich_help_panel=NETWORK,
    ),
]
Match = Annotated[
    str | None,
    typer.Option(
        "--match",
        metavar="shapes",
        help="Match the weights file to the network by order and shape of the layers, not by name.",
        rich_help_panel=NETWORK,
    ),
]
Pretrained = Annotated[
    bool,
    typer.Option(
        "--pretrained/--no-pretrained",
        help="Pretrained or random weights (random ones are the same in each run).",
        rich_help_panel=NETWORK,
    ),
]
NumClasses = Annotated[
    int | None,
    typer.Option(
        "--num-classes",
        metavar="N",
        min=1,
        help="Number of classes, if it differs from the model's and the weights'.",
        rich_help_panel=NETWORK,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document on stdout.")]

Data = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="DATA",
        help="digits (bundled), an image folder, a Parquet file or folder, a saved datasets folder, "
        "hf:OWNER/NAME[:CONFIG], a preset (cifar10, flowers102, imagenet-1k…), or union:DATA+DATA.",
        autocompletion=completion.data,
    ),
]
Split = Annotated[
    str | None,
    typer.Option("--split", metavar="S", help="Which split. Default: test, else validation.", rich_help_panel=IMAGES),
]
ChoosingSplit = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar="S",
        help="The split to choose on. Default: validation, else half of test or of all images.",
        rich_help_panel=IMAGES,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="Stratified subset of N images.", rich_help_panel=IMAGES),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.", rich_help_panel=IMAGES)
]
ImageColumn = Annotated[
    str | None,
    typer.Option("--image-column", metavar="NAME", help="Column of a table with the images.", rich_help_panel=IMAGES),
]
LabelColumn = Annotated[
    str | None,
    typer.Option("--label-column", metavar="NAME", help="Column of a table with the labels.", rich_help_panel=IMAGES),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="COLUMN=VALUE",
        help="Only rows of a table with this value; COLUMN!=VALUE for all others, * matches anything. Repeatable.",
        rich_help_panel=IMAGES,
    ),
]
Problem = Annotated[
    str | None,
    typer.Option(
        "--problem",
        metavar="P",
        help="classification or segmentation, if the data does not show which.",
        rich_help_panel=IMAGES,
    ),
]
Void = Annotated[
    list[int] | None,
    typer.Option(
        "--void",
        metavar="N",
        help="A value in masks to ignore, besides 255. Repeatable.",
        rich_help_panel=IMAGES,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", metavar="N", min=1, help="Images per batch.", rich_help_panel=COMPUTING),
]
TrainingWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=0,
        help="Processes that decode and augment; 0: the main process.",
        rich_help_panel=COMPUTING,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=1, help="Threads that decode images.", rich_help_panel=COMPUTING),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Random seed: the same seed gives the same result.")]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="D", help="cuda, mps or cpu. Default: the fastest there is.", rich_help_panel=COMPUTING
    ),
]

InputSize = Annotated[
    int | None,
    typer.Option(
        "--input-size",
        metavar="N",
        min=1,
        help="Height and width in pixels. Default: the network's own.",
        rich_help_panel=PREPROCESSING,
    ),
]
CropPct = Annotated[
    float | None,
    typer.Option(
        "--crop-pct",
        metavar="X",
        help="Centre crop, as a fraction of the short side.",
        rich_help_panel=PREPROCESSING,
    ),
]
Interpolation = Annotated[
    str | None,
    typer.Option(
        "--interpolation",
        metavar="HOW",
        help="For resizing: bilinear, bicubic or nearest.",
        rich_help_panel=PREPROCESSING,
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(
        "--mean", metavar="M,M,M", help="Mean of each channel, for normalisation.", rich_help_panel=PREPROCESSING
    ),
]
Std = Annotated[
    str | None,
    typer.Option(
        "--std",
        metavar="S,S,S",
        help="Standard deviation of each channel, for normalisation.",
        rich_help_panel=PREPROCESSING,
    ),
]
Tta = Annotated[
    str | None,
    typer.Option(
        "--tta",
        metavar="VIEWS",
        help="TTA views of each image, as name or name:key=value,…: {views}. See surgeon ls views.",
        rich_help_panel=VIEWS,
        autocompletion=completion.views,
    ),
]
MergeHow = Annotated[
    str,
    typer.Option(
        "--merge",
        metavar="HOW",
        help="How views are averaged: logits, probabilities or geometric.",
        rich_help_panel=VIEWS,
    ),
]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        metavar="P",
        help="float32, bfloat16 or float16; on a CPU always float32.",
        rich_help_panel=COMPUTING,
    ),
]

Under = Annotated[
    list[str] | None,
    typer.Option(
        "--under",
        metavar="CONDITION",
        help="Conditions to measure under: corruptions, noise, blur, weather, digital, attacks, or a single one: "
        "fog, contrast:severity=3, pgd:steps=20… Repeatable. See surgeon ls conditions.",
        rich_help_panel=CONDITIONS,
        autocompletion=completion.conditions,
    ),
]

MaxCleanLoss = Annotated[
    float | None,
    typer.Option(
        "--max-clean-loss",
        metavar="POINTS",
        min=0,
        help="With --under: only settings that cost at most this many points of accuracy on clean images.",
        rich_help_panel=CONDITIONS,
    ),
]


def check_under(under: list[str] | None, max_clean_loss: float | None) -> None:
    """Refuse unknown conditions, and a bound without any, before torch is imported."""
    from surgeon.conditions.base import check_conditions
    from surgeon.core.errors import SurgeonError

    check_conditions(under or ())
    if max_clean_loss is not None and not under:
        raise SurgeonError("--max-clean-loss needs --under.", "Add conditions: --under corruptions.")


MixLogits = Annotated[
    bool,
    typer.Option(
        "--mix-logits",
        help="With --lambda: average the branches' logits, not their probabilities.",
        rich_help_panel=BRANCHES,
    ),
]
