"""What conditions look like: an image under some of them, as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
import torch

from surgeon.commands.visible import axes_for, visible
from surgeon.conditions.base import Asked
from surgeon.data.images import ImageSet
from surgeon.measuring.conditions import ConditionMaker
from surgeon.measuring.preparation import PreparedNetwork, batches_for
from surgeon.report.gallery import Gallery, Row, Tile, draw_gallery

MOST_ROWS = 20
SHOWN = 5
"""Images of a condition without severities."""


def example_pictures(network: PreparedNetwork, images: ImageSet, asked: Sequence[Asked], seed: int) -> bytes:
    """One row for every condition; of a corruption one image at all of its severities."""
    rows: dict[str, list[Asked]] = {}
    for one in asked:
        if one.condition.family not in ("fourier", "attack"):
            rows.setdefault(one.condition.name, []).append(one)
    if not rows.keys() - {"clean"} or len(images) == 0:
        return b""
    maker = ConditionMaker(seed)
    batch = next(iter(batches_for([network], images.subset(np.arange(min(len(images), SHOWN))))))
    shown = []
    for name, members in list(rows.items())[:MOST_ROWS]:
        pictures = []
        for one in members[:SHOWN]:
            condition = maker.make(one, network.preprocessing, network.model)
            with torch.no_grad():
                seen = batch if condition is None else condition(batch)
            pictures.append(visible(seen.images, network.preprocessing))
        tiles = pictures[0] if len(members) == 1 else [each[0] for each in pictures]
        severities = [str(one.severity) for one in members if one.severity is not None]
        levels = f"severity {', '.join(severities)}" if severities else ", ".join(one.remark for one in members)
        shown.append(Row(name, levels or members[0].condition.family.value, tuple(map(Tile, tiles))))
    file = BytesIO()
    noun = images.medium.noun.capitalize()
    draw_gallery(Gallery(f"{noun}s under the conditions", tuple(shown), axes_for(network.preprocessing)), file)
    return file.getvalue()
