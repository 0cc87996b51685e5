"""Test-time augmentation: families of views of an image, one file each, and merging their predictions.

What they bring is measured in `measuring`; what is done to images in training lies in `augment`.
"""

from surgeon.views.base import ViewConfig, ViewFamily, Views, check_views, option, register, views, views_for
from surgeon.views.merge import Merge, Merger
from surgeon.views.run import Forward, predict, predict_each

__all__ = [
    "Forward",
    "Merge",
    "Merger",
    "ViewConfig",
    "ViewFamily",
    "Views",
    "check_views",
    "option",
    "predict",
    "predict_each",
    "register",
    "views",
    "views_for",
]
