"""Cross-entropy with the labels, hard, soft or mixed, and label smoothing in both conventions.

Cross-entropy is linear in the targets. So the sums of losses by which papers state mixed examples, MoEx and CutMix (one
term for each example that has gone into another) are one cross-entropy with mixed targets.
C. Szegedy et al., Rethinking the Inception Architecture for Computer Vision, CVPR 2016, for label smoothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from surgeon.losses.base import Copies, OnCopies, Predictions, expectation, option, register

if TYPE_CHECKING:
    from torch import Tensor


class CrossEntropyConfig(OnCopies):
    smoothing: float = option(0.0, "Label smoothing: the share of each target that is spread.", ge=0, lt=1)
    spread: Literal["wrong", "all"] = option(
        "wrong", "wrong: s / (classes - 1) on each wrong class. all: s / classes on every class, as in torch."
    )
    on: Copies | None = option(
        None,
        "Copies to average over: weak+adversarial. Default: adversarial with --attack, else weak; with two branches "
        "also the copies of the auxiliary one.",
    )


@register("cross-entropy", paper="Szegedy et al., CVPR 2016", config=CrossEntropyConfig, on_labels=True)
def cross_entropy(config: CrossEntropyConfig, predictions: Predictions) -> Tensor:
    """Cross-entropy with the labels, hard or mixed, with optional label smoothing."""
    found = predictions.over(config.named_copies() or predictions.labelled)
    return -expectation(smoothed(found.targets, config.smoothing, config.spread), found.logits.log_softmax(1))


def smoothed(targets: Tensor, smoothing: float, spread: str) -> Tensor:
    """Targets (N, classes), a share of which is spread over the wrong classes or over all of them."""
    classes = targets.shape[1]
    if not smoothing:
        return targets
    if spread == "all":
        return targets * (1 - smoothing) + smoothing / classes
    return targets * (1 - smoothing) + (1 - targets) * smoothing / max(1, classes - 1)
