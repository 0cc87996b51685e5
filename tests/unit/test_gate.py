"""The gate of the benchmarks: what it lets pass, what it stops, and what it says."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
HERE = {"torch": "2.15.0", "cores": 2, "processor": "P"}


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts' own modules, and none of them afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("gate", "ledger", "verdicts", "timing"):
        sys.modules.pop(name, None)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """With a folder of its own, and one script: figures.py, which does what `writes` makes of it."""
    module = importlib.import_module("gate")
    for name in ("timing.py", "ledger.py"):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(module, "BASELINE", tmp_path / "baseline.json")
    monkeypatch.setattr(module, "LAST", tmp_path / "bench.json")
    monkeypatch.setattr(module, "SCRIPTS", ("figures",))
    monkeypatch.setattr(module, "conditions", lambda: HERE)
    return module


def outcome(gate: ModuleType, program: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Of the gate, with a script of these lines, in which `n` is the number of its run."""
    lines = [
        "import sys; from pathlib import Path; from timing import figure, report, skip",
        "count = Path(__file__).with_name('count'); n = len(count.read_text()) if count.exists() else 0",
        "count.write_text('.' * (n + 1))",
        program,
    ]
    (gate.FOLDER / "figures.py").write_text("\n".join(lines))
    (gate.FOLDER / "count").unlink(missing_ok=True)
    monkeypatch.setattr(sys, "argv", ["gate.py", *arguments])
    status = gate.main()
    assert isinstance(status, int)
    return status


def runs(gate: ModuleType) -> int:
    return len((gate.FOLDER / "count").read_text())


def committed(gate: ModuleType, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome(gate, program, monkeypatch)
    assert outcome(gate, "", monkeypatch, "--update") == 0


@pytest.mark.parametrize(
    ("program", "status", "verdict", "times"),
    [
        ("figure('t', 'a', 1.1, noise=0)", 0, "ok", 1),
        ("figure('t', 'a', 1.11, noise=0)", 1, "WORSE", 2),
        ("figure('t', 'a', 1.11, noise=0.06)", 0, "ok", 1),
        ("figure('t', 'a', 5, noise=9)", 1, "WORSE", 2),
        ("figure('t', 'a', 0.89, noise=0)", 0, "better", 1),
        ("figure('t', 'a', 1.3 if n == 0 else 1.0, noise=0)", 0, "ok", 2),
        ("figure('t', 'a', 1.01, at_most=1.0)", 1, "MISSED", 2),
        ("figure('t', 'a', 1.0, at_most=1.0)", 0, "ok", 1),
        ("figure('t', 'a', 1.04, at_most=1.05, aim=1.0, noise=0)", 0, "aim missed", 1),
        ("figure('t', 'a', 1.0, at_most=1.05, aim=1.0, noise=0)", 0, "ok", 1),
        ("figure('t', 'a', 1.015, at_most=1.05, aim=1.0, noise=0.02)", 0, "ok", 1),
        ("figure('t', 'a', 1.03, at_most=1.05, aim=1.0, noise=0.2)", 0, "aim missed", 1),
        ("figure('t', 'a', 1.06, at_most=1.05, aim=1.0, noise=0)", 1, "MISSED", 2),
        ("figure('t', 'a', 1.04, at_least=1.0, aim=1.2, noise=0)", 0, "aim missed", 1),
        ("figure('t', 'b', 1.0)", 1, "GONE", 2),
        ("figure('t', 'a', 1.0); figure('t', 'b', 3.0)", 0, "new", 1),
        ("figure('t', 'a', 1.0); sys.exit(1)", 1, "CRASHED", 1),
        ("figure('t', 'a', 1.0, at_most=0.5); raise ValueError('nothing left')", 1, "CRASHED", 1),
        ("figure('t', 'a', 1.0); import os; os.abort()", 1, "CRASHED", 1),
        ("pass", 1, "CRASHED", 1),
        ("skip('no images')", 0, "skipped", 1),
    ],
)
def test_what_it_lets_pass(
    program: str,
    status: int,
    verdict: str,
    times: int,
    gate: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    committed(gate, "figure('t', 'a', 1.0, noise=0)", monkeypatch)
    capfd.readouterr()
    assert outcome(gate, program, monkeypatch) == status
    assert runs(gate) == times
    printed = capfd.readouterr().out.rpartition("---\n")[0]
    table = printed[printed.rindex("verdict\n") :]
    assert verdict in table
    assert max(map(len, table.splitlines())) <= 100


def test_where_more_is_better_less_is_worse(gate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(gate, "figure('t', 'speed', 3.0, at_least=2.0, noise=0)", monkeypatch)
    assert outcome(gate, "figure('t', 'speed', 4.0, at_least=2.0, noise=0)", monkeypatch) == 0
    assert outcome(gate, "figure('t', 'speed', 2.5, at_least=2.0, noise=0)", monkeypatch) == 1
    assert outcome(gate, "figure('t', 'speed', 2.5 + 0.5 * n, at_least=2.0, noise=0)", monkeypatch) == 0


def test_figures_of_other_machines_are_not_compared(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    committed(gate, "figure('t', 'a', 1.0, noise=0)", monkeypatch)
    monkeypatch.setattr(gate, "conditions", lambda: HERE | {"torch": "9.0"})
    assert outcome(gate, "figure('t', 'a', 2.0, noise=0)", monkeypatch) == 1
    monkeypatch.setattr(gate, "conditions", lambda: HERE | {"cores": 64})
    assert outcome(gate, "figure('t', 'a', 2.0, noise=0)", monkeypatch) == 0
    assert "elsewhere" in capfd.readouterr().out
    assert outcome(gate, "figure('t', 'a', 2.0, at_most=1.5, noise=0)", monkeypatch) == 1


def test_the_fast_subset_may_leave_figures_out_and_an_update_keeps_them(
    gate: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(gate, "figure('t', 'a', 1.0); figure('t', 'b', 2.0)", monkeypatch)
    monkeypatch.setattr(gate, "IN_FAST", ("figures",))
    program = "from timing import fast\nfigure('t', 'a', 1.01)\nif not fast(): figure('t', 'b', 9.0)"
    assert outcome(gate, program, monkeypatch, "--fast") == 0
    assert outcome(gate, program, monkeypatch, "--update", "figures") == 0
    stored = json.loads(gate.BASELINE.read_text())["figures"]
    assert [(figure["name"], figure["value"]) for figure in stored["figures"]] == [("a", 1.01), ("b", 2.0)]
    assert stored["conditions"] == HERE


def test_a_crash_is_no_figure_to_commit_to(gate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome(gate, "raise ValueError", monkeypatch)
    assert outcome(gate, "", monkeypatch, "--update", "figures") == 2
    assert not gate.BASELINE.exists()


def test_unknown_names_are_wrong_usage(gate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as left:
        outcome(gate, "", monkeypatch, "figurs")
    assert left.value.code == 2


def test_the_ratio_of_best_times_and_its_noise() -> None:
    timing = importlib.import_module("timing")
    times = timing.Times({"plain": [2.0, 1.0, 4.0, 1.0], "other": [3.0, 1.2, 2.2, 1.1]})
    assert dict(times) == {"plain": 1.0, "other": 1.1}
    assert times.noise["other"] == pytest.approx(0.0)  # even rounds 2.2 / 2.0, odd ones 1.1 / 1.0
    assert timing.Times({"plain": [1.0, 1.0], "other": [1.0, 1.2]}).noise["other"] == pytest.approx(0.2)


def test_committed_figures_are_of_scripts_that_the_gate_runs() -> None:
    gate = importlib.import_module("gate")
    stored = gate.Ledger.read(FOLDER / "baseline.json")
    assert set(stored) <= set(gate.SCRIPTS)
    for name in stored:
        assert stored[name].figures
        assert not stored[name].crashed


def test_seconds_have_limits_alone(gate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(gate, "figure('t', 'a', 1.0, unit='s', at_most=3, noise=0)", monkeypatch)
    assert outcome(gate, "figure('t', 'a', 2.9, unit='s', at_most=3, noise=0)", monkeypatch) == 0
    assert outcome(gate, "figure('t', 'a', 3.1, unit='s', at_most=3, noise=0)", monkeypatch) == 1
