"""The record of a surgery, and whether the files of a checkpoint still agree with it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.models.sources import BaseWeights, ModelSource, Preprocessing
from surgeon.surgery.branches import Mixing
from surgeon.surgery.plan import ResolvedPlan

SCHEMA_VERSION = 1
WEIGHTS, CONFIG, SURGERY, CARD = "model.safetensors", "config.json", "surgery.json", "README.md"
PLAIN_FILES = (WEIGHTS, CONFIG, CARD)
"""Of a network for timm alone."""


class BranchMix(BaseModel):
    """The share of the auxiliary branch, and of what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: float
    mixing: Mixing


class Surgery(BaseModel):
    """What was done to which network."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    surgeon_version: str
    source: ModelSource | None
    base_weights: BaseWeights
    preprocessing: Preprocessing | None
    class_names: tuple[str, ...] | None = None
    plan: ResolvedPlan
    mix: BranchMix | None = None
    """How predictions mix the branches of a split network; without it, the main branch predicts."""
    temperature: float | None = None
    """What the logits are divided by."""
    findings: tuple[str, ...] = ()
    """What was measured when the settings were chosen, in sentences."""


class SurgeryFile(Surgery):
    """surgery.json: the same, and the hashes of the files beside it."""

    files: dict[str, str]

    def surgery(self) -> Surgery:
        return Surgery(**self.model_dump(exclude={"files"}))


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_surgery(folder: Path) -> Surgery:
    """The record of a checkpoint, or the first thing that is wrong with it."""
    problems = find_problems(folder)
    if problems:
        raise SurgeonError(problems[0], f"Run `surgeon verify {folder}` for all that is wrong.")
    return _parse(folder / SURGERY).surgery()


def find_problems(folder: Path) -> list[str]:
    """Everything that is wrong with a checkpoint's files, each in a sentence."""
    if not folder.is_dir():
        return [f"{folder} is not a folder."]
    missing = [name for name in (WEIGHTS, CONFIG, SURGERY) if not (folder / name).is_file()]
    if missing:
        return [f"{folder} has no {name}." for name in missing]
    try:
        record = _parse(folder / SURGERY)
    except SurgeonError as error:
        return [error.message]
    problems = []
    try:
        embedded = _embedded_surgery(folder / WEIGHTS)
        stated = json.loads(record.surgery().model_dump_json())
        if embedded != stated:
            problems.append(_first_difference(stated, embedded))
    except SurgeonError as error:
        problems.append(error.message)
    for name in (WEIGHTS, CONFIG):
        if not problems and sha256_of(folder / name) != record.files.get(name):
            problems.append(f"{name} in {folder} is not the file that was written (its sha256 has changed).")
    return problems


def is_plain(folder: Path) -> bool:
    """Whether a folder is one for timm alone, and not a checkpoint that has lost its record."""
    if (folder / SURGERY).exists() or not all((folder / name).is_file() for name in (WEIGHTS, CONFIG)):
        return False
    return "surgeon" not in _metadata(folder / WEIGHTS)


def _parse(path: Path) -> SurgeryFile:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise SurgeonError(f"{path} is not readable JSON ({error}).") from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise SurgeonError(
            f"{path} was written by a newer surgeon (schema {version}; this one reads {SCHEMA_VERSION}): update it."
        )
    try:
        return SurgeryFile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise SurgeonError(f"{path} is not a valid surgery record: {where or 'the file'}: {first['msg']}.") from error


def _metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise SurgeonError(
            f"{path} is truncated or not a safetensors file ({error}).", exit_code=ExitCode.VERIFICATION
        ) from error


def _embedded_surgery(path: Path) -> Any:
    metadata = _metadata(path)
    if "surgeon" not in metadata:
        raise SurgeonError(f"{path} carries no surgery record: it was replaced by another file.")
    try:
        content = json.loads(metadata["surgeon"])
    except ValueError as error:
        raise SurgeonError(f"The surgery record inside {path} is damaged ({error}).") from error
    if not isinstance(content, dict):
        return content
    # What a file written before has no entry for is as by default.
    if isinstance(content.get("plan"), dict):
        content["plan"] = {"insertions": [], **content["plan"]}
    return {"class_names": None, "mix": None, "temperature": None, "findings": [], **content}


def _first_difference(edited: Any, written: Any, where: str = "") -> str:
    if isinstance(edited, dict) and isinstance(written, dict) and edited.keys() == written.keys():
        pairs = [(f"{where}.{key}".lstrip("."), edited[key], written[key]) for key in edited]
    elif isinstance(edited, list) and isinstance(written, list) and len(edited) == len(written):
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(edited, written, strict=True))]
    else:
        pairs = []
    for name, ours, theirs in pairs:
        if ours != theirs:
            return _first_difference(ours, theirs, name)
    return f"surgery.json was edited: {where} is {edited!r} there, but {written!r} inside model.safetensors."


def read_tensors(path: Path) -> dict[str, Tensor]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
