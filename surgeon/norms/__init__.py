"""Normalisation rewrites, one file per variant."""

from surgeon.norms.base import NormConfig, NormVariant, Phase, norms, option, register

__all__ = ["NormConfig", "NormVariant", "Phase", "norms", "option", "register"]
