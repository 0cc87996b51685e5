"""`surgeon.robustness`: the same measurement from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from surgeon import checkpoint
from surgeon.commands.robustness.operation import RobustnessRequest, run_robustness
from surgeon.core.errors import SurgeonError
from surgeon.core.progress import say_nothing
from surgeon.measuring.preparation import InferenceRequest
from surgeon.results import Robustness


def robustness(
    models: str | Path | Sequence[str | Path],
    data: str | Path,
    *,
    under: Sequence[str] = (),
    output: str | Path | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    device: str | None = None,
) -> Robustness:
    """What `surgeon robustness` does.

    Args:
        models: Names of models or checkpoint folders; the first is the baseline.
        data: A DATA of the command line.
        under: Conditions, as after `--under`; without any, clean images and all corruptions
            (ImageNet-A: the images as they are).
        output: A folder for the report and the journal.
        split: Which part of the data.
        limit: A stratified subset of so many images.
        seed: Of everything random.
        overwrite: Start afresh in a folder that holds a measurement.
        device: Where to compute; default: the fastest.

    Examples:
        >>> result = surgeon.robustness(["runs/plain", "runs/alpha"], "digits", under=["corruptions:severity=3"])
        >>> result.networks[1].figure("corruption-error").against_baseline
    """
    names = [models] if isinstance(models, str | Path) else list(models)
    if not names or not all(isinstance(name, str | Path) for name in names):
        raise SurgeonError(
            "surgeon.robustness takes names of models and checkpoint folders.",
            "surgeon.save it, and pass the folder.",
        )
    request = RobustnessRequest(
        InferenceRequest(data=str(data), split=split, limit=limit, device=device),
        tuple(under),
        seed,
        Path(output) if output is not None else None,
        overwrite,
    )
    return run_robustness([checkpoint.open_model(str(name)) for name in names], request, say_nothing)
