"""Test-time augmentation: several views of every image, one merged prediction."""

from surgeon.tta.base import ViewFamily, Views, register, views
from surgeon.tta.merge import Merge, Merger
from surgeon.tta.run import predict

__all__ = ["Merge", "Merger", "ViewFamily", "Views", "predict", "register", "views"]
