"""Figures of benchmarks as the gate keeps them: one JSON file, one line per figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from timing import Figure


@dataclass(frozen=True)
class Run:
    """What one script found, and where."""

    conditions: Mapping[str, object]
    seconds: float
    figures: tuple[Figure, ...] = ()
    skipped: str = ""
    crashed: str = ""

    @property
    def by_name(self) -> dict[tuple[str, str], Figure]:
        return {(figure.title, figure.name): figure for figure in self.figures}

    def with_rest_of(self, earlier: Run | None) -> Run:
        """Together with the figures of an earlier run that this one left out, if it was on a machine like this."""
        if earlier is None or earlier.conditions != self.conditions:
            return self
        merged = earlier.by_name | self.by_name
        return replace(self, figures=tuple(merged.values()), seconds=max(self.seconds, earlier.seconds))


def read_run(path: Path, code: int, seconds: float, conditions: Mapping[str, object]) -> Run:
    """What a script has appended to its file, and what its exit code adds."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    figures = tuple(Figure(**line) for line in lines if "value" in line)
    skipped = next((line["skipped"] for line in lines if "skipped" in line), "")
    crashed = next((line["crashed"] for line in lines if "crashed" in line), "")
    if not crashed and (code not in (0, 1) or (code == 1 and all(figure.kept for figure in figures))):
        crashed = f"exit code {code}"
    if not crashed and not figures and not skipped:
        crashed = "it reported no figure"
    return Run(conditions, seconds, figures, skipped, crashed)


def better_of(first: Run, second: Run) -> Run:
    """Of each figure the better one; how far both are apart is noise."""
    if second.crashed:
        return second
    again, found = second.by_name, []
    for key, figure in first.by_name.items():
        other = again.get(key, figure)
        choose = max if figure.at_least is not None else min
        apart = abs(figure.value - other.value) / max(abs(figure.value), abs(other.value), 1e-9)
        best = choose(figure.value, other.value)
        found.append(replace(figure, value=best, noise=max(figure.noise, other.noise, apart)))
    return replace(second, figures=tuple(found))


@dataclass
class Ledger:
    """Runs by the name of their script."""

    runs: dict[str, Run] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Run:
        return self.runs[name]

    def __setitem__(self, name: str, run: Run) -> None:
        self.runs[name] = run

    def __iter__(self) -> Any:
        return iter(self.runs)

    def get(self, name: str) -> Run | None:
        return self.runs.get(name)

    @classmethod
    def read(cls, path: Path) -> Ledger:
        if not path.exists():
            return cls()
        runs = {}
        for name, stored in json.loads(path.read_text()).items():
            figures = tuple(Figure(**figure) for figure in stored.pop("figures"))
            runs[name] = Run(figures=figures, **stored)
        return cls(runs)

    def write(self, path: Path) -> None:
        scripts = []
        for name, run in sorted(self.runs.items()):
            head = {"conditions": run.conditions, "seconds": round(run.seconds, 1)}
            head |= {key: getattr(run, key) for key in ("skipped", "crashed") if getattr(run, key)}
            lines = ",\n".join(f"    {json.dumps(_rounded(figure))}" for figure in run.figures)
            scripts.append(f'  "{name}": {json.dumps(head)[:-1]}, "figures": [\n{lines}\n  ]}}')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{\n" + ",\n".join(scripts) + "\n}\n")


def _rounded(figure: Figure) -> dict[str, object]:
    """Four digits, and without what is not there."""
    stored = {key: value for key, value in asdict(figure).items() if value is not None}
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in stored.items()}
