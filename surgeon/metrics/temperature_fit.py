"""Cross-entropy after temperature scaling, fitted from a stream of logits that are not kept.

Guo et al., "On Calibration of Modern Neural Networks", ICML 2017: all logits are divided by one
number T. The cross-entropy is convex in 1/T and smooth in log T. So its sum over the images at a
fixed grid of log-spaced temperatures, interpolated by a quintic spline, gives the best temperature
as precisely as a fit that sees all logits.

Sums are kept as integers (multiples of 2^-24 nats). Integer addition is associative, so the sums of
several processes are exactly those of one, whatever the order and the batches. They are kept by
group of images, so that one group can be left out afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surgeon.core.errors import SurgeonError
from surgeon.metrics import packing
from surgeon.metrics.groups import GROUPS, group_of

if TYPE_CHECKING:
    from torch import Tensor

LOWEST, HIGHEST = 0.2, 10.0
GRID = np.geomspace(LOWEST, HIGHEST, 33)

_UNITS_PER_NAT = 2.0**24
# Far above any cross-entropy that matters, and low enough that a batch of 500,000 images fits into int64.
_MOST_NATS = 2.0**20
# Columns after those of the grid: images without a finite cross-entropy, and all images.
_UNBOUNDED, _IMAGES = len(GRID), len(GRID) + 1
_COLUMNS = len(GRID) + 2
_VALUES_AT_ONCE = 1 << 17


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
    return np.zeros((GROUPS, _COLUMNS), dtype=object)  # Python integers, which do not overflow


@dataclass(frozen=True)
class TemperatureSums:
    """Cross-entropy at every temperature of the grid, summed over the images of each group."""

    totals: NDArray[Any] = field(default_factory=_no_totals)

    @classmethod
    def of(cls, indices: NDArray[np.int64], cross_entropies: NDArray[np.float64]) -> TemperatureSums:
        """The sums of a batch, whose cross-entropies are images x temperatures."""
        return cls.of_sums(indices, cross_entropies, np.ones(len(indices), np.int64))

    @classmethod
    def of_sums(
        cls, indices: NDArray[np.int64], cross_entropies: NDArray[np.float64], numbers: NDArray[np.int64]
    ) -> TemperatureSums:
        """The same where each image stands for a number of predictions, and cross-entropies are summed over them."""
        totals = np.zeros((GROUPS, _COLUMNS), np.int64)
        np.add.at(totals, group_of(indices), _exact_rows(cross_entropies, numbers))
        return cls(totals.astype(object))

    def __add__(self, other: TemperatureSums) -> TemperatureSums:
        return TemperatureSums(self.totals + other.totals)

    def without(self, group: int) -> TemperatureSums:
        """The sums over the images of all other groups."""
        totals = self.totals.copy()
        totals[group] = 0
        return TemperatureSums(totals)

    def fit(self) -> TemperatureFit:
        """The best temperature for all images together."""
        return _minimise(self.totals.sum(axis=0))

    def apply(self, temperature: float | None) -> TemperatureFit:
        """The cross-entropy of all images at a temperature that was fitted elsewhere."""
        totals = self.totals.sum(axis=0)
        if temperature is None or totals[_UNBOUNDED] or not totals[_IMAGES]:
            return UNFITTED
        return TemperatureFit(temperature, _height(_curve(totals), math.log(temperature)))

    def by_group(self, temperature: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The summed cross-entropy at a temperature, and the number of images, of each group that has any."""
        from scipy.interpolate import make_interp_spline  # type: ignore[import-untyped]

        totals = self.totals[self.totals[:, _IMAGES] > 0].astype(np.float64)
        curves = make_interp_spline(np.log(GRID), totals[:, : len(GRID)].T / _UNITS_PER_NAT, k=5)
        return curves(math.log(temperature)), totals[:, _IMAGES]

    def to_digits(self) -> NDArray[np.uint8]:
        """The sums of the groups that have images, for `from_digits` to read."""
        return packing.digits(self.totals[self.totals[:, _IMAGES] > 0])

    @classmethod
    def from_digits(cls, digits: NDArray[np.uint8], groups: NDArray[np.int64]) -> TemperatureSums:
        """Sums that were stored; `groups` are those that have images, in order."""
        totals = _no_totals()
        if digits.dtype != np.uint8 or digits.shape[1:] != (len(groups), _COLUMNS):
            raise packing.damaged()
        totals[groups] = packing.integers(digits)
        return cls(totals)


def _exact_rows(cross_entropies: NDArray[np.float64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    rows = np.zeros((len(cross_entropies), _COLUMNS), np.int64)
    finite = np.isfinite(cross_entropies).all(axis=1)
    nats = np.minimum(cross_entropies[finite], _MOST_NATS * numbers[finite, None])
    rows[finite, : len(GRID)] = np.rint(nats * _UNITS_PER_NAT)
    rows[:, _UNBOUNDED] = ~finite
    rows[:, _IMAGES] = numbers
    return rows


def _curve(totals: NDArray[Any]) -> Any:
    """Mean cross-entropy as a smooth function of log T."""
    from scipy.interpolate import make_interp_spline

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


def cross_entropy_at(shifted: Tensor, own: Tensor, temperature: float | Tensor) -> Tensor:
    """Cross-entropy per image of centred logits divided by a temperature, or by each of several (T, 1): T x images."""
    divisor = temperature if isinstance(temperature, float) else temperature[..., None]
    log_normaliser: Tensor = (shifted / divisor).exp_().sum(dim=-1).log_()
    return log_normaliser - own / temperature


def cross_entropy_on_grid(shifted: Tensor, own: Tensor) -> NDArray[np.float64]:
    """Cross-entropy of centred logits: images x temperatures of the grid."""
    import torch

    # With few classes, each operation on one temperature would take longer to start than to compute.
    at_once = max(1, _VALUES_AT_ONCE // max(shifted.numel(), 1))
    temperatures = torch.from_numpy(GRID)[:, None]
    parts = [cross_entropy_at(shifted, own, temperatures[i : i + at_once]) for i in range(0, len(GRID), at_once)]
    return torch.cat(parts).T.numpy()
