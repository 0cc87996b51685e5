"""Opening networks: checkpoints, here or on the hub, and whatever else a MODEL of the command line names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from surgeon.checkpoint.record import CONFIG, SURGERY, WEIGHTS, Surgery, metadata_of, read_surgery, read_tensors
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.private import with_metadata
from surgeon.layers.surgical import surgical_layers
from surgeon.models.allocation import bounded_by
from surgeon.models.catalog import CATALOG
from surgeon.models.fitting import refuse_diverged
from surgeon.models.hub import (
    cached_file,
    careful,
    hub_file,
    not_loaded,
    not_waiting_for_hub,
    repository_of,
)
from surgeon.models.origin import LoadedModel, Origin
from surgeon.models.renaming import Naming
from surgeon.models.sources import build, load_model
from surgeon.surgery.apply import apply_plan
from surgeon.surgery.branches import mix_branches
from surgeon.surgery.collect import make_room
from surgeon.surgery.temperature import set_temperature

ASSETS = Path(__file__).parents[1] / "assets"


def open_model(
    name: str,
    *,
    weights: Path | None = None,
    pretrained: bool = True,
    num_classes: int | None = None,
    rename: Sequence[str] = (),
    match: str | None = None,
    diverged: bool = False,
) -> LoadedModel:
    """Any MODEL of the command line: a checkpoint, here or on the hub, a bundled model, or an architecture's name.

    Weights with NaN or infinite values are refused unless `diverged`, for who wants to know where they are.
    """
    naming = Naming.of(rename, match)
    folder = _checkpoint_named(name) if weights is None and not naming else None
    if folder is None or (folder == ASSETS / name and not pretrained):
        found = load_model(name, weights=weights, pretrained=pretrained, num_classes=num_classes, naming=naming)
        if weights is not None and not diverged:
            refuse_diverged(found.model, weights)
        return found
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


def load(
    path: str | Path,
    model: nn.Module | None = None,
    *,
    weights: str | Path | None = None,
    rename: Sequence[str] = (),
    match: str | None = None,
) -> nn.Module:
    """The converted network of a checkpoint, in evaluation mode, with its plan as `model.surgery`.

    Args:
        path: A folder, or `hf-hub:OWNER/NAME`; with `weights`, the name of an architecture.
        model: The unconverted network, if neither timm nor torchvision can build it; it is converted and filled in
            place.
        weights: A file of weights for the architecture.
        rename: `PATTERN=REPLACEMENT`, regular expressions that turn the names in the file into the network's.
        match: `"shapes"` matches the layers of the file by order and shape, whatever they are called.
    """
    if weights is not None or rename or match:
        if model is not None:
            raise SurgeonError("surgeon.load takes either weights or a model of your own.")
        file = None if weights is None else Path(weights)
        return open_model(str(path), weights=file, rename=rename, match=match).model
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
        history=surgery.history,
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
