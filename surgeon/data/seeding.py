"""Randomness that depends only on given numbers, for code that draws from the global generators."""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_ONE_AT_A_TIME = threading.RLock()


def seed_from(*numbers: int) -> int:
    """A seed of 63 bits; sequences that differ in anything have unrelated seeds."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "big") >> 1


@contextmanager
def seeded(*numbers: int) -> Iterator[None]:
    """Seed the generators of random, numpy and torch (on the CPU) from the numbers; afterwards they are as before.

    They belong to the whole process, so threads that use this wait for each other.
    """
    with _ONE_AT_A_TIME:
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()
        seed = seed_from(*numbers)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_rng_state(states[2])
