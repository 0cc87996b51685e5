"""What a program must know to use an exported network: the record inside the file and beside it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from surgeon.commands.export.tracing import BATCH, INPUT
from surgeon.core.versions import VERSION
from surgeon.models.history import Exported, History
from surgeon.models.origin import BaseWeights, LoadedModel, ModelSource, Preprocessing
from surgeon.surgery.apply import current_plan
from surgeon.surgery.branches import mix_of
from surgeon.surgery.temperature import temperature_of


class Description(BaseModel):
    """Images are float32 in [0, 1], minus the mean and divided by the std of `preprocessing`.

    Where `preprocessing` has `sound`, they are the log-mel spectrograms that it describes, not from 0 to 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    surgeon_version: str
    input_name: str
    input_shape: tuple[int | str, ...]
    preprocessing: Preprocessing | None
    class_names: tuple[str, ...] | None
    source: ModelSource | None
    base_weights: BaseWeights
    surgery: str
    """The rewrites and inserts, as they are written on the command line."""
    branch_share: float | None
    """Of the auxiliary branch in the predictions, which the graph mixes itself."""
    temperature: float | None
    """By which the graph divides its logits itself."""
    history: History
    """What was done to the network, in order, as in the record of a checkpoint."""


def describe(loaded: LoadedModel, images: Tensor, exported: Exported) -> Description:
    """The record of a network that takes such images."""
    origin, mix = loaded.origin, mix_of(loaded.model)
    return Description(
        surgeon_version=VERSION,
        input_name=INPUT,
        input_shape=(BATCH, *images.shape[1:]),
        preprocessing=origin.preprocessing,
        class_names=loaded.class_names,
        source=origin.source,
        base_weights=origin.weights,
        surgery=current_plan(loaded.model).summary(),
        branch_share=None if mix is None else mix.share,
        temperature=temperature_of(loaded.model),
        history=origin.after(exported).history,
    )
