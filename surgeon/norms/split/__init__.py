"""Split BatchNorm: two complete sets of statistics and parameters, for two kinds of training images.

Xie et al., "Adversarial Examples Improve Image Recognition", CVPR 2020, and Merchant et al., "Does Data
Augmentation Benefit from Split BatchNorms", 2020. Both branches start as copies of the original. In training, weakly
augmented images take the main branch and strongly augmented ones the auxiliary branch; evaluation
takes the main branch, or mixes the predictions of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from surgeon.norms.base import NormConfig, Phase, always_identical, option, register

if TYPE_CHECKING:
    from surgeon.layers.rewriting import Part
    from surgeon.layers.surgical import SurgicalNorm


class SplitConfig(NormConfig):
    branch_augments = ("weak", "strong")

    shared_affine: bool = option(False, "Both branches share weight and bias, and differ in their statistics only.")

    def parts(self, norm: SurgicalNorm) -> Iterator[Part]:
        """The second branch."""
        if norm.aux is not None:
            yield "auxiliary branch: ", norm.aux


def _objection(norm: SurgicalNorm, config: SplitConfig) -> str:  # noqa: ARG001
    if norm.running_mean is None or not norm.source_has_statistics:
        return f"is a {norm.source} without running statistics that could be split"
    return ""


@register(
    "split",
    config=SplitConfig,
    changes=Phase.BRANCHES,
    identity=always_identical,
    adds_state=True,
    paper="Xie et al., CVPR 2020; Merchant et al., 2020",
    objection=_objection,
)
def split(norm: SurgicalNorm, config: Any) -> None:
    """Main and auxiliary branch, each with its own statistics and parameters; evaluation uses the main one."""
    from surgeon.norms.split.layer import AuxiliaryNorm

    if norm.aux is None:  # one that is there already stays
        norm.aux = AuxiliaryNorm.beside(norm, config.shared_affine)
