"""A weights file on its way into a network: read, renamed, matched, and what was done to it for the record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from surgeon.core.errors import SurgeonError
from surgeon.models.excerpt import excerpt
from surgeon.models.fitting import load_into, other_class_count
from surgeon.models.history import Renamed
from surgeon.models.matching import Inputs, matched
from surgeon.models.renaming import Naming, renamed
from surgeon.models.structure import layers_of, other_classes
from surgeon.models.weights import WeightsFile, read_weights


@dataclass(frozen=True)
class Adopted:
    """Weights of a file.

    Args:
        file: Under the names that they have by now.
        naming: How these become the network's.
        steps: What was done to the names.
    """

    file: WeightsFile
    naming: Naming
    steps: tuple[Renamed, ...] = ()

    def other_class_count(self, model: nn.Module) -> int | None:
        """How many classes the file has, if another number of them is all that keeps it from fitting."""
        if self.naming.match is None:
            return other_class_count(model, self.file)
        return other_classes(layers_of(self.file.state), layers_of(model.state_dict()))

    def noting(self, remark: str) -> Adopted:
        """The same with one more remark."""
        return replace(self, file=replace(self.file, notes=(*self.file.notes, remark)))

    def excerpted(self, model: nn.Module) -> Adopted:
        """The network alone, where the file holds more beside it."""
        return replace(self, file=excerpt(model, self.file))

    def filling(self, model: nn.Module, inputs: Inputs) -> Adopted:
        """Put the weights into a network, all of them or none, and tell what was done to their names."""
        if self.naming.match is None:
            load_into(model, self.file)
            step = Renamed(rules=self.naming.rules)
            return replace(self, steps=(step,) if self.naming.rules else ())
        found = matched(model, self.file, inputs)
        load_into(model, found.weights)
        step = Renamed(rules=self.naming.rules, layers=found.layers, checked=found.checked, norms=found.norms)
        return replace(self, file=found.weights, steps=(step,))


def adopted(path: Path | None, naming: Naming) -> Adopted | None:
    """The weights of a file under the names that rules make of theirs; None if no file is given."""
    if path is None:
        if naming:
            raise SurgeonError("--rename and --match need --weights FILE.", "They say how its tensors are named.")
        return None
    file = renamed(read_weights(path), naming.rules)
    return Adopted(file, naming)
