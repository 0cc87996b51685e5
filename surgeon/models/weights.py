"""Reading weight files as people really have them, without running anything that is in them.

A file is read by safetensors or by PyTorch's restricted unpickler. The weights are then looked for where
training scripts put them (`state_dict`, `model`, an averaged copy) and lose the name prefixes that
wrappers (DistributedDataParallel, torch.compile, Lightning) have left.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pickle import UnpicklingError
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from surgeon.core.errors import SurgeonError, count, did_you_mean, listing
from surgeon.core.reading import check_ordinary, shortened
from surgeon.models.pickle_bounds import CostlyPickleError, check_pickle

if TYPE_CHECKING:
    from pathlib import Path

# Where training scripts put the weights, the most telling name first. As in timm, an averaged copy is
# preferred, because it is the one whose accuracy was reported.
AVERAGED_COPIES = ("state_dict_ema", "model_ema", "ema_state_dict", "ema")
PLAIN_COPIES = ("state_dict", "model_state_dict", "model", "network", "net", "weights", "module")
DEEPEST_NESTING = 4

# Removed only where every name carries it: then it tells nothing apart, and the names behind it stay unique.
WRAPPER_PREFIXES = ("module.", "_orig_mod.", "model.", "network.", "net.", "backbone.")

ZIP_MAGIC = b"PK\x03\x04"
PICKLE_MAGIC = b"\x80"
HEAD_BYTES = 1 << 20

# PyTorch compresses nothing, and weights that somebody has compressed become little smaller.
MOST_INFLATION, INFLATION_SLACK = 16, 1 << 26
MOST_PICKLE_BYTES = 1 << 26
LEGACY_PICKLES = 5  # a magic number, a version, the system, the content, the names of storages


@dataclass(frozen=True)
class WeightsFile:
    """Named tensors, what was done to find them, and which file they are from."""

    state: dict[str, Tensor]
    notes: tuple[str, ...]
    sha256: str
    path: Path


def read_weights(path: Path) -> WeightsFile:
    """The weights in a `.safetensors`, `.pth`, `.th`, `.pt`, `.ckpt` or `.bin` file; nothing in it is run."""
    checkpoint = _load(path, check_weights_file(path))
    found = _find(checkpoint) if isinstance(checkpoint, Mapping) else None
    if found is None:
        raise _no_weights(path, checkpoint)
    _refuse_tensors_without_values(path, found.state)
    return WeightsFile(found.state, found.notes + _precision_note(found.state), _sha256(path), path)


# --- the file -------------------------------------------------------------------------------------------


def check_weights_file(path: Path) -> bytes:
    """Refuse what is no weights file, or takes far more to read than it has bytes; its first bytes, otherwise."""
    head = _read_head(path)
    _refuse_text(path, head)
    try:
        _refuse_bombs(path, head)
    except CostlyPickleError:
        raise SurgeonError(
            f"{str(path)!r} was refused: reading its pickle would take far more time or memory than any weights need."
        ) from None
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError, OSError):
        pass  # torn or of another kind, which reading it tells
    return head


def _refuse_bombs(path: Path, head: bytes) -> None:
    if is_safetensors(path, head):
        return
    if not head.startswith(ZIP_MAGIC):  # which comes first: a file can be an archive of both kinds at once
        if tarfile.is_tarfile(path):
            return
        with path.open("rb") as file:
            _check_pickles(file, LEGACY_PICKLES)
        return
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > INFLATION_SLACK + MOST_INFLATION * path.stat().st_size:
            raise SurgeonError(f"{str(path)!r} was refused: a few bytes unpack to far more than weights would.")
        for entry in entries:
            if entry.filename.rpartition("/")[2] == "data.pkl":
                with archive.open(entry) as file:
                    _check_pickles(file, 1)


def _check_pickles(file: IO[bytes], number: int) -> None:
    content = BytesIO(file.read(MOST_PICKLE_BYTES))
    try:
        for _ in range(number):
            check_pickle(content)
    except ValueError:
        if content.tell() == MOST_PICKLE_BYTES:  # it goes on
            raise CostlyPickleError from None
        raise


def is_safetensors(path: Path, head: bytes) -> bool:
    """Whatever its name, a safetensors file starts with eight bytes of length and then a JSON object."""
    return path.suffix.lower() == ".safetensors" or head[8:9] == b"{"


def _read_head(path: Path) -> bytes:
    if path.is_dir():
        raise SurgeonError(f"{str(path)!r} is a folder, not a weights file.", _files_to_name(path))
    if path.parent.is_dir() and not path.exists():
        hint = did_you_mean(path.name, [file.name for file in path.parent.iterdir()]) or "Check the path."
        raise SurgeonError(f"There is no weights file {str(path)!r}.", hint)
    check_ordinary(path, "weights file")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        message = f"The weights file {str(path)!r} cannot be read: {error.strerror}."
        raise SurgeonError(message, "Check the path and its permissions.") from error
    if not head:
        raise SurgeonError(f"The weights file {str(path)!r} is empty.", "Download or copy it again.")
    return head


def _files_to_name(folder: Path) -> str:
    suffixes = {".safetensors", ".pth", ".th", ".pt", ".ckpt", ".bin", ".tar"}
    files = sorted(file.name for file in folder.iterdir() if file.suffix in suffixes)
    return f"Name a file in it: {listing(files, 'or')}." if files else "Name the weights file itself."


def _refuse_text(path: Path, head: bytes) -> None:
    """What a failed download leaves behind under the name of a weights file."""
    if head.startswith(b"version https://git-lfs"):
        raise SurgeonError(
            f"{str(path)!r} is a Git LFS pointer, not the weights themselves.",
            "Run `git lfs pull` in its repository, or download the file.",
        )
    # A safetensors file may start with "<" too, but the length that it starts with always has zero bytes.
    if re.match(rb"(\xef\xbb\xbf)?\s*<[!?a-zA-Z]", head) and b"\0" not in head[:64]:
        raise SurgeonError(
            f"{str(path)!r} is a web page, not a weights file.",
            "Download it again from the address of the file itself (on GitHub: the raw file).",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load(path: Path, head: bytes) -> Any:
    try:
        if is_safetensors(path, head):
            return load_file(path)
        with warnings.catch_warnings(), torch.serialization.safe_globals(_harmless_globals()):
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True, mmap=_can_be_mapped(path, head))
    # Damaged bytes make the readers raise nearly anything, from KeyError to OverflowError.
    except Exception as error:
        raise _explained(path, head, error) from error


def _harmless_globals() -> list[Any]:
    """Types that only store values, and that checkpoints hold: timm's arguments, numpy's numbers."""
    scalar = np.float64(0).__reduce__()[0]
    scalar_names = ("numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar")
    number_types = [type(np.dtype(number)) for number in (np.float32, np.float64, np.int64)]
    return [argparse.Namespace, np.dtype, *number_types, *((scalar, name) for name in scalar_names)]


def _can_be_mapped(path: Path, head: bytes) -> bool:
    """PyTorch maps zip files without looking whether they are compressed, and then reads nonsense."""
    if not head.startswith(ZIP_MAGIC):
        return False
    with zipfile.ZipFile(path) as archive:
        return all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())


def _explained(path: Path, head: bytes, error: Exception) -> SurgeonError:
    file, reason = repr(str(path)), str(error)
    resave = "If you trust its source, torch.load it with weights_only=False and save its state_dict()."
    if "TorchScript" in reason:
        return SurgeonError(
            f"{file} is a TorchScript program, not a weights file.",
            "Save its weights: torch.save(torch.jit.load(file).state_dict(), 'weights.pth').",
        )
    if "legacy .tar format" in reason:
        return SurgeonError(f"{file} has PyTorch's oldest (tar) format, which cannot be read safely.", resave)
    wanted = re.search(r"GLOBAL (\S+) (?:was not an allowed|whose module)", reason)
    # Files of both formats start with the pickle; the numbers come behind it.
    if wanted and b"torch.nn.modules." in head:
        return SurgeonError(
            f"{file} was refused: it is a whole pickled model and asks to run {wanted[1]}; nothing was run.",
            "Save the weights only: torch.save(model.state_dict(), 'weights.pth').",
        )
    if wanted:
        return SurgeonError(f"{file} was refused: it asks to run {wanted[1]}; nothing was run.", resave)
    if isinstance(error, UnpicklingError) and head.startswith((ZIP_MAGIC, PICKLE_MAGIC)):
        return SurgeonError(
            f"{file} was refused: it is pickled in a way that cannot be read safely; nothing was run.", resave
        )
    return SurgeonError(f"{file} is incomplete, damaged, or not a weights file.", "Download or copy it again.")


# --- the weights in it ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    state: dict[str, Tensor]
    notes: tuple[str, ...]
    name: str = ""


def _find(entries: Mapping[Any, Any], depth: int = 0) -> _Found | None:
    """The weights under one of the usual names, else those in the mapping itself."""
    if depth > DEEPEST_NESTING:
        return None
    averaged = _find_under(AVERAGED_COPIES, entries, depth)
    plain = _find_under(PLAIN_COPIES, entries, depth)
    if averaged and plain:
        return _averaged_if_complete(averaged, plain)
    return averaged or plain or _named_tensors(entries)


def _find_under(names: Iterable[str], entries: Mapping[Any, Any], depth: int) -> _Found | None:
    for name in names:
        inner = entries.get(name)
        found = _find(inner, depth + 1) if isinstance(inner, Mapping) else None
        if found:
            return _Found(found.state, (f"took {name!r}", *found.notes), name)
    return None


def _averaged_if_complete(averaged: _Found, plain: _Found) -> _Found:
    """Some trainers average the parameters only: without BatchNorm's statistics they are no network."""
    lacking = [name for name in plain.state if name not in averaged.state and not is_batch_counter(name)]
    if not lacking:
        return averaged
    note = f"left {averaged.name!r} aside: it lacks {count(len(lacking), 'name')} of {plain.name!r}"
    return _Found(plain.state, (*plain.notes, note), plain.name)


def _named_tensors(entries: Mapping[Any, Any]) -> _Found | None:
    tensors = {
        name: value.detach() for name, value in entries.items() if isinstance(name, str) and isinstance(value, Tensor)
    }
    if not tensors:
        return None
    notes = []
    if others := [_named(name) for name in entries if name not in tensors]:
        notes.append(f"left out {listing(others)}: not named tensors")
    if counter := _averaging_counter(tensors):
        del tensors[counter]
        notes.append(f"left out {counter}: it counts averaging steps")
    if prefix := wrapper_prefix(tensors):
        notes.append(f"removed the prefix {prefix!r} from {count(len(tensors), 'name')}")
    return _Found({name.removeprefix(prefix): tensor for name, tensor in tensors.items()}, tuple(notes))


def _named(key: object) -> str:
    return key if isinstance(key, str) and len(key) < 80 else shortened(key)


def _averaging_counter(names: Iterable[str]) -> str:
    """The `n_averaged` that torch's AveragedModel keeps beside the `module` it averages, if there is one."""
    for name in names:
        if name.rpartition(".")[2] == "n_averaged":
            averaged = name.removesuffix("n_averaged") + "module."
            others = [other for other in names if other != name]
            if others and all(other.startswith(averaged) for other in others):
                return name
    return ""


def wrapper_prefix(names: Iterable[str]) -> str:
    """The longest chain of wrapper prefixes, such as `module.model.`, that every name starts with."""
    names = list(names)
    prefix = ""
    while names:
        longer = (prefix + step for step in WRAPPER_PREFIXES)
        shared = next((one for one in longer if all(name.startswith(one) for name in names)), "")
        if not shared:
            break
        prefix = shared
    return prefix


def is_batch_counter(name: str) -> bool:
    return name.rpartition(".")[2] == "num_batches_tracked"


def _no_weights(path: Path, checkpoint: object) -> SurgeonError:
    if not isinstance(checkpoint, Mapping):
        return SurgeonError(
            f"{str(path)!r} holds a {type(checkpoint).__name__}, not named weights.",
            "Save the weights as model.state_dict().",
        )
    entries = f"its entries are {listing(map(_named, checkpoint))}" if checkpoint else "it has no entries"
    return SurgeonError(
        f"{str(path)!r} holds no weights: {entries}.",
        f"They are looked for at the top and under {listing((*PLAIN_COPIES, *AVERAGED_COPIES), 'or', 12)}.",
    )


def _refuse_tensors_without_values(path: Path, state: Mapping[str, Tensor]) -> None:
    for name, tensor in state.items():
        if tensor.is_meta or tensor.layout is not torch.strided:
            kind = "without values" if tensor.is_meta else "in sparse form"
            raise SurgeonError(
                f"{str(path)!r} stores {name!r} {kind}.",
                "Save the weights of the ordinary, dense model.",
            )


def _precision_note(state: Mapping[str, Tensor]) -> tuple[str, ...]:
    precisions = {str(tensor.dtype).removeprefix("torch.") for tensor in state.values() if tensor.is_floating_point()}
    if precisions <= {"float32"}:
        return ()
    return (f"stored as {listing(sorted(precisions))}; used in the precision of the model",)
