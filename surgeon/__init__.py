"""Post-hoc surgery on BatchNorm networks.

The names below are imported on first use, so that the command line answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from surgeon.core.readable import rendered_by
from surgeon.core.versions import VERSION

if TYPE_CHECKING:
    from surgeon.augment.pipeline import mixer
    from surgeon.checkpoint.reading import load
    from surgeon.checkpoint.writing import save
    from surgeon.commands.export.api import export
    from surgeon.commands.finetune.api import finetune
    from surgeon.commands.predict.api import predict
    from surgeon.commands.recalibrate.api import recalibrate
    from surgeon.commands.robustness.api import robustness
    from surgeon.commands.study.api import study
    from surgeon.commands.sweep.api import sweep
    from surgeon.core.errors import SurgeonError
    from surgeon.inserts.moex.layer import exchange_unit
    from surgeon.inserts.moex.loss import CutMix, exchanged_loss
    from surgeon.layers.padding import padding
    from surgeon.measuring.engine import evaluate
    from surgeon.surgery.apply import convert
    from surgeon.surgery.branches import branch, merge_branches, mix_branches
    from surgeon.surgery.collect import collect_statistics
    from surgeon.surgery.gates import gate_usage
    from surgeon.surgery.inspect import inspect_model
    from surgeon.surgery.shift import measure_shift
    from surgeon.training.own_loop import attack, loss

__version__ = VERSION

rendered_by("surgeon.cli.printed")

__all__ = [
    "CutMix",
    "SurgeonError",
    "attack",
    "branch",
    "collect_statistics",
    "convert",
    "evaluate",
    "exchange_unit",
    "exchanged_loss",
    "export",
    "finetune",
    "gate_usage",
    "inspect_model",
    "load",
    "loss",
    "measure_shift",
    "merge_branches",
    "mix_branches",
    "mixer",
    "padding",
    "predict",
    "recalibrate",
    "robustness",
    "save",
    "study",
    "sweep",
]

_HOMES = {
    "CutMix": "surgeon.inserts.moex.loss",
    "SurgeonError": "surgeon.core.errors",
    "attack": "surgeon.training.own_loop",
    "branch": "surgeon.surgery.branches",
    "collect_statistics": "surgeon.surgery.collect",
    "convert": "surgeon.surgery.apply",
    "evaluate": "surgeon.measuring.engine",
    "exchange_unit": "surgeon.inserts.moex.layer",
    "exchanged_loss": "surgeon.inserts.moex.loss",
    "export": "surgeon.commands.export.api",
    "finetune": "surgeon.commands.finetune.api",
    "gate_usage": "surgeon.surgery.gates",
    "inspect_model": "surgeon.surgery.inspect",
    "load": "surgeon.checkpoint.reading",
    "loss": "surgeon.training.own_loop",
    "measure_shift": "surgeon.surgery.shift",
    "merge_branches": "surgeon.surgery.branches",
    "mix_branches": "surgeon.surgery.branches",
    "mixer": "surgeon.augment.pipeline",
    "padding": "surgeon.layers.padding",
    "predict": "surgeon.commands.predict.api",
    "recalibrate": "surgeon.commands.recalibrate.api",
    "robustness": "surgeon.commands.robustness.api",
    "save": "surgeon.checkpoint.writing",
    "study": "surgeon.commands.study.api",
    "sweep": "surgeon.commands.sweep.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'surgeon' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
