"""Every registered method has a reference, and references share nothing with what they judge."""

from __future__ import annotations

import ast
from pathlib import Path

import tests.reference
from surgeon.augment.base import Kind, augments
from surgeon.inserts import inserts
from surgeon.metrics import metrics
from surgeon.norms import norms
from tests.reference.inserts import INSERTS
from tests.reference.metrics import METRICS
from tests.reference.mixes import MIXES
from tests.reference.norms import REFERENCES as NORMS
from tests.reference.segmentation import MASK_METRICS


def test_every_method_has_a_reference() -> None:
    assert {spec.partition(":")[0] for spec in NORMS} == set(norms)
    assert set(INSERTS) == set(inserts)
    assert set(MIXES) == {name for name in augments if augments[name].kind is Kind.MIX}
    assert set(METRICS) == {name for name in metrics if metrics[name].applies_to_masks(False)}
    assert set(MASK_METRICS) == {name for name in metrics if metrics[name].applies_to_masks(True)}


def test_references_import_nothing_of_surgeon() -> None:
    for path in Path(tests.reference.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "surgeon" for name in names), path.name
