"""`surgeon preview`: what an augmentation or a condition makes of images, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from surgeon.cli import completion, options, output
from surgeon.cli.frame import add_command
from surgeon.core.errors import SurgeonError, did_you_mean, listing

ALL = "all"


def add_to(app: typer.Typer) -> None:
    add_command(app, preview)


def preview(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An augmentation (ls augments), e.g. vh-mixup:alpha=0.3, or all of them: all. "
            "Or conditions (ls conditions), e.g. gaussian-noise or corruptions.",
            autocompletion=completion.previewed,
        ),
    ],
    data: options.Data,
    split: Annotated[
        str | None, typer.Option("--split", metavar="S", help="Which split. Default: train, else test.")
    ] = None,
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, max=64, help="Images to show.")] = 8,
    seed: options.Seed = 0,
    input_size: Annotated[
        int | None,
        typer.Option(
            "--input-size",
            metavar="N",
            min=1,
            help="Height and width in pixels. Default: the images' own size up to 64 px, else 224.",
        ),
    ] = None,
    image_column: options.ImageColumn = None,
    label_column: options.LabelColumn = None,
    path: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The PNG to write.")] = Path(
        "preview.png"
    ),
) -> None:
    """Draw images before and after an augmentation or a corruption."""
    from surgeon.augment.base import check_augments
    from surgeon.conditions.base import check_conditions

    under = _names_condition(name)
    if under:
        check_conditions([name])
    elif name != ALL:
        check_augments([name])
    if path.suffix.lower() != ".png" or path.is_dir():
        raise SurgeonError(f"The picture cannot be written to {str(path)!r}.", "Name a file that ends in .png with -o.")
    with output.working("Loading torch…"):
        from surgeon.commands import preview as previews
        from surgeon.commands.condition_preview import preview_condition
        from surgeon.commands.mask_preview import preview_masks
        from surgeon.core.atomic import check_destination, staged
        from surgeon.report.gallery import draw_gallery
    check_destination(path.parent, overwrite=True)
    with output.working(f"Opening {data}…"):
        image_set = previews.open_training_data(data, split, image_column, label_column)
        pictures = None
        if image_set.masks is None:
            pictures = previews.take_pictures(image_set, count, seed, input_size)
            about = f"{image_set.name} ({image_set.split}), {pictures.size}"
    with output.working("Drawing…"):
        if pictures is None:
            gallery = preview_masks(name, image_set, count, seed, input_size)
        elif name == ALL:
            gallery = previews.preview_all(pictures, about, seed)
        elif under:
            gallery = preview_condition(name, pictures, about, seed)
        else:
            gallery = previews.preview(name, pictures, about, seed)
        with staged(path.parent, [path.name]) as folder:
            draw_gallery(gallery, folder / path.name)
    output.say(f"{escape(gallery.title)}: {escape(str(path))}")
    if pictures is not None and pictures.unreadable:
        output.say(f"  [yellow]note:[/] left out as unreadable: {escape(listing(pictures.unreadable, limit=4))}")


def _names_condition(spec: str) -> bool:
    """Whether a condition is meant. Some are called as an augmentation is: then the options tell, if there are any."""
    from surgeon.augment.base import augments
    from surgeon.conditions.base import conditions
    from surgeon.core.specs import parse_spec

    if spec == ALL or "|" in spec:
        return False
    name, options = parse_spec(spec)
    if name not in augments and name not in conditions:
        known = sorted({*augments, *conditions})
        raise SurgeonError(
            f"There is no augmentation or condition {name!r}.",
            did_you_mean(name, known) or "`surgeon ls augments` and `surgeon ls conditions` list them.",
        )
    if name not in conditions:
        return False
    return name not in augments or set(options) <= set(conditions[name].config.model_fields)
