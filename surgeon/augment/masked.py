"""Augmentations of images with masks: crops that cut both, and what leaves everything in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surgeon.augment.base import Augment, JointOperation, Kind, augments
from surgeon.core.errors import SurgeonError, listing
from surgeon.core.specs import parse_spec

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from surgeon.models.origin import Preprocessing


def allowed_with_masks() -> list[str]:
    """The augmentations that images with masks can have."""
    return [name for name in augments if augments[name].keeps_places or augments[name].joint is not None]


def check_for_masks(specs: Sequence[str], preprocessing: Preprocessing) -> None:
    """Refuse what moves or mixes images, so that their masks would not be true any more."""
    for spec in specs:
        for choice in spec.split("|"):
            if choice.strip() != "none":
                _check(choice, preprocessing)


def _check(spec: str, preprocessing: Preprocessing) -> None:
    name, options = parse_spec(spec)
    augment = augments[name]
    if augment.kind is Kind.POLICY:
        check_for_masks(augment.build(augment.configure(options), preprocessing), preprocessing)
    elif not augment.keeps_places and augment.joint is None:
        what = "mixes images" if augment.kind is Kind.MIX else "may move what an image shows"
        raise SurgeonError(
            f"{name} {what}, so masks would no longer match.", f"With masks, use {listing(allowed_with_masks())}."
        )


def joint_crop(specs: Sequence[str], preprocessing: Preprocessing, crop: str | None) -> JointOperation:
    """The crop of pictures and masks that the specs ask for; where they ask for none, `crop` or that of evaluation."""
    crops = list(_crops(specs, preprocessing)) or list(_crops([crop] if crop else [], preprocessing))
    if not crops:
        return whole(preprocessing)
    (augment, options), *_ = crops
    assert augment.joint is not None
    return augment.joint(augment.configure(options), preprocessing)


def _crops(specs: Sequence[str], preprocessing: Preprocessing) -> list[tuple[Augment, dict[str, str]]]:
    found = []
    for spec in specs:
        if "|" in spec:
            continue
        name, options = parse_spec(spec)
        augment = augments[name]
        if augment.kind is Kind.POLICY:
            found += _crops(augment.build(augment.configure(options), preprocessing), preprocessing)
        elif augment.kind is Kind.GEOMETRY:
            found.append((augment, options))
    return found


def whole(preprocessing: Preprocessing) -> JointOperation:
    """The whole picture and its mask, as in evaluation."""
    from surgeon.augment.geometry import in_mode
    from surgeon.data.transforms import WholeImage, resized_mask

    transform = WholeImage(preprocessing)
    picture = in_mode(transform.mode, transform.geometry.transforms[:-1])

    def apply(image: Image.Image, mask: Tensor) -> tuple[Image.Image, Tensor]:
        return picture(image), resized_mask(mask.numpy(), preprocessing.input_size[-2:])

    return apply
