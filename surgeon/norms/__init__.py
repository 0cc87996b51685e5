"""Rewrites of normalisation layers, one file or folder per method: its options, its layer, and what it says of itself.

How a layer is found and replaced lies in `surgery`; arithmetic that several methods share, in `layers`.
"""

from surgeon.norms.base import NormConfig, NormVariant, Phase, norms, norms_with, option, register

__all__ = ["NormConfig", "NormVariant", "Phase", "norms", "norms_with", "option", "register"]
