"""`surgeon export`: a network for programs that do not know surgeon."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from surgeon.cli import completion, options, output
from surgeon.cli.convert import base_name
from surgeon.cli.frame import Answer, add_command, loading
from surgeon.cli.groups import Opening
from surgeon.core.errors import SurgeonError, count, listing

if TYPE_CHECKING:
    from surgeon.results import Export


def add_to(app: typer.Typer) -> None:
    add_command(app, export)


def export(
    model: Annotated[str, typer.Argument(metavar="CKPT", help="Checkpoint folder, or any other MODEL.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="timm (a plain timm folder, if inference needs no rewrite), onnx, or torch-export (.pt2).",
            autocompletion=completion.targets,
        ),
    ],
    destination: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Default: ./CKPT-timm, ./CKPT.onnx or ./CKPT.pt2."),
    ] = None,
    fold: Annotated[
        bool,
        typer.Option("--fold", help="Fold BatchNorm into the preceding convolutions where that is exact."),
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="DATA",
            help="Compare on 64 images of DATA instead of random ones.",
            autocompletion=completion.data,
        ),
    ] = None,
    split: options.Split = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what was exported before.")] = False,
    *,
    opening: Opening,
) -> Answer:
    """Export for timm, ONNX or torch.export, and check that the exported network gives the same outputs."""
    if split is not None and data is None:
        raise SurgeonError("--split says which images of --data to compare on: pass both.")
    with loading():
        from surgeon.commands.export.operation import FORMATS, check_request, run_export
        from surgeon.results import Target
    target = output.one_of(Target, to, "--to")
    ending = "-timm" if target is Target.TIMM else FORMATS[target].suffix
    path = destination or Path(f"{base_name(model)}{ending}")
    check_request(target, path, folding=fold, overwrite=overwrite)
    loaded = opening.open(model)
    with output.working(f"Writing {path} and comparing it with the network…"):
        result = run_export(loaded, target, path, folding=fold, overwrite=overwrite, data=data, split=split)
    return Answer(result, partial(tell, result))


def tell(result: Export) -> None:
    """What people are told."""
    output.say(f"[bold]{escape(result.model)}[/] as {result.target}")
    for note in result.notes:
        output.note(note)
    if result.folded is not None:
        output.say(f"  folded      {count(result.folded, 'BatchNorm layer')} into convolutions")
    sizes = listing(map(str, result.batch_sizes))
    images = f"{count(result.images, 'image')} of {result.data}" if result.data else "random images"
    output.say(
        f"  compared    outputs within {result.difference:.1e} (relative) on {escape(images)}, in batches of {sizes}"
    )
    if (expected := result.preprocessing) is not None:
        size = " x ".join(map(str, expected.input_size))
        output.say(f"  images      {size}, scaled to [0, 1], minus {expected.mean}, divided by {expected.std}")
    if result.target == "timm":
        output.say(f'  load it     timm.create_model("local-dir:{escape(result.output)}", pretrained=True)')
    output.say("  written to:")
    output.emit_lines(list(result.files))
