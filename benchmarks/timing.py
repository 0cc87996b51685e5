"""Times alternatives side by side: interleaved, best of several, as ratios to the first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best_times(alternatives: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of each alternative: one of each per round, so that a slow moment hits all alike."""
    best = dict.fromkeys(alternatives, float("inf"))
    for run in alternatives.values():
        run()  # warm up
    for _ in range(rounds):
        for name, run in alternatives.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def report(title: str, seconds: Mapping[str, float], limits: Mapping[str, float]) -> bool:
    """Print times and ratios to the first alternative; return whether all limits are kept."""
    base = next(iter(seconds.values()))
    kept = True
    print(title)
    for name, value in seconds.items():
        ratio, limit = value / base, limits.get(name)
        verdict = "" if limit is None else f"  (at most {limit:.2f}x: {'ok' if ratio <= limit else 'MISSED'})"
        kept &= limit is None or ratio <= limit
        print(f"  {name:<34}{1000 * value:10.1f} ms  {ratio:5.2f}x{verdict}")
    return kept
