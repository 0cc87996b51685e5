"""AlexNet's error rates on ImageNet-C, mean over the severities, by which the published mCE divides.

D. Hendrycks and T. Dietterich, Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, ICLR
2019, and the evaluation code that its authors published with it. They are for ImageNet's validation images at 224
pixels and for nothing else.
"""

from __future__ import annotations

CLEAN_ERROR = 0.4348
"""On clean images: torchvision's AlexNet, top-1 56.52%."""

ERRORS = {
    "gaussian-noise": 0.886428,
    "shot-noise": 0.894468,
    "impulse-noise": 0.922640,
    "defocus-blur": 0.819880,
    "glass-blur": 0.826268,
    "motion-blur": 0.785948,
    "zoom-blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic-transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg-compression": 0.606500,
}
"""By corruption."""
