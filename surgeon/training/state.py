"""What training has reached, on disk: whole or not at all, so that a killed run goes on where it was."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from surgeon.core.atomic import staged
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.models.weights import check_weights_file

STATE = "state.pt"


@dataclass(frozen=True)
class State:
    """After so many steps: weights, optimiser, averaged weights, and the curves so far.

    `shares` is what each process has for itself within an epoch: sums over its images and its running statistics.
    No generator is in it: whatever is random in a step follows from the seed and the step's number.
    """

    step: int
    model: dict[str, Any]
    optimizer: dict[str, Any]
    ema: dict[str, Any] | None
    epochs: list[dict[str, Any]]
    shares: list[dict[str, Any]]
    seconds: float


def save_state(folder: Path, state: State) -> None:
    with staged(folder, (STATE,)) as stage:
        try:
            torch.save(vars(state), stage / STATE)
        except RuntimeError as error:  # how torch tells that a file cannot be written
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error


def load_state(folder: Path) -> State | None:
    """The state of a run, if it has got as far as having one."""
    path = folder / STATE
    if not path.is_file():
        return None
    check_weights_file(path)
    try:
        return State(**torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:
        raise SurgeonError(
            f"{path} cannot be read ({type(error).__name__}).",
            "Remove it to start the run from the beginning.",
            ExitCode.FAILED,
        ) from error
