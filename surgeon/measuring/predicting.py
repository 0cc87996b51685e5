"""Names of before."""

from __future__ import annotations

from surgeon.measuring.inference import InferenceSettings as Manner

__all__ = ["Manner"]
