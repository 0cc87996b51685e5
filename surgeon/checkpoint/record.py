"""The record of a surgery, and whether the files of a checkpoint still agree with it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticSerializationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.reading import parse_json, read_bounded, shortened
from surgeon.models.history import History
from surgeon.models.origin import BaseWeights, ModelSource, Preprocessing
from surgeon.models.timm_folder import read_config
from surgeon.surgery.branches import Mixing
from surgeon.surgery.plan import ResolvedPlan

SCHEMA_VERSION = 2
BEFORE_HISTORY = 1
"""The schema of records that tell what was found in sentences."""
WEIGHTS, CONFIG, SURGERY, CARD = "model.safetensors", "config.json", "surgery.json", "README.md"
PLAIN_FILES = (WEIGHTS, CONFIG, CARD)
"""Of a network for timm alone."""
MOST_RECORD_BYTES = 1 << 24
"""A record names every rewritten layer, class and, where alpha is one per channel, channel: that takes 1 MB."""
LONGEST_REASON = 300
"""Of what is told of a damaged record, which may quote it."""


class BranchMix(BaseModel):
    """The share of the auxiliary branch, and of what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    share: Annotated[float, Field(ge=0, le=1)]
    mixing: Mixing


class Surgery(BaseModel):
    """What was done to which network."""

    # Only figures of the history may be infinite; JSON has no word for that.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="strings")

    schema_version: int = SCHEMA_VERSION
    surgeon_version: str
    source: ModelSource | None
    base_weights: BaseWeights
    preprocessing: Preprocessing | None
    class_names: tuple[str, ...] | None = None
    plan: ResolvedPlan
    mix: BranchMix | None = None
    """How predictions mix the branches of a split network; without it, the main branch predicts."""
    temperature: Annotated[float, Field(gt=0)] | None = None
    """What the logits are divided by."""
    history: History = ()
    """What was done to the network, in order."""


class SurgeryFile(Surgery):
    """surgery.json: the same, and the hashes of the files beside it."""

    files: dict[str, str]

    def surgery(self) -> Surgery:
        return Surgery(**{name: value for name, value in self if name != "files"})


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_surgery(folder: Path) -> Surgery:
    """The record of a checkpoint, or the first thing that is wrong with it."""
    problems = find_problems(folder)
    if problems:
        raise SurgeonError(problems[0], f"Run `surgeon verify {folder}` for the full list of problems.")
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
        # As JSON, in which a figure that is not a number equals itself.
        embedded, stated = (
            parse_json(one.model_dump_json()) for one in (_embedded_surgery(folder / WEIGHTS), record.surgery())
        )
        if embedded != stated:
            problems.append(_first_difference(stated, embedded))
    except SurgeonError as error:
        problems.append(error.message)
    for name in (WEIGHTS, CONFIG):
        if not problems and sha256_of(folder / name) != record.files.get(name):
            problems.append(f"{name} in {folder} is not the file that was written (its sha256 has changed).")
    return problems or _problems_of_config(folder / CONFIG)


def _problems_of_config(path: Path) -> list[str]:
    """timm takes the architecture of a checkpoint from this file."""
    try:
        config = read_config(path)
    except SurgeonError as error:
        return [error.message]
    settings = config.get("pretrained_cfg", {})
    return [] if isinstance(settings, dict) else [f"{path} is not in timm's form: pretrained_cfg is not a mapping."]


def is_plain(folder: Path) -> bool:
    """Whether a folder is one for timm alone, and not a checkpoint that has lost its record."""
    if (folder / SURGERY).exists() or not all((folder / name).is_file() for name in (WEIGHTS, CONFIG)):
        return False
    return "surgeon" not in metadata_of(folder / WEIGHTS)


def _parse(path: Path) -> SurgeryFile:
    try:
        content = parse_json(read_bounded(path, "surgery record", MOST_RECORD_BYTES))
    except ValueError as error:
        raise SurgeonError(f"{path} is not readable JSON ({error}).") from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise SurgeonError(
            f"{path} was written by a newer surgeon (schema {version}; this one reads {SCHEMA_VERSION}): update it."
        )
    return _validated(SurgeryFile, content, f"{path} is not a valid surgery record")


T = TypeVar("T", bound=Surgery)


def _validated(kind: type[T], content: Any, problem: str) -> T:
    """A record of any schema, or what is wrong with it."""
    try:
        record = kind.model_validate(_with_history(content))
        record.model_dump_json()  # which a text can be kept from by half a character
        return record
    except PydanticSerializationError as error:
        raise SurgeonError(f"{problem}: it holds text that is not Unicode.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise SurgeonError(f"{problem}: {where[:LONGEST_REASON]}: {first['msg'][:LONGEST_REASON]}.") from error


def _with_history(content: Any) -> Any:
    """A record of an earlier schema as one of this: its sentences become the first step of the history.

    Also without any, since what such a record told of fine-tuning was lost when the network was saved again.
    """
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or version > BEFORE_HISTORY or "history" in content:
        return content
    others = {name: value for name, value in content.items() if name != "findings"}
    findings, written_by = content.get("findings", []), content.get("surgeon_version")
    return {**others, "history": [{"kind": "earlier", "surgeon_version": written_by, "findings": findings}]}


def metadata_of(path: Path) -> dict[str, str]:
    """What a safetensors file says about itself."""
    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> SurgeonError:
    return SurgeonError(
        f"{path} is truncated or not a safetensors file ({' '.join(str(error).split())}).",
        exit_code=ExitCode.VERIFICATION,
    )


def _embedded_surgery(path: Path) -> Surgery:
    metadata = metadata_of(path)
    if "surgeon" not in metadata:
        raise SurgeonError(f"{path} carries no surgery record: it was replaced by another file.")
    try:
        if len(metadata["surgeon"]) > MOST_RECORD_BYTES:
            raise ValueError("it is too large")
        content = parse_json(metadata["surgeon"])
    except ValueError as error:
        raise SurgeonError(f"The surgery record inside {path} is damaged ({error}).") from error
    return _validated(Surgery, content, f"The surgery record inside {path} is damaged")


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
    return f"surgery.json was edited: {where} is {shortened(edited)} there, but {shortened(written)} inside {WEIGHTS}."


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint by their names."""
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, AttributeError) as error:
        raise _unreadable(path, error) from error
