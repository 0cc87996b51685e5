"""Writing checkpoints: a folder that timm and Hugging Face users recognise, and that proves what it is.

    model.safetensors   weights under their original names; the surgery is also in its metadata
    config.json         the architecture in timm's form
    surgery.json        source, base weights, preprocessing, resolved plan, history, and the files' hashes
    README.md           the model card

Every file is written beside its destination, flushed to disk and renamed; surgery.json comes last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from surgeon.checkpoint.card import model_card
from surgeon.checkpoint.record import (
    CARD,
    CONFIG,
    SURGERY,
    WEIGHTS,
    BranchMix,
    Surgery,
    SurgeryFile,
    sha256_of,
)
from surgeon.core.atomic import check_destination, staged
from surgeon.core.errors import SurgeonError, count
from surgeon.core.versions import VERSION
from surgeon.layers.running import evaluate_once
from surgeon.models.history import MOST_STEPS, Saved, Step
from surgeon.models.origin import LoadedModel, ModelSource, Origin
from surgeon.models.sources import build, example_inputs, timm_preprocessing
from surgeon.surgery import parity
from surgeon.surgery.apply import apply_plan, current_plan, unwrapped
from surgeon.surgery.branches import mix_of
from surgeon.surgery.temperature import set_temperature, temperature_of


def save(
    model: nn.Module,
    path: str | Path,
    *,
    origin: Origin | None = None,
    findings: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write a network with its surgery as a checkpoint folder, all or nothing.

    Where the network came from and what was done to it is known if surgeon loaded it or timm built it; other
    networks can be loaded again by passing them to `load`.

    Args:
        model: The network, converted or not.
        path: The folder.
        origin: Where it came from, if you know better.
        findings: Sentences of your own for its history and its model card.
        overwrite: Replace the files of a checkpoint that is there.
    """
    model, folder = unwrapped(model), Path(path)
    check_destination(folder, overwrite)
    try:
        saved = Saved(findings=tuple(findings))
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise SurgeonError(f"The findings cannot be kept: {reason}.", "Pass a few sentences.") from error
    origin = origin or origin_of(model)
    says_nothing_new = not findings and isinstance(next(iter(origin.history[-1:]), None), Saved)
    return _write(model, origin if says_nothing_new else origin.after(saved), folder)


def save_checkpoint(
    loaded: LoadedModel,
    path: Path,
    *steps: Step,
    overwrite: bool = False,
    beside: Mapping[str, Callable[[Path], None]] | None = None,
) -> Path:
    """Write an opened network as a checkpoint folder, all or nothing.

    Args:
        loaded: The network, and what is known of it.
        path: The folder.
        steps: What was done to it last, which is added to its history.
        overwrite: Replace the files of a checkpoint that is there.
        beside: Other files that belong to it, such as a report, by their names with what writes them.
    """
    check_destination(path, overwrite)
    folder = _write(unwrapped(loaded.model), loaded.origin.after(*steps), path, beside or {})
    loaded.note(*steps)
    return folder


def _write(
    model: nn.Module, origin: Origin, folder: Path, beside: Mapping[str, Callable[[Path], None]] = MappingProxyType({})
) -> Path:
    if len(origin.history) > MOST_STEPS:
        raise SurgeonError(f"The history has {count(len(origin.history), 'step')}; {MOST_STEPS:,} can be kept.")
    origin = _with_own_head(model, origin)
    surgery = record_of(model, origin)
    with staged(folder, (*beside, WEIGHTS, CONFIG, CARD, SURGERY)) as stage:
        for name, write in beside.items():
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            write(stage / name)
        metadata = {"format": "pt", "surgeon": surgery.model_dump_json()}
        try:
            save_file(tensors_to_save(model), stage / WEIGHTS, metadata)
        except SafetensorError as error:  # how safetensors tells that the disk is full
            raise OSError(str(error)) from error
        config = config_for_timm(model, origin)
        _write_text(stage / CONFIG, json.dumps(config, indent=2))
        (stage / WEIGHTS).chmod((stage / CONFIG).stat().st_mode)  # safetensors makes it private
        _write_text(stage / CARD, model_card(folder.resolve().name, surgery, licence_of(config, surgery)))
        hashes = {name: sha256_of(stage / name) for name in (WEIGHTS, CONFIG)}
        record = SurgeryFile(**dict(surgery), files=hashes)
        _write_text(stage / SURGERY, record.model_dump_json(indent=2))
    return folder


def record_of(model: nn.Module, origin: Origin) -> Surgery:
    """What is known of a network now."""
    return Surgery(
        surgeon_version=VERSION,
        source=origin.source,
        base_weights=origin.weights,
        preprocessing=origin.preprocessing,
        class_names=origin.class_names,
        plan=current_plan(model),
        mix=_mix_record(model),
        temperature=temperature_of(model),
        history=origin.history,
    )


def _mix_record(model: nn.Module) -> BranchMix | None:
    mix = mix_of(model)
    return None if mix is None else BranchMix(share=mix.share, mixing=mix.mixing)


def _with_own_head(model: nn.Module, origin: Origin) -> Origin:
    """timm's reset_classifier may have given the network other classes since it was built."""
    source = origin.source
    if source is None or source.library != "timm" or not hasattr(model, "num_classes"):
        return origin
    arguments = {**source.arguments, "num_classes": model.num_classes}
    return origin.model_copy(update={"source": source.model_copy(update={"arguments": arguments})})


def _write_text(path: Path, text: str) -> None:
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


def tensors_to_save(model: nn.Module) -> dict[str, Tensor]:
    """Contiguous tensors on the CPU; safetensors takes none that share memory."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict().items():
        saved = tensor.detach().to("cpu").contiguous()
        if saved.untyped_storage().data_ptr() in seen:
            saved = saved.clone()
        seen.add(saved.untyped_storage().data_ptr())
        tensors[name] = saved
    return tensors


def config_for_timm(model: nn.Module, origin: Origin) -> dict[str, Any]:
    """config.json in the form that timm reads from a folder or the hub."""
    source, preprocessing = origin.source, origin.preprocessing
    arguments = dict(source.arguments) if source else {}
    config: dict[str, Any] = {
        "architecture": source.architecture if source else type(model).__name__,
        "num_classes": arguments.pop("num_classes", getattr(model, "num_classes", None)),
        "num_features": getattr(model, "num_features", None),
        "library_name": source.library if source else None,
        "label_names": list(origin.class_names) if origin.class_names else None,
        "model_args": arguments or None,
        # timm knows nothing of sound, and stops at names that it does not know.
        "pretrained_cfg": preprocessing.model_dump(mode="json", exclude={"sound"}) if preprocessing else {},
    }
    timm_cfg = getattr(model, "pretrained_cfg", None)
    if source and source.library == "timm" and timm_cfg:
        wanted = (
            "tag",
            "custom_load",
            "fixed_input_size",
            "pool_size",
            "first_conv",
            "classifier",
            "license",
            "crop_mode",
        )
        config["pretrained_cfg"] |= {k: timm_cfg[k] for k in wanted if timm_cfg.get(k)}
        config["pretrained_cfg"]["num_classes"] = config["num_classes"]
    return {key: value for key, value in config.items() if value is not None}


def licence_of(config: dict[str, Any], surgery: Surgery) -> str | None:
    """That of the base weights, if they are those that timm's settings speak of."""
    settings, origin = config.get("pretrained_cfg") or {}, surgery.base_weights.origin
    theirs = origin == f"{config.get('architecture')}.{settings.get('tag')}" or origin.startswith("hf-hub:")
    return settings.get("license") if theirs else None


def origin_of(model: nn.Module) -> Origin:
    """Where a network in memory came from, and what was done to it since: if surgeon loaded it or timm built it."""
    known: Origin = getattr(model, "origin", None) or Origin()
    if known.source is not None:
        return known
    return origin_of_timm_model(model).model_copy(update={"history": known.history})


def origin_of_timm_model(model: nn.Module) -> Origin:
    """How to build again a network that timm.create_model has built with default arguments.

    Other arguments (pooling, activation, strides) leave no trace in names and shapes, so the rebuilt
    network has to give the same outputs.
    """
    config: Any = getattr(model, "pretrained_cfg", None) or {}
    if not config.get("architecture") or not hasattr(model, "num_classes"):
        return Origin()
    arguments = {"num_classes": model.num_classes}
    source = ModelSource(library="timm", architecture=config["architecture"], arguments=arguments)
    origin = Origin(source=source, preprocessing=timm_preprocessing(config))
    inputs = example_inputs(origin, examples=1)
    assert inputs is not None
    try:
        again = apply_plan(build(source), current_plan(model))
        set_temperature(again, temperature_of(model))
        again.load_state_dict(model.state_dict())
        reference = next(model.parameters())
        inputs = tuple(t.to(reference.device, reference.dtype) for t in inputs)
        again.to(reference.device, reference.dtype)
        difference = parity.relative_difference(evaluate_once(again, inputs), evaluate_once(model, inputs))
    except (RuntimeError, SurgeonError):
        return Origin()
    return origin if difference <= parity.TOLERANCE else Origin()
