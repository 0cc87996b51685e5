"""Groups of images, of which one at a time is left out to see how much a figure depends on its images.

An image belongs to the same group in every process and every run, because the group depends on its
index alone. The hash scatters the groups over the data: in data sorted by class, or with classes
that take turns, the remainder of the index would put images of one kind into one group.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUPS = 32
_GROUP_BITS = 5


def group_of(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """The group, from 0 to 31, of each image: the high bits of splitmix64 of its index."""
    mixed = indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    # A product alone would keep images together whose distance is a Fibonacci number.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(64 - _GROUP_BITS)).astype(np.int64)
