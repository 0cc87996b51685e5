"""Adapted both ways: the images of each half as the network predicts them that the other half has adapted.

So every image is measured, and none has taken part in adapting the network that predicts it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from torch import nn

from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.images import ImageSet
from surgeon.data.stratified import Indices
from surgeon.measuring.engine import measure
from surgeon.measuring.keeping import Logits, ScoresAndLogits
from surgeon.measuring.preparation import PreparedNetwork

ADAPTED = "adapted"


def logits_both_ways(
    prepared: PreparedNetwork,
    original: nn.Module,
    images: ImageSet,
    parts: tuple[Indices, Indices],
    adapt: Callable[[PreparedNetwork, ImageSet], object],
    processes: Processes,
    progress: Progress,
) -> Logits:
    """The logits of all images, numbered as in the whole set.

    Args:
        prepared: How networks are applied to these images.
        original: The network before it was adapted; it stays as it is.
        images: The whole set.
        parts: Its halves.
        adapt: Adapts a network, in place, to images whose labels it does not look at.
        processes: That share the predictions.
        progress: Of the work.
    """
    first, second = parts
    joined = Logits()
    for adapting, measured in ((first, second), (second, first)):
        network = replace(prepared, model=copy.deepcopy(original))
        adapt(network, images.subset(adapting))
        kept = measure(
            {ADAPTED: network.variant},
            network.batches(images.subset(measured)),
            lambda _: ScoresAndLogits(logits=Logits()),
            processes=processes,
            progress=progress,
            doing="measuring both ways",
        ).kept[ADAPTED]
        assert kept.logits is not None
        logits, labels, indices = kept.logits.in_order()
        joined.update(logits, labels, measured[indices.numpy()])
    return joined
