"""Augmentation: mixes of pairs, erasing, and the label-preserving policies of timm and torchvision, one file each.

When they are applied is decided in `training`.
"""
