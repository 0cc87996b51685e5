"""What samples are: pictures or clips of sound."""

from __future__ import annotations

from enum import StrEnum


class Medium(StrEnum):
    """What a data set holds, and what a network, an augmentation, a condition or a family of views is for."""

    IMAGE = "image"
    SOUND = "sound"

    @property
    def noun(self) -> str:
        """What one sample is called."""
        return {Medium.IMAGE: "image", Medium.SOUND: "clip"}[self]

    @property
    def samples(self) -> str:
        """What samples are called where it has to be plain what they are."""
        return {Medium.IMAGE: "images", Medium.SOUND: "clips of sound"}[self]
