"""AutoAttack through the package pyautoattack, kept from changing anything of the process that it runs in."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from torch import Tensor

from surgeon.conditions.attacks.ascent import Logits, check_gradients, projected
from surgeon.core.errors import SurgeonError
from surgeon.core.versions import DISTRIBUTION
from surgeon.data.seeding import seeded

TARGETS = 9
"""Wrong classes that are aimed at, as in the standard version."""
LARGEST_SEED = 2**32


def run(logits: Logits, pixels: Tensor, labels: Tensor, *, eps: float, seed: int) -> Tensor:
    """The standard version in the L-infinity norm; images that withstand all attacks come back as they were."""
    package = _package()
    if eps == 0:  # what its attacks divide by
        return pixels
    check_gradients(logits, pixels.shape[1:], pixels.device)

    def with_dense_gradients(images: Tensor) -> Tensor:
        # It takes views of gradients that are possible only where these are not channels last.
        return logits(images.flatten(1).view(images.shape))

    images = pixels.contiguous()
    classes = with_dense_gradients(images[:1]).shape[1]
    # The loss of its second attack is made of the four highest logits.
    names = ["apgd-ce", *(["apgd-t"] if classes > 3 else []), "fab-t", "square"]
    with seeded(seed), _process_left_alone():
        attack = package.AutoAttack(
            with_dense_gradients,
            attacks=names,
            device=pixels.device,
            eps=eps,
            norm="Linf",
            seed=seed % LARGEST_SEED,
            version="custom",
        )
        attack.apgd.n_restarts = attack.fab.n_restarts = attack.apgd_targeted.n_restarts = 1
        attack.fab.n_target_classes = attack.apgd_targeted.n_target_classes = min(TARGETS, classes - 1)
        found, _ = attack.run_standard_evaluation(images, labels.to(pixels.device), batch_size=len(pixels))
    return projected(found, pixels, eps)


def _package() -> ModuleType:
    try:
        import pyautoattack
    except ImportError:
        raise SurgeonError(
            "The attack auto-attack needs the package pyautoattack, which is not installed.",
            f"Run: pip install '{DISTRIBUTION}[attacks]'",
        ) from None
    module: ModuleType = pyautoattack
    return module


@contextmanager
def _process_left_alone() -> Iterator[None]:
    """It switches tracing off, which debuggers and coverage rely on, and its warnings are for its own users."""
    tracing, logger = sys.gettrace(), logging.getLogger("auto-attack")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        sys.settrace(tracing)
        logger.setLevel(level)
