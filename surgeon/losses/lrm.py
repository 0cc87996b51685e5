"""LRM, the sum of logit regularisation methods: smoothing, decoupled pairing and squeezing, to be used with VH-mixup.

C. Summers and M. Dinneen, Improved Adversarial Robustness via Logit Regularization Methods, 2019. Its values are
(beta, ratio, smoothing) = (1e-3, 0.125, 0.1) on CIFAR-10, (3e-5, 0.95, 0.1) on CIFAR-100, (1e-4, 0.95, 0.2) on SVHN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.core.errors import SurgeonError
from surgeon.losses.base import Copy, Loss, LossConfig, Predictions, losses, option

if TYPE_CHECKING:
    from torch import Tensor


class LrmConfig(LossConfig):
    beta: float = option(1e-3, "Weight of logit-squeezing.", ge=0)
    ratio: float = option(0.125, "Share of decoupled-pairing.", ge=0)
    smoothing: float = option(0.1, "Label smoothing of cross-entropy.", ge=0, lt=1)


def _terms(config: LrmConfig) -> tuple[str, ...]:
    return (
        f"cross-entropy:smoothing={config.smoothing}",
        f"decoupled-pairing:ratio={config.ratio}",
        f"logit-squeezing:beta={config.beta}",
    )


def _compute(config: LossConfig, predictions: Predictions) -> Tensor:  # noqa: ARG001
    raise SurgeonError("lrm stands for several terms, which are computed one by one.")


losses.register("lrm")(
    Loss(
        "lrm",
        "Stands for cross-entropy, decoupled-pairing and logit-squeezing. Use it with --augment vh-mixup.",
        "Summers & Dinneen, 2019",
        LrmConfig,
        _compute,
        (Copy.WEAK, Copy.ADVERSARIAL),
        stands_for=_terms,
    )
)
