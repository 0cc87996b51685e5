"""Plain timm folders: wherever a network at inference is what timm itself builds, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn

from surgeon.checkpoint.card import plain_card
from surgeon.checkpoint.record import CARD, CONFIG, WEIGHTS
from surgeon.checkpoint.writing import config_for_timm, licence_of, record_of, tensors_to_save
from surgeon.core.errors import SurgeonError, listing
from surgeon.inserts import Effect
from surgeon.layers.surgical import SurgicalNorm, surgical_layers
from surgeon.models.history import Exported
from surgeon.models.origin import LoadedModel, ModelSource
from surgeon.models.sources import build
from surgeon.results import Target
from surgeon.surgery.branches import mix_of
from surgeon.surgery.inserting import units_of
from surgeon.surgery.temperature import temperature_of

TOLERANCE = 1e-6
OTHERS = "Export it to onnx or torch-export, which take it as it is."


def check_plain(loaded: LoadedModel) -> ModelSource:
    """How timm builds the network, or why it cannot."""
    source = loaded.origin.source
    if source is None or source.library != "timm":
        raise SurgeonError(f"{loaded.name} is not one of timm's architectures, so timm cannot build it.", OTHERS)
    model = loaded.model
    if (mix := mix_of(model)) is not None:
        raise SurgeonError(
            f"{loaded.name} mixes the predictions of two branches (lambda {mix.share:g}), which timm does not.",
            f"`surgeon merge` makes one of them. {OTHERS}",
        )
    if (temperature := temperature_of(model)) not in (None, 1):
        raise SurgeonError(f"{loaded.name} divides its logits by {temperature:g}, which timm does not.", OTHERS)
    if units := [i.unit.name for i, _ in units_of(model) if i.effect is not Effect.NONE]:
        raise SurgeonError(
            f"{loaded.name} has {listing(dict.fromkeys(units))} units, which timm does not have.", OTHERS
        )
    for name, norm in surgical_layers(model).items():
        if reason := _not_plain(norm):
            raise SurgeonError(f"{loaded.name} is not plain at inference: {name} {reason}.", OTHERS)
    return source


def _not_plain(norm: SurgicalNorm) -> str:
    """What a layer does in evaluation that the layer it replaced did not, or nothing."""
    if norm.whole_rule is not None or norm.inference_rule is not None:
        return f"normalises by its own rule ({listing(norm.rewrites)})"
    if (norm.alpha != norm.identity_alpha).any():
        share = "per channel" if norm.constant_alpha is None else f"{norm.constant_alpha:g}"
        return f"weighs each example's own statistics (alpha {share})"
    if norm.source_has_statistics and norm.channel_groups < norm.num_features:
        return f"shares statistics within {norm.channel_groups} groups of channels"
    return ""


def write_plain(loaded: LoadedModel, source: ModelSource, folder: Path) -> list[str]:
    """Write the folder, and return what the reader should know about what was left out."""
    names = build(source).state_dict().keys()
    tensors = tensors_to_save(loaded.model)
    try:
        save_file({name: tensors[name] for name in names if name in tensors}, folder / WEIGHTS, {"format": "pt"})
    except SafetensorError as error:  # how safetensors tells that the disk is full
        raise OSError(str(error)) from error
    config = config_for_timm(loaded.model, loaded.origin)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    record = record_of(loaded.model, loaded.origin.after(Exported(target=Target.TIMM)))
    card = plain_card(loaded.name, record, licence_of(config, record))
    (folder / CARD).write_text(card.rstrip() + "\n", encoding="utf-8")
    (folder / WEIGHTS).chmod((folder / CONFIG).stat().st_mode)  # safetensors makes it private
    if any(layer.aux is not None for layer in surgical_layers(loaded.model).values()):
        return ["The auxiliary branch was left out: predictions are by the main one."]
    return []


def open_plain(folder: Path) -> nn.Module:
    """The network as timm reads it, without anything of ours."""
    import timm

    model: nn.Module = timm.create_model(f"local-dir:{folder}", pretrained=True)
    return model.eval()
