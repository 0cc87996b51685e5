"""The folder of a timm model, looked at before timm opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surgeon.core.errors import SurgeonError
from surgeon.core.reading import parse_json, read_bounded
from surgeon.models.allowed import check_source
from surgeon.models.weights import check_weights_file, is_safetensors

CONFIG = "config.json"
MOST_CONFIG_BYTES = 1 << 24
WITHOUT_WEIGHTS = 1 << 28
"""Bytes that a network of a folder without weights is taken to have: enough for any that is not a bomb."""
WEIGHTS = ("*.safetensors", "*.pth", "*.pth.tar", "*.bin")


def read_config(path: Path) -> dict[str, Any]:
    """A config.json in timm's form, or what is wrong with it."""
    try:
        config = parse_json(read_bounded(path, CONFIG, MOST_CONFIG_BYTES))
    except ValueError as error:
        raise SurgeonError(f"{path} is not readable JSON ({error}).") from error
    if not isinstance(config, dict):
        raise SurgeonError(f"{path} is not a mapping.")
    return config


def check_timm_folder(folder: Path) -> int:
    """Refuse what timm would download, run or never finish reading; otherwise, the bytes of its weights."""
    if not (folder / CONFIG).exists():
        raise SurgeonError(f"There is no timm model in {str(folder)!r}: it has no {CONFIG}.")
    config = read_config(folder / CONFIG)
    architecture, arguments = config.get("architecture"), config.get("model_args") or {}
    if not isinstance(architecture, str) or not isinstance(arguments, dict):
        raise SurgeonError(f"The timm model in {str(folder)!r} is damaged: its {CONFIG} names no architecture.")
    try:
        check_source("timm", architecture, arguments)
    except SurgeonError as error:
        raise SurgeonError(f"The timm model in {str(folder)!r} cannot be built: {error.message}", error.hint) from error
    files = [file for pattern in WEIGHTS for file in sorted(folder.glob(pattern))]
    for file in files:
        if is_safetensors(file, check_weights_file(file)) and file.suffix != ".safetensors":
            raise SurgeonError(f"{str(file)!r} is not a file that timm can read: it has another format than its name.")
    return sum(file.stat().st_size for file in files) or WITHOUT_WEIGHTS


def folder_arguments(name: str) -> dict[str, Any]:
    """Arguments that a timm folder, `local-dir:PLACE` or `hf-hub:PLACE`, keeps beside its weights."""
    from timm.models import load_model_config_from_hf

    from surgeon.core.private import timm_config

    kind, _, place = name.partition(":")
    if not place:
        return {}
    load = timm_config if kind == "local-dir" else load_model_config_from_hf
    _, architecture, arguments = load(place)
    check_source("timm", architecture, arguments or {})
    return dict(arguments or {})
