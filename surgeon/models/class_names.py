"""What to call the outputs of a network: as its checkpoint says, as ImageNet does, or by number."""

from __future__ import annotations

from typing import NamedTuple

from surgeon.models.origin import LoadedModel


class OutputNames(NamedTuple):
    """The name of each output, and who says so."""

    names: tuple[str, ...]
    source: str


def output_names(loaded: LoadedModel, outputs: int) -> OutputNames:
    """The names of a network's outputs.

    timm and torchvision do not say which data their weights are of; as timm does, a set of ImageNet is recognised
    by its number of classes.

    Args:
        loaded: The network.
        outputs: How many it has.
    """
    from timm.data import ImageNetInfo, infer_imagenet_subset

    if loaded.class_names is not None and len(loaded.class_names) == outputs:
        return OutputNames(loaded.class_names, "checkpoint")
    origin = loaded.origin.source
    if origin is not None and origin.library in ("timm", "torchvision"):
        subset = infer_imagenet_subset({"num_classes": outputs})
        if subset is not None:
            described = ImageNetInfo(subset).label_descriptions()
            return OutputNames(tuple(map(str, described)), subset)
    return OutputNames(tuple(map(str, range(outputs))), "numbers")
