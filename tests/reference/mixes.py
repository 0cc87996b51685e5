"""Which images a mix may make of two, and what share of the label the first one keeps in each.

A mix draws at random, so its reference is no formula from inputs to an output but a judge: given both images and what
was made of them, all (C, H, W) in float64, it finds the cuts and shares that explain every pixel and answers with the
own share that follows from them. It answers None where nothing does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor

NEAR = 1e-5
SMALL = 1e-6
"""Added to the deviations of BC+."""

Judge = Callable[[Tensor, Tensor, Tensor], float | None]


def _near(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= NEAR * (1 + b.abs().max()))


def _coefficients(made: Tensor, first: Tensor, second: Tensor) -> tuple[float, float] | None:
    """a, b with `made = a * first + b * second`; None if there are none, or more than one pair."""
    columns = torch.stack([first.flatten(), second.flatten()], 1)
    if torch.linalg.matrix_rank(columns, rtol=1e-9) < 2:
        return None
    a, b = torch.linalg.lstsq(columns, made.flatten()[:, None]).solution[:, 0].tolist()
    return (a, b) if _near(a * first + b * second, made) else None


def _mixup(made: Tensor, first: Tensor, second: Tensor) -> float | None:
    """lam of `lam * first + (1 - lam) * second`."""
    found = _coefficients(made, first, second)
    return None if found is None or abs(sum(found) - 1) > NEAR else found[0]


def _bc_plus(made: Tensor, first: Tensor, second: Tensor) -> float | None:
    """lam of `(p*x1 + (1-p)*x2) / sqrt(p^2 + (1-p)^2)` with `p = 1 / (1 + s1/s2 * (1-lam)/lam)`."""
    found = _coefficients(made, first, second)
    if found is None or abs(found[0] ** 2 + found[1] ** 2 - 1) > NEAR:
        return None
    p = found[0] / sum(found)
    s1, s2 = (float(image.std(correction=0)) + SMALL for image in (first, second))
    return p * s1 / (p * s1 + (1 - p) * s2)  # solved for lam


def _cuts(size: int) -> range:
    return range(size + 1)


def _concat(first: Tensor, second: Tensor, axis: int, cut: int) -> Tensor:
    """The first `cut` rows (axis 1) or columns (axis 2) of one image, the rest of the other."""
    size = first.shape[axis]
    return torch.cat([first.narrow(axis, 0, cut), second.narrow(axis, cut, size - cut)], axis)


def _by_choice(own: Tensor, other: Tensor, made: Tensor, shape: tuple[int, ...]) -> float | None:
    """Each part, of which there are as many as `shape` has, comes whole from either image."""
    dims = [d for d in range(3) if shape[d] == 1]

    def equal(source: Tensor) -> Tensor:
        same = made == source
        for d in dims:
            same = same.all(d, keepdim=True)
        return same

    mine = equal(own)
    return float(mine.double().mean()) if bool((mine | equal(other)).all()) else None


def _each_mask(own: Tensor, other: Tensor, made: Tensor, masks: Iterator[Tensor]) -> float | None:
    """The own share of the first mask (H, W) that explains the image."""
    return next((float(m.double().mean()) for m in masks if torch.equal(torch.where(m, own, other), made)), None)


def mixup(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    return _mixup(made, own, other)


def bc_plus(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    return _bc_plus(made, own - own.mean(), other - other.mean())


def vertical_concat(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    height = own.shape[1]
    return next((cut / height for cut in _cuts(height) if torch.equal(_concat(own, other, 1, cut), made)), None)


def horizontal_concat(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    width = own.shape[2]
    return next((cut / width for cut in _cuts(width) if torch.equal(_concat(own, other, 2, cut), made)), None)


def mixed_concat(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    _, height, width = own.shape
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    masks = ((rows < r) == (columns < c) for r, c in product(_cuts(height), _cuts(width)))
    return _each_mask(own, other, made, masks)


def random_2x2(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    """Cuts within the middle half, each of the four cells from either image."""
    _, height, width = own.shape
    rows, columns = torch.arange(height)[:, None], torch.arange(width)

    def masks() -> Iterator[Tensor]:
        middles = (range(round(size * 0.25), round(size * 0.75) + 1) for size in (height, width))
        for r, c in product(*middles):
            for cells in product([False, True], repeat=4):
                cell = 2 * (rows >= r).long() + (columns >= c).long()
                yield torch.tensor(cells)[cell]

    return _each_mask(own, other, made, masks())


def _vh(own: Tensor, other: Tensor, made: Tensor, blend: Judge) -> float | None:
    """A blend of a vertical and a horizontal concatenation, whose label is the same blend of their shares."""
    _, height, width = own.shape
    for r, c in product(_cuts(height), _cuts(width)):
        lam = blend(made, _concat(own, other, 1, r), _concat(own, other, 2, c))
        if lam is not None:
            return lam * r / height + (1 - lam) * c / width
    # Both concatenations are the same image, whatever the weight.
    for share, same in ((0.0, other), (1.0, own)):
        factor = float((made * same).sum() / (same**2).sum())
        if _near(factor * same, made) and (blend is _bc_plus or abs(factor - 1) < NEAR):
            return share
    return None


def vh_mixup(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    return _vh(own, other, made, _mixup)


def vh_bc_plus(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    return _vh(own - own.mean(), other - other.mean(), made, _bc_plus)


def _box(own: Tensor, other: Tensor, made: Tensor, elsewhere: bool) -> tuple[float, tuple[int, int]] | None:
    """The own share and the sides of the only box that differs, if it is a box of the other image."""
    _, height, width = own.shape
    taken = (made != own).any(0)
    if not taken.any():
        return 1.0, (0, 0)
    rows, columns = taken.any(1).nonzero()[:, 0], taken.any(0).nonzero()[:, 0]
    top, bottom, left, right = int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1
    block, high, wide = made[:, top:bottom, left:right], bottom - top, right - left
    places = product(range(height - high + 1), range(width - wide + 1)) if elsewhere else [(top, left)]
    if not any(torch.equal(block, other[:, y : y + high, x : x + wide]) for y, x in places):
        return None
    return 1 - high * wide / (height * width), (high, wide)


def cutmix(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    found = _box(own, other, made, elsewhere=False)
    return None if found is None else found[0]


def random_square(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    """Of half the shorter side; less where the border cuts it off."""
    found = _box(own, other, made, elsewhere=True)
    side = min(own.shape[1:]) // 2
    return None if found is None or max(found[1]) > side else found[0]


def random_row_interval(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    found = _box(own, other, made, elsewhere=True)
    return None if found is None or found[1][1] not in (0, own.shape[2]) else found[0]


def random_column_interval(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    found = _box(own, other, made, elsewhere=True)
    return None if found is None or found[1][0] not in (0, own.shape[1]) else found[0]


def random_rows(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    return _by_choice(own, other, made, (1, own.shape[1], 1))


def random_columns(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    return _by_choice(own, other, made, (1, 1, own.shape[2]))


def random_pixels(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    return _by_choice(own, other, made, (1, own.shape[1], own.shape[2]))


def random_elements(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    return _by_choice(own, other, made, tuple(own.shape))


def noisy_mixup(own: Tensor, other: Tensor, made: Tensor) -> float | None:
    """Each pixel has a share of its own between 0 and 1, the same in every channel."""
    difference = own - other
    shares = ((made - other) * difference).sum(0) / (difference**2).sum(0)
    if shares.min() < -NEAR or shares.max() > 1 + NEAR or not _near(other + shares * difference, made):
        return None
    return float(shares.mean())


MIXES: dict[str, Judge] = {
    "mixup": mixup,
    "bc-plus": bc_plus,
    "vertical-concat": vertical_concat,
    "horizontal-concat": horizontal_concat,
    "mixed-concat": mixed_concat,
    "random-2x2": random_2x2,
    "vh-mixup": vh_mixup,
    "vh-bc-plus": vh_bc_plus,
    "cutmix": cutmix,
    "random-square": random_square,
    "random-row-interval": random_row_interval,
    "random-column-interval": random_column_interval,
    "random-rows": random_rows,
    "random-columns": random_columns,
    "random-pixels": random_pixels,
    "random-elements": random_elements,
    "noisy-mixup": noisy_mixup,
}
"""By the name of the registered mix."""
