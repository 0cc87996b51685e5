"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surgeon.cli import completion

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="timm name (resnet50, resnet50.a1_in1k), torchvision:NAME, hf-hub:OWNER/NAME, a checkpoint folder, "
        "cifar-resnet20…, or the bundled digits-resnet8. List: surgeon ls models.",
        autocompletion=completion.models,
    ),
]
Checkpoint = Annotated[Path, typer.Argument(metavar="CKPT", help="A checkpoint folder that surgeon has written.")]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", "-w", metavar="FILE", help="Local weights: .safetensors, .pth, .th, .pt, .ckpt or .bin."),
]
Rename = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="PATTERN=REPLACEMENT",
        help="Regular expression for names in the weights file, 'stage_(\\d+)=layer\\1'; repeatable, in order.",
    ),
]
Match = Annotated[
    str | None,
    typer.Option(
        "--match", metavar="shapes", help="Match the layers of the weights file by order and shape, not by name."
    ),
]
Pretrained = Annotated[
    bool,
    typer.Option("--pretrained/--no-pretrained", help="Pretrained weights, or random ones (the same each run)."),
]
NumClasses = Annotated[
    int | None,
    typer.Option("--num-classes", metavar="N", min=1, help="Classes of the head, if not the model's or the weights'."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document on stdout.")]

Data = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="DATA",
        help="digits (bundled), an image folder, a parquet file or folder, a saved datasets folder, "
        "hf:OWNER/NAME[:CONFIG], a preset: cifar10, flowers102, imagenet-1k…; or union:DATA+DATA.",
        autocompletion=completion.data,
    ),
]
Split = Annotated[str | None, typer.Option("--split", metavar="S", help="Default: test, else validation.")]
ChoosingSplit = Annotated[
    str | None,
    typer.Option("--split", metavar="S", help="To choose on. Default: validation, else half of test or of all images."),
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Stratified subset of N images.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")]
ImageColumn = Annotated[
    str | None, typer.Option("--image-column", metavar="NAME", help="If it cannot be told from the data.")
]
LabelColumn = Annotated[
    str | None, typer.Option("--label-column", metavar="NAME", help="If it cannot be told from the data.")
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="COLUMN=VALUE",
        help="Only the rows of a table with this value; != for others, * for anything; repeatable.",
    ),
]
Problem = Annotated[
    str | None,
    typer.Option("--problem", metavar="P", help="classification or segmentation, if it cannot be told from the data."),
]
Void = Annotated[
    list[int] | None,
    typer.Option("--void", metavar="N", help="A value of masks that stands for no class, besides 255; repeatable."),
]
BatchSize = Annotated[int | None, typer.Option("--batch-size", metavar="N", min=1, help="Images at a time.")]
TrainingWorkers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=0, help="Processes that decode and augment; 0: only this one."),
]
Workers = Annotated[int | None, typer.Option("--workers", metavar="N", min=1, help="Threads that decode images.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of everything random: the same seed, the same result.")]
Device = Annotated[str | None, typer.Option("--device", metavar="D", help="cuda, mps or cpu; default: the fastest.")]

InputSize = Annotated[
    int | None, typer.Option("--input-size", metavar="N", min=1, help="Height and width, if not the network's own.")
]
CropPct = Annotated[
    float | None, typer.Option("--crop-pct", metavar="X", help="Share of the short side that the crop keeps.")
]
Interpolation = Annotated[
    str | None, typer.Option("--interpolation", metavar="HOW", help="Of resizing: bilinear, bicubic or nearest.")
]
Mean = Annotated[str | None, typer.Option("--mean", metavar="M,M,M", help="Subtracted from each channel.")]
Std = Annotated[str | None, typer.Option("--std", metavar="S,S,S", help="By which each channel is divided.")]
Tta = Annotated[
    str | None,
    typer.Option(
        "--tta",
        metavar="VIEWS",
        help="Views of each image, as name or name:key=value,…: {views}. See surgeon ls views.",
        autocompletion=completion.views,
    ),
]
MergeHow = Annotated[
    str, typer.Option("--merge", metavar="HOW", help="Of the views: logits, probabilities or geometric.")
]
PrecisionOption = Annotated[
    str, typer.Option("--precision", metavar="P", help="float32, bfloat16 or float16; a CPU always takes float32.")
]

Under = Annotated[
    list[str] | None,
    typer.Option(
        "--under",
        metavar="CONDITION",
        help="A condition as name or name:key=value,…; may be repeated: {conditions}. See surgeon ls conditions.",
        autocompletion=completion.conditions,
    ),
]

MaxCleanLoss = Annotated[
    float | None,
    typer.Option(
        "--max-clean-loss",
        metavar="POINTS",
        min=0,
        help="With --under: only settings that lose at most so much accuracy on clean images, in points.",
    ),
]


def check_under(under: list[str] | None, max_clean_loss: float | None) -> None:
    """Refuse unknown conditions, and a bound without any, before torch is imported."""
    from surgeon.conditions.base import check_conditions
    from surgeon.core.errors import SurgeonError

    check_conditions(under or ())
    if max_clean_loss is not None and not under:
        raise SurgeonError("--max-clean-loss goes with --under.", "Add conditions: --under corruptions.")


MixLogits = Annotated[
    bool, typer.Option("--mix-logits", help="With --lambda: average the branches' logits, not their probabilities.")
]
