"""Checkpoints: a folder that timm and Hugging Face users recognise, and that proves what it is.

    model.safetensors   weights under their original names; the surgery is also in its metadata
    config.json         the architecture in timm's form
    surgery.json        source, base weights, preprocessing, resolved plan, and the files' hashes
    README.md           the model card

Every file is written beside its destination, flushed to disk and renamed; surgery.json comes last.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

import surgeon
from surgeon.checkpoint.card import model_card
from surgeon.checkpoint.record import (
    CARD,
    CONFIG,
    SURGERY,
    WEIGHTS,
    BranchMix,
    Surgery,
    SurgeryFile,
    metadata_of,
    read_surgery,
    read_tensors,
    sha256_of,
)
from surgeon.core.atomic import check_destination, staged
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.private import with_metadata
from surgeon.layers.running import evaluate_once
from surgeon.layers.surgical import surgical_layers
from surgeon.models.allocation import bounded_by
from surgeon.models.catalog import CATALOG
from surgeon.models.hub import (
    cached_file,
    careful,
    hub_file,
    not_loaded,
    not_waiting_for_hub,
    repository_of,
)
from surgeon.models.sources import (
    LoadedModel,
    ModelSource,
    Origin,
    build,
    example_inputs,
    load_model,
    timm_preprocessing,
)
from surgeon.surgery import parity
from surgeon.surgery.apply import apply_plan, current_plan, unwrapped
from surgeon.surgery.branches import mix_branches, mix_of
from surgeon.surgery.collect import make_room
from surgeon.surgery.temperature import set_temperature, temperature_of

ASSETS = Path(__file__).parents[1] / "assets"


def open_model(
    name: str, *, weights: Path | None = None, pretrained: bool = True, num_classes: int | None = None
) -> LoadedModel:
    """Any MODEL of the command line: a checkpoint, here or on the hub, a bundled model, or an architecture's name."""
    folder = _checkpoint_named(name) if weights is None else None
    if folder is None or (folder == ASSETS / name and not pretrained):
        return load_model(name, weights=weights, pretrained=pretrained, num_classes=num_classes)
    if num_classes is not None or not pretrained:
        option = "--no-pretrained" if not pretrained else "--num-classes"
        raise SurgeonError(f"{option} does not go with a checkpoint, which has its own weights and classes.")
    loaded = load_checkpoint(folder)
    loaded.name = name
    return loaded


def _checkpoint_named(name: str) -> Path | None:
    """The folder of the checkpoint that a MODEL names; None if it names something else."""
    if repository_of(name) is not None:
        return from_hub(name)
    folders = (*([ASSETS / name] if name in CATALOG else []), Path(name))
    return next((folder for folder in folders if (folder / SURGERY).is_file()), None)


def from_hub(name: str) -> Path | None:
    """The files of a checkpoint on the hub, all of one commit, in its cache; None if there is another kind of model."""
    repository, revision = repository_of(name) or (name, None)
    try:
        with careful(), not_waiting_for_hub():
            record = hub_file(repository, SURGERY, revision)
            if record is None:
                _refuse_half_a_checkpoint(name, cached_file(repository, WEIGHTS, revision))
                return None
            missing = [file for file in (WEIGHTS, CONFIG) if hub_file(repository, file, record.parent.name) is None]
    except (OSError, ValueError) as error:
        raise not_loaded(name, error, True) from error
    if missing:
        raise SurgeonError(
            f"The checkpoint {name!r} is incomplete: its {missing[0]} is not there.",
            "If the hub could not be reached, open it once where it can.",
            ExitCode.FAILED,
        )
    return record.parent


def _refuse_half_a_checkpoint(name: str, weights: Path | None) -> None:
    """timm leaves only weights and settings in the cache, which are another network without the record."""
    if weights is None:
        return
    if "surgeon" in metadata_of(weights):
        raise SurgeonError(
            f"The weights of {name!r} are those of a surgeon checkpoint, but its {SURGERY} is not beside them.",
            "If the hub could not be reached, open it once where it can.",
            ExitCode.FAILED,
        )


def folder_of(path: str | Path) -> Path:
    """The folder of a checkpoint that is given by its path, or as `hf-hub:OWNER/NAME`."""
    if repository_of(str(path)) is None:
        return Path(path)
    folder = from_hub(str(path))
    if folder is None:
        raise SurgeonError(f"{str(path)!r} is not a surgeon checkpoint: there is no {SURGERY}.")
    return folder


def load(path: str | Path, model: nn.Module | None = None) -> nn.Module:
    """The converted network of a checkpoint, in evaluation mode, with its plan as `model.surgery`.

    `path` is a folder, or `hf-hub:OWNER/NAME`. A network that neither timm nor torchvision can build is passed
    as `model`, unconverted; it is converted and filled in place.
    """
    return load_checkpoint(folder_of(path), model).model


def load_checkpoint(folder: Path, model: nn.Module | None = None) -> LoadedModel:
    """Read, check and rebuild a checkpoint."""
    surgery = read_surgery(folder)
    if model is None:
        if surgery.source is None:
            raise SurgeonError(
                f"{folder} was saved from a network that only your code can build.",
                "Pass it: surgeon.load(path, model=MyNetwork()).",
            )
        model = build(surgery.source, (folder / WEIGHTS).stat().st_size)
    model = _with_surgery(model, surgery, folder)
    origin = Origin(
        source=surgery.source,
        preprocessing=surgery.preprocessing,
        weights=surgery.base_weights,
        class_names=surgery.class_names,
        findings=surgery.findings,
    )
    model.origin = origin  # type: ignore[assignment]
    return LoadedModel(str(folder), model.eval(), origin)


def _with_surgery(model: nn.Module, surgery: Surgery, folder: Path) -> nn.Module:
    """Do again to a network what the record of a checkpoint tells, and give it the weights."""
    try:
        with bounded_by((folder / WEIGHTS).stat().st_size):
            model = apply_plan(model, surgery.plan)
            _fill(model, read_tensors(folder / WEIGHTS), folder)
        if surgery.mix is not None:
            mix_branches(model, surgery.mix.share, surgery.mix.mixing)
        set_temperature(model, surgery.temperature)
    except SurgeonError:
        raise
    except Exception as error:  # a plan that was made up meets layers that were never meant for it
        reason = next(iter(str(error).splitlines()), "no reason given").rstrip(".")
        raise SurgeonError(
            f"The plan in {folder} cannot be put into the network it names: {type(error).__name__}: {reason}."
        ) from error
    return model


def _fill(model: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    for name, norm in surgical_layers(model).items():
        if norm.running_mean is None and f"{name}.running_mean".lstrip(".") in state:
            make_room(norm)  # statistics that were collected after the network was built
    precisions = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    if len(precisions) == 1:
        model.to(precisions.pop())
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in state:
            tensor.data = tensor.data.to(state[name].dtype)
    # The layers' versions, which safetensors does not keep, are those of the code that wrote the file.
    versioned = with_metadata(OrderedDict(state), model.state_dict())
    try:
        model.load_state_dict(versioned, strict=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise SurgeonError(f"The weights in {folder} do not fit the network they name: {reason}") from error


def save(
    model: nn.Module,
    path: str | Path,
    *,
    origin: Origin | None = None,
    parity: float | None = None,
    findings: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write a network with its surgery as a checkpoint folder, all or nothing; `findings` go into record and card.

    Where the network came from is known if surgeon loaded it or timm built it; other networks can be
    loaded again by passing them to `load`.
    """
    model, folder = unwrapped(model), Path(path)
    check_destination(folder, overwrite)
    origin = _with_own_head(model, origin or getattr(model, "origin", None) or origin_of_timm_model(model))
    surgery = record_of(model, origin, findings)
    with staged(folder, (WEIGHTS, CONFIG, CARD, SURGERY)) as stage:
        metadata = {"format": "pt", "surgeon": surgery.model_dump_json()}
        try:
            save_file(tensors_to_save(model), stage / WEIGHTS, metadata)
        except SafetensorError as error:  # how safetensors tells that the disk is full
            raise OSError(str(error)) from error
        config = timm_config(model, origin)
        _write_text(stage / CONFIG, json.dumps(config, indent=2))
        (stage / WEIGHTS).chmod((stage / CONFIG).stat().st_mode)  # safetensors makes it private
        _write_text(stage / CARD, model_card(folder.resolve().name, surgery, parity, licence_of(config, surgery)))
        hashes = {name: sha256_of(stage / name) for name in (WEIGHTS, CONFIG)}
        record = SurgeryFile(**surgery.model_dump(), files=hashes)
        _write_text(stage / SURGERY, record.model_dump_json(indent=2))
    return folder


def record_of(model: nn.Module, origin: Origin, findings: Sequence[str]) -> Surgery:
    """What has been done to a network until now."""
    return Surgery(
        surgeon_version=surgeon.__version__,
        source=origin.source,
        base_weights=origin.weights,
        preprocessing=origin.preprocessing,
        class_names=origin.class_names,
        plan=current_plan(model),
        mix=_mix_record(model),
        temperature=temperature_of(model),
        findings=tuple(findings),
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


def timm_config(model: nn.Module, origin: Origin) -> dict[str, Any]:
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
        "pretrained_cfg": preprocessing.model_dump(mode="json") if preprocessing else {},
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
