"""From options, as they are typed, to what has to be predicted."""

from __future__ import annotations

from typing import Any

from surgeon.cli.output import one_of
from surgeon.compute import Precision
from surgeon.errors import SurgeonError
from surgeon.task import ImageOptions, Request
from surgeon.tta import Merge


def task_request(*, merge: str, precision: str, images: dict[str, Any], **options: Any) -> Request:
    """The request of `eval` and `sweep`."""
    numbers = {name: _numbers(images[name], f"--{name}") for name in ("mean", "std")}
    return Request(
        merge=one_of(Merge, merge, "--merge"),
        precision=one_of(Precision, precision, "--precision"),
        images=ImageOptions(**{**images, **numbers}),
        **options,
    )


def _numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise SurgeonError(f"{option} cannot be {text!r}.", "Write numbers with commas: 0.485,0.456,0.406.") from None
