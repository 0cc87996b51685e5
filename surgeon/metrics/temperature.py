"""Cross-entropy after temperature scaling, fitted from a stream of logits that are not kept.

Guo et al., "On Calibration of Modern Neural Networks", ICML 2017: all logits are divided by one
number T. The cross-entropy is convex in 1/T and smooth in log T. So its sum over the images at a
fixed grid of log-spaced temperatures, interpolated by a quintic spline, gives the best temperature
as precisely as a fit that sees all logits.

Sums are kept as integers (multiples of 2^-24 nats). Integer addition is associative, so the sums of
several processes are exactly those of one, whatever the order and the batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surgeon.errors import SurgeonError

if TYPE_CHECKING:
    from torch import Tensor

LOWEST, HIGHEST = 0.2, 10.0
GRID = np.geomspace(LOWEST, HIGHEST, 33)
PARTS = 2

_UNITS_PER_NAT = 2.0**24
# Far above any cross-entropy that matters, and low enough that a batch of 32,768 rows fits into int64.
_MOST_NATS = 2.0**24
# Columns after those of the grid: images without a finite cross-entropy, and all images.
_UNBOUNDED, _IMAGES = len(GRID), len(GRID) + 1
_COLUMNS = len(GRID) + 2


@dataclass(frozen=True)
class TemperatureFit:
    """A temperature and the cross-entropy after dividing by it.

    The temperature lies within [0.2, 10]. It is None, and the cross-entropy infinite, where the
    cross-entropy is infinite at every temperature.
    """

    temperature: float | None
    cross_entropy: float


UNFITTED = TemperatureFit(None, math.inf)


def _no_totals() -> NDArray[Any]:
    return np.zeros((PARTS, _COLUMNS), dtype=object)  # Python integers, which do not overflow


@dataclass
class TemperatureSums:
    """Cross-entropy at every temperature of the grid, summed over the images of each of two parts.

    The rows of the last batch stay apart until the next one arrives: a sampler that gives all
    processes equally many images repeats some of them in the last batch, and only rows that are
    not yet summed can be taken back (`take_back`).
    """

    settled: NDArray[Any] = field(default_factory=_no_totals)
    last_indices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    last_parts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    last_rows: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, _COLUMNS), np.int64))

    def add(
        self,
        indices: NDArray[np.int64],
        parts: NDArray[np.int64],
        cross_entropies: NDArray[np.float64],
    ) -> None:
        """Add a batch: cross-entropies are images x temperatures, `parts` says which sum each image belongs to."""
        self.settled = self.totals()
        self.last_indices, self.last_parts, self.last_rows = indices, parts, _exact_rows(cross_entropies)

    def totals(self) -> NDArray[Any]:
        """The sums of both parts, the last batch included."""
        last = [self.last_rows[self.last_parts == part].sum(axis=0).tolist() for part in range(PARTS)]
        totals: NDArray[Any] = self.settled + np.array(last, dtype=object)
        return totals

    def take_back(self, indices: NDArray[np.int64]) -> TemperatureSums:
        """The same sums without some images of the last batch."""
        kept = ~np.isin(self.last_indices, indices)
        return TemperatureSums(self.settled, self.last_indices[kept], self.last_parts[kept], self.last_rows[kept])

    def __add__(self, other: TemperatureSums) -> TemperatureSums:
        return TemperatureSums(
            self.settled + other.settled,
            np.concatenate([self.last_indices, other.last_indices]),
            np.concatenate([self.last_parts, other.last_parts]),
            np.concatenate([self.last_rows, other.last_rows]),
        )

    def fit(self, *parts: int) -> TemperatureFit:
        """The best temperature for the images of the given parts together."""
        return _minimise(self.totals()[list(parts)].sum(axis=0))

    def apply(self, temperature: float | None, part: int) -> TemperatureFit:
        """The cross-entropy of one part's images at a temperature that was fitted elsewhere."""
        totals = self.totals()[part]
        if temperature is None or totals[_UNBOUNDED] or not totals[_IMAGES]:
            return UNFITTED
        return TemperatureFit(temperature, _height(_curve(totals), math.log(temperature)))


def _exact_rows(cross_entropies: NDArray[np.float64]) -> NDArray[np.int64]:
    rows = np.zeros((len(cross_entropies), _COLUMNS), np.int64)
    finite = np.isfinite(cross_entropies).all(axis=1)
    nats = np.minimum(cross_entropies[finite], _MOST_NATS)
    rows[finite, : len(GRID)] = np.rint(nats * _UNITS_PER_NAT)
    rows[:, _UNBOUNDED] = ~finite
    rows[:, _IMAGES] = 1
    return rows


def _curve(totals: NDArray[Any]) -> Any:
    """Mean cross-entropy as a smooth function of log T."""
    from scipy.interpolate import make_interp_spline  # type: ignore[import-untyped]

    # Dividing Python integers is exact up to the last bit, however large the sums are.
    means = [total / (totals[_IMAGES] * int(_UNITS_PER_NAT)) for total in totals[: len(GRID)]]
    return make_interp_spline(np.log(GRID), means, k=5)


def _minimise(totals: NDArray[Any]) -> TemperatureFit:
    if totals[_UNBOUNDED] or not totals[_IMAGES]:
        return UNFITTED
    lowest = int(np.argmin(totals[: len(GRID)]))
    around = GRID[max(lowest - 1, 0)], GRID[min(lowest + 1, len(GRID) - 1)]
    return _best_between(_curve(totals), *around)


def _best_between(curve: Any, low: float, high: float) -> TemperatureFit:
    from scipy.optimize import minimize_scalar  # type: ignore[import-untyped]

    bounds = math.log(low), math.log(high)
    inside = minimize_scalar(curve, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x
    best = min((inside, *bounds), key=curve)  # the bounded search never tries its bounds
    return TemperatureFit(math.exp(best), _height(curve, best))


def _height(curve: Any, log_temperature: float) -> float:
    """The cross-entropy there; where it is all but zero, a spline may pass just below."""
    return max(float(curve(log_temperature)), 0.0)


def fit_temperature(logits: Tensor, labels: Tensor) -> TemperatureFit:
    """The temperature in [0.2, 10] with the lowest cross-entropy on logits that are all in memory."""
    if len(labels) == 0:
        raise SurgeonError("A temperature cannot be fitted to no images.", "Check the split and --limit.")
    shifted, own = centred(logits, labels)

    def mean_cross_entropy(log_temperature: float) -> float:
        return float(cross_entropy_at(shifted, own, math.exp(log_temperature)).mean())

    if not math.isfinite(mean_cross_entropy(0.0)):
        return UNFITTED
    return _best_between(mean_cross_entropy, LOWEST, HIGHEST)


def centred(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits in float64 with the largest of each image at zero, and among them that of the label."""
    logits = logits.detach().to("cpu").double()
    shifted = logits - logits.max(dim=1, keepdim=True).values
    return shifted, shifted.gather(1, labels.to("cpu").long()[:, None])[:, 0]


def cross_entropy_at(shifted: Tensor, own: Tensor, temperature: float) -> Tensor:
    """Cross-entropy per image of centred logits divided by a temperature."""
    log_normaliser: Tensor = (shifted / temperature).exp_().sum(dim=1).log_()
    return log_normaliser - own / temperature


def cross_entropy_on_grid(shifted: Tensor, own: Tensor) -> NDArray[np.float64]:
    """Cross-entropy of centred logits: images x temperatures of the grid."""
    return np.stack([cross_entropy_at(shifted, own, temperature).numpy() for temperature in GRID.tolist()], axis=1)
