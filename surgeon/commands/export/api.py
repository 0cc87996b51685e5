"""`surgeon.export`: what the command does, for a network in memory."""

from __future__ import annotations

import copy
from pathlib import Path

from torch import Tensor, nn

from surgeon.checkpoint.writing import origin_of
from surgeon.commands.export.operation import check_request, run_export
from surgeon.core.errors import SurgeonError, listing
from surgeon.models.history import Saved
from surgeon.models.origin import LoadedModel
from surgeon.results import Export, Target
from surgeon.surgery.apply import unwrapped


def export(
    model: nn.Module,
    path: str | Path,
    *,
    to: str,
    inputs: tuple[Tensor] | None = None,
    fold: bool = False,
    overwrite: bool = False,
) -> Export:
    """Write any network for programs that do not know surgeon, and compare what was written with it.

    The network itself is left as it is; a copy is exported in evaluation mode, on the CPU and in float32.

    Args:
        model: Any network.
        path: A file; for `"timm"` a folder.
        to: `"onnx"`, `"torch-export"`, or `"timm"`: only timm's architectures that are plain at inference.
        inputs: One batch of two images or more; a network of timm's, or one that surgeon opened, needs none.
        fold: Fold BatchNorm into the convolutions before it where that is exact.
        overwrite: Replace what is there.

    Examples:
        >>> surgeon.export(model, "out/mine.onnx", to="onnx", inputs=(images,))
        >>> surgeon.export(timm_model, "out/mine.pt2", to="torch-export", fold=True)
    """
    target, path = _target(to), Path(path)
    check_request(target, path, folding=fold, overwrite=overwrite)
    model = copy.deepcopy(unwrapped(model)).cpu()
    origin = origin_of(model).after(Saved())  # the weights may have been trained since
    images = _images(inputs)
    if images is None and origin.source is None and target is not Target.TIMM:
        raise SurgeonError(f"The input shape of a {type(model).__name__} is not known.", "Pass inputs=(images,).")
    loaded = LoadedModel(type(model).__name__, model, origin)
    return run_export(loaded, target, path, folding=fold, overwrite=overwrite, images=images)


def _target(word: str) -> Target:
    try:
        return Target(word)
    except ValueError:
        raise SurgeonError(f"to cannot be {word!r}.", f"Choose {listing(Target, 'or')}.") from None


def _images(inputs: tuple[Tensor] | None) -> Tensor | None:
    if inputs is None:
        return None
    if not isinstance(inputs, tuple) or len(inputs) != 1 or not isinstance(inputs[0], Tensor) or len(inputs[0]) < 2:
        raise SurgeonError(
            "A network can be exported if it takes one batch of images; pass two or more.", "Pass inputs=(images,)."
        )
    return inputs[0].detach().cpu().float()
