"""Test-time augmentation: families of views of an image, one file each, and merging their predictions."""

from surgeon.views.base import ViewFamily, Views, register, views
from surgeon.views.merge import Merge, Merger
from surgeon.views.run import Forward, predict, predict_each

__all__ = ["Forward", "Merge", "Merger", "ViewFamily", "Views", "predict", "predict_each", "register", "views"]
