"""Checkpoints for others: the model card, and the upload to the Hugging Face hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from surgeon.checkpoint.card import addressed, model_card
from surgeon.checkpoint.card_header import card_metadata
from surgeon.checkpoint.record import (
    CARD,
    CONFIG,
    PLAIN_FILES,
    SURGERY,
    WEIGHTS,
    find_problems,
    is_plain,
    read_surgery,
    sha256_of,
)
from surgeon.checkpoint.writing import licence_of
from surgeon.core.bounded_yaml import parse_yaml
from surgeon.core.errors import ExitCode, SurgeonError, listing
from surgeon.core.reading import read_bounded
from surgeon.core.versions import DISTRIBUTION, VERSION
from surgeon.models.hub import Reach, careful, check_repository, reach_of_hub

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FILES = (WEIGHTS, CONFIG, SURGERY, CARD)
MOST_CARD_BYTES, MOST_CARD_VALUES = 1 << 20, 20_000
TOO_BUSY = (409, 412)  # what the hub answers to two commits at once


class Card(BaseModel):
    """A model card, and its header by itself."""

    model_config = ConfigDict(frozen=True)

    checkpoint: str
    metadata: dict[str, Any]
    text: str


class Upload(BaseModel):
    """A commit that the hub has confirmed."""

    model_config = ConfigDict(frozen=True)

    checkpoint: str
    repository: str
    revision: str
    address: str
    commit: str
    commit_url: str
    files: tuple[str, ...]


def card_of(folder: Path) -> Card:
    """The card that follows from a checkpoint's record."""
    if is_plain(folder):
        raise SurgeonError(
            f"{folder} is a network for timm alone, without a record to write a card from.",
            f"Its card was written with it, to {folder / CARD}.",
        )
    check_whole(folder)
    surgery, name = read_surgery(folder), folder.resolve().name
    licence = licence_of(json.loads((folder / CONFIG).read_bytes()), surgery)
    return Card(
        checkpoint=str(folder),
        metadata=card_metadata(name, surgery, licence).to_dict(),  # type: ignore[no-untyped-call]
        text=model_card(name, surgery, licence).rstrip() + "\n",
    )


def check_whole(folder: Path) -> None:
    """Refuse a checkpoint whose files do not agree."""
    if problems := find_problems(folder):
        raise SurgeonError(
            f"The checkpoint is broken: {problems[0]}",
            f"`surgeon verify {folder}` lists all problems.",
            ExitCode.VERIFICATION,
        )


def _checked_files(folder: Path) -> tuple[str, ...]:
    """What is to be uploaded of a folder, all of which is sound."""
    if is_plain(folder):
        check_card(folder, f"Export it anew: surgeon export CKPT --to timm -o {folder} --overwrite.")
        return PLAIN_FILES
    check_whole(folder)
    check_card(folder, f"Write it anew: surgeon card {folder} -o {folder / CARD} --overwrite.")
    return FILES


def check_card(folder: Path, again: str) -> None:
    """Refuse a card that the hub could not read, before anything is sent; `again` is how to get another."""
    from huggingface_hub import ModelCard
    from huggingface_hub.repocard import REGEX_YAML_BLOCK

    path = folder / CARD
    if not path.is_file():
        raise SurgeonError(f"{folder} has no model card.", again, ExitCode.VERIFICATION)
    try:
        text = read_bounded(path, "model card", MOST_CARD_BYTES).decode()
        if header := REGEX_YAML_BLOCK.search(text):
            parse_yaml(header[2], MOST_CARD_VALUES, each_key_once=False)
        metadata = ModelCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    except Exception as error:  # the YAML of a card that was edited can be wrong in any way
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise SurgeonError(
            f"The header of {path} is not valid: {reason.rstrip('.')}.", again, ExitCode.VERIFICATION
        ) from error
    if not metadata:
        raise SurgeonError(f"{path} has no header, so the hub would not know what it is.", again, ExitCode.VERIFICATION)


def push(
    folder: Path, repository: str, *, private: bool = False, message: str | None = None, revision: str | None = None
) -> Upload:
    """Upload a checkpoint's files in one commit, and look whether they have arrived.

    The card tells there how to load the network from there.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    check_repository(repository)
    with careful():
        files: dict[str, Path | bytes] = {name: folder / name for name in _checked_files(folder)}
        card = (folder / CARD).read_text("utf-8")
        files[CARD] = addressed(card, _address(repository, revision)).encode()
        _check_connection()
        api = HfApi(library_name=DISTRIBUTION, library_version=VERSION)
        with _explaining_failures(repository, revision):
            _make_room(api, repository, private, revision)
            commit = api.create_commit(
                repository,
                [CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in files.items()],
                commit_message=message or f"Upload a checkpoint of surgeon {VERSION}",
                revision=revision,
            )
            _check_arrival(api, repository, files, commit.oid)
    return Upload(
        checkpoint=str(folder),
        repository=repository,
        revision=revision or "main",
        address=f"{api.endpoint}/{repository}",
        commit=commit.oid,
        commit_url=commit.commit_url,
        files=tuple(files),
    )


def _address(repository: str, revision: str | None) -> str:
    """Under which the network is loaded; what is only proposed has that of the branch it will be merged into."""
    branch = "" if revision is None or revision == "main" or revision.startswith("refs/") else f"@{revision}"
    return f"hf-hub:{repository}{branch}"


def _check_connection() -> None:
    from huggingface_hub import get_token

    if (reach := reach_of_hub()) in (Reach.SWITCHED_OFF, Reach.UNRESOLVED):
        hint = "Unset HF_HUB_OFFLINE." if reach is Reach.SWITCHED_OFF else "Push from where there is a network."
        raise SurgeonError(f"Nothing was uploaded: the hub is {reach}.", hint, ExitCode.FAILED)
    if get_token() is None:
        raise SurgeonError(
            "Nothing was uploaded: you are not logged in to the hub.",
            "Run `hf auth login`, or set HF_TOKEN to a token that may write.",
            ExitCode.FAILED,
        )


def _make_room(api: HfApi, repository: str, private: bool, revision: str | None) -> None:
    """The repository and the branch, unless they are there already."""
    api.create_repo(repository, private=private or None, exist_ok=True)
    # One that was there before keeps its visibility, whatever was asked for.
    if private and not api.model_info(repository).private:
        raise SurgeonError(
            f"Nothing was uploaded: {repository} exists already and is public.",
            "Make it private on the hub, push to another name, or leave --private out.",
        )
    if revision not in (None, "main") and not revision.startswith("refs/"):
        api.create_branch(repository, branch=revision, exist_ok=True)


def _check_arrival(api: HfApi, repository: str, files: Mapping[str, Path | bytes], commit: str) -> None:
    """Compare hashes: a repository's .gitignore, for one, keeps files out without a word."""
    there: dict[str, Any] = {file.path: file for file in api.get_paths_info(repository, list(files), revision=commit)}
    wrong = [name for name, sent in files.items() if name not in there or not _same(sent, there[name])]
    if wrong:
        raise SurgeonError(
            f"The hub made the commit {commit[:12]}, but it does not hold your {listing(wrong)}.",
            f"Look at {api.endpoint}/{repository}: its .gitignore may exclude them.",
            ExitCode.FAILED,
        )


def _same(sent: Path | bytes, remote: Any) -> bool:
    """Whether a file on the hub, in git or in its store for large files, has these bytes."""
    if remote.lfs is not None:
        return bool(
            remote.lfs.sha256 == (sha256_of(sent) if isinstance(sent, Path) else hashlib.sha256(sent).hexdigest())
        )
    content = sent.read_bytes() if isinstance(sent, Path) else sent
    return bool(remote.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())


@contextmanager
def _explaining_failures(repository: str, revision: str | None) -> Iterator[None]:
    """Whatever goes wrong between here and the hub, in a sentence."""
    try:
        yield
    except SurgeonError:
        raise
    except Exception as error:  # each version of the library raises those of another HTTP client
        raise _explained(error, repository, revision) from error


def _explained(error: BaseException, repository: str, revision: str | None) -> SurgeonError:
    from huggingface_hub.errors import RevisionNotFoundError

    failed = f"The upload to {repository} failed"
    if isinstance(error, RevisionNotFoundError):
        return SurgeonError(f"{failed}: it has no revision {revision!r}.", "Name a branch with --revision.")
    status = _status(error)
    if status is None:
        reason = next(iter(str(error).splitlines()), "").rstrip(".") or "no answer"
        hint = "Check the connection, and push again: files that have arrived are not sent twice."
        return SurgeonError(f"{failed}: {type(error).__name__}: {reason}.", hint, ExitCode.FAILED)
    if status == 401:
        reason, hint = "the hub does not accept your token", "Log in again with `hf auth login`, or renew HF_TOKEN."
    elif status in (402, 403):
        reason = "your token does not allow you to write there"
        hint = "Push under your own name, or use a token with write permission for it (https://hf.co/settings/tokens)."
    elif status == 404:
        reason, hint = "the hub does not find it", "Check the owner's name and what your token may see."
    elif status in TOO_BUSY:
        reason, hint = "it was changed by somebody else at the same time", "Push again."
    elif status == 429:
        reason, hint = "the hub limits your rate of requests", "Wait some minutes and push again."
    elif status >= 500:
        reason, hint = (
            f"the hub reports an internal error ({status})",
            "Try again later; see https://status.huggingface.co.",
        )
    else:
        reason, hint = f"the hub refused it ({status}: {_server_message(error)})", ""
    return SurgeonError(f"{failed}: {reason}.", hint, ExitCode.FAILED)


def _status(error: BaseException | None) -> int | None:
    """The HTTP status at the bottom of an error, which the library may have wrapped in others."""
    while error is not None:
        if (response := getattr(error, "response", None)) is not None:
            return int(response.status_code)
        error = error.__cause__
    return None


def _server_message(error: BaseException) -> str:
    message = getattr(error, "server_message", None) or str(error)
    return next(iter(message.strip().splitlines()), "no reason given").rstrip(".")
