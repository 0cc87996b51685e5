"""Prove again, from the files alone, that a checkpoint is what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

from surgeon import checkpoint
from surgeon.checkpoint.record import Surgery, find_problems, read_surgery
from surgeon.core.errors import SurgeonError, count, listing
from surgeon.core.readable import Readable
from surgeon.layers.running import evaluate_once
from surgeon.models.origin import LoadedModel
from surgeon.models.sources import build, example_inputs
from surgeon.surgery import parity
from surgeon.surgery.apply import install_everywhere
from surgeon.surgery.branches import mix_branches
from surgeon.surgery.inserting import taken_out
from surgeon.surgery.plan import ResolvedPlan
from surgeon.surgery.temperature import set_temperature


class Check(BaseModel):
    """One thing that was checked, or could not be."""

    model_config = ConfigDict(frozen=True)

    name: str
    passed: bool
    skipped: bool = False
    detail: str

    @property
    def failed(self) -> bool:
        return not (self.passed or self.skipped)


class Verification(Readable, BaseModel):
    """All checks of a checkpoint; passed if none has failed."""

    model_config = ConfigDict(frozen=True)

    checkpoint: str
    passed: bool
    checks: tuple[Check, ...]


def verify(folder: Path) -> Verification:
    """Check files, hashes and records, rebuild the network, and compare it with the unconverted one."""
    checks = [Check(name="files", passed=False, detail=problem) for problem in find_problems(folder)]
    if not checks:
        checks.append(Check(name="files", passed=True, detail="complete, hashes and embedded record agree"))
        checks.extend(_check_network(folder))
    return Verification(checkpoint=str(folder), passed=not any(c.failed for c in checks), checks=tuple(checks))


def _check_network(folder: Path) -> list[Check]:
    surgery = read_surgery(folder)
    if surgery.source is None:
        return [_skipped("network", "only your own code can build this network")]
    try:
        loaded = checkpoint.load_checkpoint(folder)
    except SurgeonError as error:
        return [Check(name="network", passed=False, detail=error.message)]
    checks = [Check(name="network", passed=True, detail=f"rebuilt, {_contents(surgery.plan)}")]
    try:
        for check in _check_outputs(loaded, surgery):
            checks.append(check)
    except Exception as error:  # a record that was made up gives images that the network cannot take, and the like
        reason = next(iter(str(error).splitlines()), "no reason given").rstrip(".")
        name = "parity" if len(checks) > 1 else "outputs"
        checks.append(Check(name=name, passed=False, detail=f"not available: {type(error).__name__}: {reason}"))
    return checks


def _skipped(name: str, reason: str) -> Check:
    return Check(name=name, passed=False, skipped=True, detail=reason)


def _check_outputs(loaded: LoadedModel, surgery: Surgery) -> Iterator[Check]:
    """Whether the network gives numbers on random images, and those of the unconverted one where it should."""
    inputs = example_inputs(loaded.origin)
    if inputs is None or surgery.source is None:
        return
    outputs = evaluate_once(loaded.model, inputs)
    finite = all(torch.isfinite(t).all() for t in outputs)
    yield Check(name="outputs", passed=finite, detail="finite" if finite else "NaN or infinite on random images")
    if trained := surgery.plan.trains_away():
        yield _skipped("parity", f"training moves {listing(trained)} away from the unconverted network")
        return
    plain = build(surgery.source)
    names = plain.state_dict().keys()
    plain.load_state_dict({k: v for k, v in loaded.model.state_dict().items() if k in names})
    install_everywhere(loaded.model, surgery.plan, at_identity=True)
    mix_branches(loaded.model, None)
    set_temperature(loaded.model, None)
    learned = [i for i in surgery.plan.insertions if i.unit.variant().learns]
    with taken_out(loaded.model, learned):
        difference = parity.relative_difference(evaluate_once(loaded.model, inputs), evaluate_once(plain, inputs))
    detail = f"largest difference from the unconverted network at the identity setting: {difference:.2g} (relative)"
    if learned:  # what they have learned is not to be found in the unconverted network
        detail += f", without the {listing(dict.fromkeys(i.unit.name for i in learned))} units"
    yield Check(name="parity", passed=difference <= parity.TOLERANCE, detail=detail)


def _contents(plan: ResolvedPlan) -> str:
    layers = [f"{len(plan)} layers rewritten"] if len(plan) or not plan.insertions else []
    units = [f"{count(len(plan.insertions), 'unit')} inserted"] if plan.insertions else []
    return ", ".join([*layers, *units])
