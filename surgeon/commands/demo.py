"""The main job in under a minute, offline: rewrite the bundled model, sweep alpha, confirm, report, save."""

from __future__ import annotations

from pathlib import Path

from surgeon import checkpoint
from surgeon.commands.sweep.operation import SweepRequest, run_sweep
from surgeon.core.progress import Progress
from surgeon.measuring.preparation import InferenceRequest
from surgeon.measuring.values import evenly_spaced
from surgeon.results import Method, Sweep

MODEL, DATA = "digits-resnet8", "digits"
ALPHAS = tuple(evenly_spaced(0, 0.8, 17))
COMMAND = (
    f"surgeon sweep {MODEL} --data {DATA} --split validation --confirm-split test --alpha 0:0.8:17 "
    "--metric cross-entropy --method grid --apply"
)


def run_demo(folder: Path, progress: Progress) -> Sweep:
    """What `COMMAND` does."""
    request = SweepRequest(
        inference=InferenceRequest(data=DATA, split="validation"),
        values=ALPHAS,
        metric="cross-entropy",
        method=Method.GRID,
        confirm_split="test",
        apply=True,
        output=folder,
        overwrite=True,
    )
    return run_sweep(checkpoint.open_model(MODEL), request, progress)
