"""`surgeon.predict`: the same from Python, with a network in memory."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import nn

from surgeon.checkpoint.writing import origin_of
from surgeon.commands.predict.files import NAME, from_python
from surgeon.commands.predict.operation import run_prediction
from surgeon.core.errors import SurgeonError
from surgeon.core.progress import say_nothing
from surgeon.measuring.batches import checked_network
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.preparation import InferenceRequest
from surgeon.models.origin import LoadedModel
from surgeon.results.prediction import Prediction
from surgeon.surgery.apply import unwrapped


def predict(
    model: nn.Module,
    images: str | Path | Image.Image | Sequence[str | Path | Image.Image],
    top: int = 5,
    *,
    tta: str | None = None,
    output: str | Path | None = None,
) -> Prediction:
    """The most probable classes of images, or masks as files, with the preprocessing that the network states.

    The network itself is left as it is; its alpha, branches and temperature are those that it has.

    Args:
        model: A classifier that surgeon has opened, or one of timm's; what images others expect is not known.
        images: Paths of image files or of folders, PIL images, or a list of them; for a network that takes sound,
            paths of clips or of folders.
        top: How many classes to tell of each image.
        tta: Test-time views, as after `--tta`.
        output: A new folder for the masks of a network that segments; default: `masks`.

    Examples:
        >>> found = surgeon.predict(surgeon.load("out/resnet18"), ["cat.jpg", "holiday"])
        >>> [(image.image, image.classes[0].name) for image in found.images]
    """
    if top < 1:
        raise SurgeonError(f"top cannot be {top}.", "Ask for one class or more.")
    network = copy.deepcopy(unwrapped(checked_network(model)))
    loaded = LoadedModel(type(network).__name__, network, origin_of(network))
    if loaded.origin.preprocessing is None:
        raise SurgeonError(
            f"The preprocessing of a {loaded.name} is not known.",
            "Prepare them yourself, and call the network: model(images).softmax(1).",
        )
    given = from_python(images, loaded.medium)
    request = InferenceRequest(data=NAME, labelled=False, tta=tta, device=str(InferenceSettings.of(network).device))
    return run_prediction(loaded, given, request, say_nothing, top=top, folder=None if output is None else Path(output))
