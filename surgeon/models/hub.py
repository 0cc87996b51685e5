"""Dealing with downloads: an unreachable hub, files that want to run code, chatty libraries."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from pickle import UnpicklingError
from urllib.parse import urlsplit
from urllib.request import getproxies

from surgeon.core.errors import ExitCode, SurgeonError, did_you_mean, listing

FORCE_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


class Reach(StrEnum):
    """Whether the hub can be reached, as far as can be told without asking it."""

    SWITCHED_OFF = "switched off by HF_HUB_OFFLINE"
    UNRESOLVED = "not reachable: its name cannot be resolved"
    PROXY = "through a proxy"
    RESOLVED = "its name can be resolved"


def reach_of_hub() -> Reach:
    """A quick look: at the settings, then at whether the hub's name is known here."""
    from huggingface_hub import constants

    host = urlsplit(constants.ENDPOINT).hostname
    if constants.HF_HUB_OFFLINE:
        return Reach.SWITCHED_OFF
    if getproxies() or host is None:
        return Reach.PROXY
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return Reach.UNRESOLVED
    return Reach.RESOLVED


@contextmanager
def not_waiting_for_hub() -> Iterator[None]:
    """Use only cached files while the hub's name cannot be resolved, instead of retrying for a minute."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or reach_of_hub() is Reach.UNRESOLVED
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def repository_of(name: str) -> tuple[str, str | None] | None:
    """The repository and the revision that `hf-hub:OWNER/NAME[@REVISION]` names; None for any other MODEL."""
    if not name.startswith(("hf-hub:", "hf_hub:")):
        return None
    repository, _, revision = name.partition(":")[2].partition("@")
    return repository, revision or None


def hub_name(origin: str) -> str | None:
    """The repository that weights of this origin are in: named by it, or known to timm; None if there is none."""
    if (named := repository_of(origin)) is not None:
        return named[0]
    from timm.models import get_pretrained_cfg, is_model_pretrained

    config = get_pretrained_cfg(origin) if "." in origin and is_model_pretrained(origin) else None
    repository = str(config.hf_hub_id or "") if config is not None else ""
    return f"{repository}{origin}" if repository.endswith("/") else repository or None


def local_name(file: str) -> str:
    """The name of a file, told apart from weights that lie on the hub under the same name."""
    return f"{file} (a local file)" if hub_name(file) is not None else file


def hub_file(repository: str, file: str, revision: str | None) -> Path | None:
    """A file of a repository, in the hub's cache; None if the repository, or the cache without a network, has none."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(hf_hub_download(repository, file, revision=revision))
    except EntryNotFoundError:
        return None


def cached_file(repository: str, file: str, revision: str | None) -> Path | None:
    """The same, without asking the hub."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repository, file, revision=revision)
    return Path(path) if isinstance(path, str) else None


class NoWeightsError(SurgeonError):
    """There are no pretrained weights to be had: a file of them has to be named."""


def not_loaded(name: str, error: Exception, pretrained: bool) -> SurgeonError:
    """Why a network's weights or settings could not be had, and what to do."""
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, HFValidationError):
        return SurgeonError(f"{name!r} names no repository on the hub.", "Write hf-hub:OWNER/NAME.")
    if isinstance(error, RevisionNotFoundError):
        return SurgeonError(f"The hub has no such revision: {name!r}.", "Write hf-hub:OWNER/NAME@BRANCH.")
    if isinstance(error, UnpicklingError):
        return SurgeonError(
            f"The weights of {name!r} were refused: the downloaded file asks to run code, and nothing of it was run."
        )
    if isinstance(error, RepositoryNotFoundError):
        return SurgeonError(
            f"There is no model {name!r} on the hub, or it is private.", "Check the name; log in with `hf auth login`."
        )
    if isinstance(error, FileNotFoundError) and name.startswith("local-dir:"):
        return SurgeonError(f"{name!r} cannot be opened: {error}.")
    unreachable = f"the model hub cannot be reached, and its cache does not hold them ({type(error).__name__})"
    if not pretrained:  # a hub model's architecture is on the hub too
        return SurgeonError(
            f"The settings of {name!r} could not be loaded: {unreachable}.",
            "Name the architecture itself, or a local copy of the folder.",
            ExitCode.FAILED,
        )
    return NoWeightsError(
        f"The pretrained weights of {name!r} could not be loaded: {unreachable}.",
        "Pass a local file with --weights FILE, or use --no-pretrained for random weights.",
        ExitCode.FAILED,
    )


@contextmanager
def careful() -> Iterator[None]:
    """Keep the libraries' warnings away from the user, and their pickles from running code."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    forced = os.environ.get(FORCE_WEIGHTS_ONLY)
    os.environ[FORCE_WEIGHTS_ONLY] = "1"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        if forced is None:
            del os.environ[FORCE_WEIGHTS_ONLY]
        else:
            os.environ[FORCE_WEIGHTS_ONLY] = forced


def check_repository(name: str) -> None:
    """Refuse what cannot be the name of a repository on the hub."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
        valid = name.count("/") == 1
    except HFValidationError:
        valid = False
    if not valid:
        raise SurgeonError(
            f"{name!r} is not a repository's name.",
            "Write owner/name: letters, digits, '-', '_' and '.', no '--' or '..', at most 96 characters.",
        )


def timm_refusal(name: str, error: RuntimeError, pretrained: bool) -> SurgeonError:
    """Why timm did not build a network: there are no such weights, or something that only timm can tell."""
    import timm

    reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
    if ":" in name:  # a folder, or a repository on the hub
        return SurgeonError(f"timm cannot build {name!r}: {reason}.")
    architecture, _, tag = name.partition(".")
    tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        hint = did_you_mean(tag, tags) or f"Known tags: {listing(tags)}."
        return SurgeonError(f"{architecture!r} has no pretrained weights tagged {tag!r}.", hint)
    if pretrained and not tags:
        return NoWeightsError(
            f"There are no pretrained weights for {name!r}.",
            "Pass --weights FILE, or --no-pretrained for random ones.",
        )
    return SurgeonError(f"timm cannot build {name!r}: {reason}.")
