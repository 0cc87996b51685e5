"""Where networks come from: timm, torchvision, the Hugging Face hub, local folders, our own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar, cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from surgeon.core.errors import SurgeonError
from surgeon.core.reading import shortened
from surgeon.models.adopting import adopted
from surgeon.models.allocation import bounded_by
from surgeon.models.allowed import check_source
from surgeon.models.catalog import CATALOG
from surgeon.models.channels import COLOURS, with_channels
from surgeon.models.hub import (
    NoWeightsError,
    careful,
    local_name,
    not_loaded,
    not_waiting_for_hub,
    timm_refusal,
)
from surgeon.models.names import architecture_names, check_model_name
from surgeon.models.origin import BaseWeights, LoadedModel, ModelSource, Origin, Preprocessing
from surgeon.models.renaming import AS_NAMED, Naming
from surgeon.models.timm_folder import check_timm_folder, folder_arguments

AUXILIARY = "aux_classifier."
"""How the weights of an auxiliary head of torchvision's segmentation networks are called."""
DRAWN_WITH = 0
"""The seed of random weights, which are the same in every run."""


def load_model(
    name: str,
    *,
    weights: Path | None = None,
    pretrained: bool = True,
    num_classes: int | None = None,
    naming: Naming = AS_NAMED,
) -> LoadedModel:
    """Build the named network with its pretrained weights, with those of a file, or with random ones.

    It has as many classes as the file, unless another number is asked for.
    """
    given = adopted(weights, naming)
    auxiliary = given is not None and any(key.startswith(AUXILIARY) for key in given.file.state)
    loaded = _built(name, pretrained and given is None, num_classes, auxiliary)
    if given is not None:
        given = given.excerpted(loaded.model)
        if num_classes is None and (found := given.other_class_count(loaded.model)) is not None:
            with bounded_by(given.file.path.stat().st_size):
                loaded = _built(name, False, found, auxiliary)
            given = given.noting(f"built for the {found} classes of the file")
        given = given.filling(loaded.model, partial(example_inputs, loaded.origin))
        taken = BaseWeights(origin=local_name(given.file.path.name), sha256=given.file.sha256)
        loaded.origin = loaded.origin.model_copy(
            update={"weights": taken, "notes": (*loaded.origin.notes, *given.file.notes)}
        )
        loaded.origin = loaded.origin.after(*given.steps)
    loaded.model.eval()
    loaded.model.origin = loaded.origin  # type: ignore[assignment]
    return loaded


def _built(name: str, pretrained: bool, num_classes: int | None, auxiliary: bool = False) -> LoadedModel:
    """The named network; of those that segment, with an auxiliary head if the weights have one."""
    arguments: dict[str, Any] = {} if num_classes is None else {"num_classes": num_classes}
    arguments |= {"aux_loss": True} if auxiliary and name.startswith("torchvision:") else {}
    with careful(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(DRAWN_WITH)
        return _builder(name)(name, pretrained, arguments)


def build(source: ModelSource, weights_bytes: int | None = None) -> nn.Module:
    """The network of a source with random weights.

    Args:
        source: How to build it, which may be what somebody else's file says.
        weights_bytes: How large the weights are that it is built for; it must not be far larger.
    """
    check_source(source.library, source.architecture, source.arguments)
    builder = {"timm": _from_timm, "torchvision": _from_torchvision, "surgeon": _from_catalog}[source.library]
    name = f"torchvision:{source.architecture}" if source.library == "torchvision" else source.architecture
    try:
        with careful(), torch.random.fork_rng(devices=[]), bounded_by(weights_bytes):
            return builder(name, False, dict(source.arguments)).model.eval()
    except SurgeonError:
        raise
    except Exception as error:  # the libraries do not check arguments: wrong ones raise anything, anywhere
        given = ", ".join(f"{key}={shortened(value)}" for key, value in source.arguments.items())
        what = f"{source.architecture!r} with {given or 'its defaults'}"
        raise SurgeonError(f"{source.library} cannot build {what}: {_first_line(error)}.") from error


def drawn(source: ModelSource) -> nn.Module:
    """The network of a source with the random weights that it has wherever it is opened without trained ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(DRAWN_WITH)
        return build(source)


def _builder(name: str) -> Callable[[str, bool, dict[str, Any]], LoadedModel]:
    check_model_name(name)
    if name in CATALOG:
        return _from_catalog
    if name.startswith("torchvision:"):
        return _from_torchvision
    if Path(name).is_dir() and name not in architecture_names("timm"):
        return _from_folder
    return _from_timm


def _from_folder(name: str, pretrained: bool, arguments: dict[str, Any]) -> LoadedModel:
    if not (Path(name) / "config.json").exists():
        raise SurgeonError(
            f"The folder {name!r} holds neither a surgeon checkpoint (surgery.json) nor a timm model (config.json)."
        )
    return _from_timm(f"local-dir:{name}", pretrained, arguments)


def _from_catalog(name: str, pretrained: bool, arguments: dict[str, Any]) -> LoadedModel:
    entry = CATALOG[name]
    if pretrained:
        raise NoWeightsError(
            f"There are no pretrained weights for {name!r}.",
            "Pass --weights FILE, or --no-pretrained for random ones.",
        )
    shape = {"num_classes": entry.num_classes, "in_chans": entry.input_size[0], **arguments}
    model = entry.build(**shape)
    return LoadedModel(
        name,
        model,
        Origin(
            source=ModelSource(library="surgeon", architecture=name, arguments=shape),
            preprocessing=Preprocessing(input_size=entry.input_size, mean=entry.mean, std=entry.std),
            weights=BaseWeights(origin="random"),
        ),
    )


def _from_timm(name: str, pretrained: bool, arguments: dict[str, Any]) -> LoadedModel:
    import timm

    remote = name.startswith(("hf-hub:", "hf_hub:"))
    asks_the_hub = remote or (pretrained and not name.startswith("local-dir:"))

    kind, _, place = name.partition(":")
    weights_bytes = check_timm_folder(Path(place)) if kind == "local-dir" else None
    try:
        arguments = folder_arguments(name) | arguments
        with bounded_by(weights_bytes), not_waiting_for_hub() if asks_the_hub else nullcontext():
            model = timm.create_model(name, pretrained=pretrained, **arguments)
        config = cast("dict[str, Any]", model.pretrained_cfg)
        check_source("timm", config["architecture"], {})
        preprocessing = _for_channels(timm_preprocessing(config), arguments.get("in_chans", 3))
    except (OSError, UnpicklingError) as error:
        raise not_loaded(name, error, pretrained) from error
    except RuntimeError as error:
        raise timm_refusal(name, error, pretrained) from error
    except (ValueError, TypeError, LookupError, AttributeError, AssertionError, SafetensorError) as error:
        if not place:
            raise
        raise SurgeonError(f"The timm model in {place!r} is damaged: {_first_line(error)}.") from error
    for key in ("num_classes", "in_chans"):
        if (value := getattr(model, key, None)) is not None:
            arguments = {key: value, **arguments}
    source = ModelSource(
        library="timm",
        architecture=config["architecture"],
        arguments={k: v for k, v in arguments.items() if k != "in_chans" or v != 3},
    )
    tag = f"{config['architecture']}.{config['tag']}" if config.get("tag") else name
    weights = BaseWeights(origin=(name if ":" in name else tag) if pretrained else "random")
    return LoadedModel(name, model, Origin(source=source, preprocessing=preprocessing, weights=weights))


T = TypeVar("T", Preprocessing, Preprocessing | None)


def _for_channels(preprocessing: T, channels: int) -> T:
    """For a network built for other than the colour images its settings were written for."""
    if preprocessing is None or preprocessing.input_size[0] == channels:
        return preprocessing
    grey = {name: (sum(values) / len(values),) * channels for name, values in preprocessing if name in ("mean", "std")}
    return preprocessing.model_copy(update={"input_size": (channels, *preprocessing.input_size[1:]), **grey})


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


def timm_preprocessing(config: dict[str, Any]) -> Preprocessing:
    return Preprocessing(
        input_size=tuple(config["input_size"]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=config["interpolation"],
        crop_pct=config["crop_pct"],
    )


def _from_torchvision(name: str, pretrained: bool, arguments: dict[str, Any]) -> LoadedModel:
    from torchvision import models

    architecture = name.removeprefix("torchvision:")
    best = getattr(models.get_model_weights(architecture), "DEFAULT", None)
    if pretrained and best is None:
        raise NoWeightsError(
            f"There are no pretrained weights for {name!r}.",
            "Pass --weights FILE, or --no-pretrained for random ones.",
        )
    keywords = dict(arguments)
    channels = keywords.pop("in_chans", COLOURS)
    builder = inspect.unwrap(models.get_model_builder(architecture))
    if "weights_backbone" in inspect.signature(builder).parameters:
        keywords["weights_backbone"] = None
    try:
        model = models.get_model(architecture, weights="DEFAULT" if pretrained else None, **keywords)
        model = with_channels(model, channels, name)
    except (OSError, UnpicklingError) as error:
        raise not_loaded(name, error, pretrained) from error
    except (TypeError, ValueError) as error:
        if not arguments:
            raise
        hint = "Its pretrained weights fix the number of classes; use --no-pretrained." if pretrained else ""
        raise SurgeonError(f"{name!r} does not take --num-classes here: {_first_line(error)}.", hint) from error
    if getattr(model, "aux_classifier", None) is not None:  # which pretrained weights bring with them
        arguments = {**arguments, "aux_loss": True}
    return LoadedModel(
        name,
        model,
        Origin(
            source=ModelSource(library="torchvision", architecture=architecture, arguments=arguments),
            preprocessing=_for_channels(_torchvision_preprocessing(best), channels),
            weights=BaseWeights(origin=f"torchvision:{best}" if pretrained else "random"),
        ),
    )


def _torchvision_preprocessing(weights: Any) -> Preprocessing | None:
    preset: Any = weights.transforms() if weights is not None else None
    crop = getattr(preset, "crop_size", None)
    if crop is None:  # detection and optical flow take images of any size
        return None
    crop = list(crop) * 2 if len(crop) == 1 else list(crop)
    resize = getattr(preset, "resize_size", crop)
    return Preprocessing(
        input_size=(3, *crop),
        mean=tuple(preset.mean),
        std=tuple(preset.std),
        interpolation=str(preset.interpolation.value),
        crop_pct=round(crop[0] / (resize[0] if isinstance(resize, list | tuple) else resize), 4),
    )


def example_inputs(origin: Origin, examples: int = 2) -> tuple[Any, ...] | None:
    """Random inputs that the network of a source accepts, the same in every run; None if unknown."""
    if origin.source is None:
        return None
    generator = torch.Generator().manual_seed(0)

    def image(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    size = origin.preprocessing.input_size if origin.preprocessing else (3, 224, 224)
    if origin.source.library == "torchvision":
        from torchvision import models

        task = models.get_model_builder(origin.source.architecture).__module__.split(".")[2]
        if task == "detection":
            return ([image(3, 64, 64).sigmoid() for _ in range(examples)],)
        if task == "video":
            return (image(examples, 3, 16, *size[1:]),)
        if task == "optical_flow":
            return image(examples, 3, 128, 128), image(examples, 3, 128, 128)
    return (image(examples, *size),)
