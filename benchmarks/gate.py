"""Runs the benchmarks and compares their figures with their limits and with those committed in baseline.json.

    python benchmarks/gate.py                      all of them (make bench)
    python benchmarks/gate.py --fast               what takes less than two minutes (make test-all)
    python benchmarks/gate.py ghost_training …     these
    python benchmarks/gate.py --update [NAME …]    commit to the figures of the last run: of these scripts, or of all

Exits with 1 if a script crashes, a limit is missed, or a figure is worse than the committed one by more than noise:
10%, or twice what a ratio varied within a run if that is more; seconds have limits alone. A script that fails runs
once more, and its better figures count. out/bench.json has those of the last run. Those of another processor or number
of cores are not compared.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from ledger import Ledger, Run, better_of, read_run
from timing import FAST, FILE
from verdicts import FAILING, Row, judge, table

FOLDER = Path(__file__).parent
BASELINE, LAST = FOLDER / "baseline.json", FOLDER.parent / "out" / "bench.json"
SCRIPTS = (
    "startup",
    "norm_overhead",
    "ghost_training",
    "training_cost",
    "pgd_training",
    "eval_speed",
    "sweep_cost",
    "lambda_cost",
    "recalibrate_cost",
    "finetune_speed",
    "mixing_speed",
    "corruptions_speed",
    "memory",
    "scale",
)
IN_FAST = ("startup", "training_cost", "lambda_cost", "scale")


def conditions() -> dict[str, object]:
    """What figures depend on besides the program."""
    import torch

    names = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "torch": torch.__version__.partition("+")[0],
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": names[0].partition(":")[2].strip() if names else platform.machine(),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def run(name: str, fast: bool) -> Run:
    """Run a script; what it prints is seen at once."""
    environment = {key: value for key, value in os.environ.items() if key not in ("OMP_NUM_THREADS", FAST)}
    with tempfile.TemporaryDirectory() as folder:
        environment[FILE] = str(Path(folder) / "figures")
        if fast:
            environment[FAST] = "1"
        start = time.perf_counter()
        code = subprocess.run([sys.executable, str(FOLDER / f"{name}.py")], env=environment).returncode
        return read_run(Path(environment[FILE]), code, time.perf_counter() - start, conditions())


def measured(name: str, committed: Ledger, fast: bool) -> tuple[Run, list[Row]]:
    """A failure has to repeat itself before it counts."""
    print(f"\n--- {name} ---", flush=True)
    first = run(name, fast)
    rows = judge(name, first, committed.get(name), partial=fast)
    if first.crashed or not any(row.verdict in FAILING for row in rows):
        return first, rows
    print(f"\n--- {name}, once more ---", flush=True)
    both = better_of(first, run(name, fast))
    return both, judge(name, both, committed.get(name), partial=fast)


def update(names: list[str]) -> int:
    last, committed = Ledger.read(LAST), Ledger.read(BASELINE)
    wanted = names or [name for name in last if not last[name].skipped]
    for name in wanted:
        if name not in last or last[name].crashed or not last[name].figures:
            print(f"{name} has no figures in {LAST.relative_to(FOLDER.parent)}: run it first", file=sys.stderr)
            return 2
        committed[name] = last[name].with_rest_of(committed.get(name))
    committed.write(BASELINE)
    print(f"{BASELINE.relative_to(FOLDER.parent)}: {', '.join(wanted)}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts, without .py; all by default")
    parser.add_argument("--fast", action="store_true", help="only the figures that tell most in two minutes")
    parser.add_argument("--update", action="store_true", help="commit to the figures of the last run")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(SCRIPTS))
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)} (there are {', '.join(SCRIPTS)})")
    if arguments.update:
        return update(arguments.names)
    last, committed, rows = Ledger.read(LAST), Ledger.read(BASELINE), []
    for name in arguments.names or (IN_FAST if arguments.fast else SCRIPTS):
        last[name], judged = measured(name, committed, arguments.fast)
        rows += judged
        last.write(LAST)
    print(f"\n{table(rows)}")
    failed = [row for row in rows if row.verdict in FAILING]
    summary = f"failed: {', '.join(sorted({row.script for row in failed}))}" if failed else "all limits kept"
    print(textwrap.fill(summary, 100))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
