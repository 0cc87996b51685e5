"""Augmentation: mixes of pairs, erasing, and the label-preserving policies of timm and torchvision."""
