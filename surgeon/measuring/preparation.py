"""A network and the images it has to classify, fitted to one another before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from surgeon.core.devices import Precision, pick_device, usable_precision
from surgeon.core.errors import SurgeonError, count, listing
from surgeon.data.check import check_classes, check_medium
from surgeon.data.imagenet import CLASSES, are_wordnet_numbers, wordnet_numbers
from surgeon.data.images import ImageFiles, ImageSet
from surgeon.data.loaders import Batches, batches
from surgeon.data.opening import open_data
from surgeon.data.stratified import limit
from surgeon.layers.running import evaluating
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.variants import Variant
from surgeon.models.origin import LoadedModel, Preprocessing
from surgeon.problems import CLASSIFICATION, Problem, problem_of
from surgeon.views import Merge, Views, views_for

LARGEST_SIDE = 520
"""Of the shorter side of images that a network segments, if it does not say: as in torchvision's own evaluation."""
INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "lanczos")


@dataclass(frozen=True)
class ImageOptions:
    """What to change in the preprocessing that the network states."""

    input_size: int | None = None
    crop_pct: float | None = None
    interpolation: str | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    def applied_to(
        self,
        stated: Preprocessing | None,
        model: str,
        problem: Problem = CLASSIFICATION,
        images: ImageSet | None = None,
        most: int = LARGEST_SIDE,
    ) -> Preprocessing:
        """What images go through.

        Args:
            stated: What the network says.
            model: Its name.
            problem: What it does with them.
            images: Those that it will see.
            most: How long their shorter side may be, if nobody says anything.
        """
        stated = problem.preprocessing(stated, images, most)
        if stated is None:
            raise SurgeonError(f"The preprocessing of {model!r} is not known, so it cannot be evaluated.")
        self._check()
        if stated.sound is not None and (self.crop_pct, self.interpolation) != (None, None):
            option = "--crop-pct" if self.crop_pct is not None else "--interpolation"
            raise SurgeonError(f"{option} is for images, and {model!r} takes clips of sound.", "Leave it out.")
        if self.crop_pct is not None and problem is not CLASSIFICATION:
            raise SurgeonError("Whole images are segmented, none is cropped.", "Leave --crop-pct out.")
        if self.input_size is not None:
            stated = problem.resized(stated, self.input_size)
        changes = {k: v for k in ("crop_pct", "interpolation") if (v := getattr(self, k)) is not None}
        channels = stated.input_size[0]
        for name in ("mean", "std"):
            if (numbers := getattr(self, name)) is not None:
                changes[name] = _per_channel(tuple(numbers), channels, f"--{name}")
        return stated.model_copy(update=changes)

    def _check(self) -> None:
        if self.crop_pct is not None and not 0 < self.crop_pct <= 1:
            raise SurgeonError(f"--crop-pct cannot be {self.crop_pct:g}.", "It is a share: above 0, at most 1.")
        if self.interpolation not in (None, *INTERPOLATIONS):
            raise SurgeonError(
                f"--interpolation cannot be {self.interpolation!r}.", f"Choose {listing(INTERPOLATIONS, 'or')}."
            )
        if self.std is not None and not all(number > 0 for number in self.std):
            raise SurgeonError("--std cannot be 0 or less.", "Images are divided by it.")


def _per_channel(numbers: tuple[float, ...], channels: int, option: str) -> tuple[float, ...]:
    if len(numbers) not in (1, channels):
        raise SurgeonError(
            f"{option} lists {count(len(numbers), 'number')}, but the images have {count(channels, 'channel')}."
        )
    return numbers * channels if len(numbers) == 1 else numbers


@dataclass(frozen=True)
class InferenceRequest:
    """Which images, and how to predict them."""

    data: str
    split: str | None = None
    limit: int | None = None
    image_column: str | None = None
    label_column: str | None = None
    where: tuple[str, ...] = ()
    """COLUMN=VALUE: only the rows of a table in which all of these hold."""
    problem: str | None = None
    """classification or segmentation, if it is not to be found out."""
    void: tuple[int, ...] = ()
    """Values of masks that stand for no class, besides the usual one."""
    labelled: bool = True
    """Whether the images have to have labels."""
    skip_bad: bool = False
    images: ImageOptions = ImageOptions()
    tta: str | None = None
    merge: Merge = Merge.LOGITS
    batch_size: int | None = None
    workers: int | None = None
    device: str | None = None
    precision: Precision = Precision.FLOAT32


@dataclass(frozen=True)
class PreparedNetwork:
    """A network on its device, and images that fit it."""

    model: nn.Module
    image_set: ImageSet
    network_preprocessing: Preprocessing
    preprocessing: Preprocessing
    """What batches have gone through: the network's own, unless views are cut out of larger images."""
    views: Views | None
    device: torch.device
    precision: Precision
    batch_size: int
    request: InferenceRequest
    outputs: tuple[int, ...] | None = None
    """Which output of the network each class of the images is, if they are not in the same order; others may follow."""
    class_names: tuple[str, ...] | None = None
    """What the network itself calls the classes that it predicts, those of the images first, if it is known."""
    matched_classes: tuple[int, int] | None = None
    """How many classes the images and the network have, where they were matched by name."""
    problem: Problem = CLASSIFICATION
    """What the network does with images."""
    classes: int = 0
    """How many it knows."""

    def batches(self, image_set: ImageSet | None = None) -> Batches:
        """Batches of all images, or of others."""
        return batches_for([self], image_set or self.image_set)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a user should know of how the samples were brought into the form that the network takes."""
        return self.image_set.remarks(self.preprocessing) + self._classes_by_position

    @property
    def _classes_by_position(self) -> tuple[str, ...]:
        """That nothing but the order of folders tells which output of the network is which class."""
        images = self.image_set
        names = images.class_names
        in_folders = isinstance(images.encoded, ImageFiles) and images.names_known and images.masks is None
        numbered = names == tuple(map(str, range(len(names))))
        if self.class_names is not None or images.outputs is not None or numbered or not in_folders:
            return ()
        return (
            f"The network has no class names: output 0 is taken for {names[0]!r}, … {len(names) - 1} for "
            f"{names[-1]!r}, in the alphabetical order of the folders.",
        )

    @property
    def inference(self) -> InferenceSettings:
        return InferenceSettings(
            self.device, self.precision, self.views, self.request.merge, self.outputs, problem=self.problem
        )

    @property
    def variant(self) -> Variant:
        """The network as it is."""
        return Variant(self.model, self.inference, self.preprocessing)

    def with_one_view(self) -> PreparedNetwork:
        """The same images as the network itself expects them."""
        return replace(self, views=None, preprocessing=self.network_preprocessing)

    def with_its_classes(self, images: ImageSet) -> ImageSet:
        """Images whose masks have the classes that those of this network have; others as they are."""
        if images.masks is None or self.image_set.masks is None or images.masks.classes is not None:
            return images
        return images.with_classes(self.image_set.class_names, known=self.image_set.names_known)

    @property
    def view_count(self) -> int:
        return self.views.count if self.views else 1


def prepare(loaded: LoadedModel, request: InferenceRequest, images: ImageSet | None = None) -> PreparedNetwork:
    """Open the images (unless given), check that they fit the network, and move it to its device."""
    image_set = open_images(request) if images is None else images
    problem = problem_of(loaded.origin, image_set, request.problem)
    preprocessing = request.images.applied_to(loaded.origin.preprocessing, loaded.name, problem, image_set)
    check_medium(image_set, preprocessing, loaded.name)
    views = views_for(request.tta, preprocessing) if request.tta else None
    device = pick_device(request.device)
    model = loaded.model.to(device).to(memory_format=torch.channels_last)
    outputs = _outputs(model, preprocessing, device, problem, image_set)
    names = loaded.class_names
    matched = None
    image_set = problem.fitted(image_set, outputs, names)
    if image_set.outputs is None and image_set.masks is None:  # masks are compared pixel by pixel
        known_as = wordnet_numbers() if names is None and _is_some_of_imagenet(image_set, outputs) else names
        matched = check_classes(image_set, outputs, known_as)
    elif image_set.masks is None and outputs != CLASSES:
        raise SurgeonError(
            f"{image_set.name!r} has classes of ImageNet, but {loaded.name} has {count(outputs, 'output')}, "
            f"not {CLASSES:,}."
        )
    return PreparedNetwork(
        model=model,
        image_set=image_set,
        network_preprocessing=preprocessing,
        preprocessing=views.preprocessing if views else preprocessing,
        views=views,
        device=device,
        precision=usable_precision(request.precision, device),
        batch_size=request.batch_size or problem.images_at_once(preprocessing.input_size),
        request=request,
        outputs=matched or image_set.outputs,
        class_names=tuple(names[place] for place in matched) if names and matched else names,
        matched_classes=(len(image_set.class_names), outputs) if matched else None,
        problem=problem,
        classes=outputs,
    )


def _is_some_of_imagenet(image_set: ImageSet, outputs: int) -> bool:
    """Whether classes go by WordNet numbers, which a network of a thousand classes has without saying so."""
    return outputs == CLASSES and image_set.names_known and are_wordnet_numbers(image_set.class_names)


def batches_for(
    networks: Sequence[PreparedNetwork], image_set: ImageSet, *, keep_pictures: bool = False, fewest: int = 1
) -> Batches:
    """Batches that are decoded once for several networks, as small as the one with the largest images needs them.

    Args:
        networks: Prepared with the same request.
        image_set: The images.
        keep_pictures: Let batches also hold the decoded pictures.
        fewest: A last batch with fewer images than this joins the one before.
    """
    request = networks[0].request
    return batches(
        networks[0].with_its_classes(image_set),
        [network.preprocessing for network in networks],
        min(network.batch_size for network in networks),
        request.workers,
        request.skip_bad,
        keep_pictures=keep_pictures,
        fewest=fewest,
        transform=networks[0].problem.transform,
        in_turns=networks[0].device.type == "cpu",
    )


def outputs_for_journal(networks: Sequence[PreparedNetwork]) -> dict[str, object]:
    """What classes were taken for, which the labels of the data do not tell; nothing where numbers are enough."""
    outputs = [network.outputs if network.matched_classes else None for network in networks]
    return {"classes": outputs} if any(outputs) else {}


def readable_images(network: PreparedNetwork, images: ImageSet) -> tuple[ImageSet, tuple[str, ...]]:
    """The images that can be decoded, and the names of the others; bad ones that are not to be skipped stay in.

    What statistics count for depends on the number of their images, which must be known before they are estimated.
    """
    if not network.request.skip_bad:
        return images, ()
    loader = batches_for([network], images)
    good = [int(index) for batch in loader for index in batch.indices]
    return (images.subset(good) if loader.bad else images), tuple(loader.bad)


def open_images(request: InferenceRequest) -> ImageSet:
    """The images of a request, all or as many as it wants."""
    image_set = open_data(
        request.data,
        request.split,
        image_column=request.image_column,
        label_column=request.label_column,
        labelled=request.labelled,
        where=request.where,
        problem=request.problem,
        void=request.void,
    )
    return image_set if request.limit is None else image_set.subset(limit(image_set.labels, request.limit))


def _outputs(
    model: nn.Module, preprocessing: Preprocessing, device: torch.device, problem: Problem, images: ImageSet
) -> int:
    """How many classes a network predicts."""
    inputs = torch.zeros(1, *preprocessing.input_size, device=device)
    with evaluating(model), torch.inference_mode():
        answer = model(inputs)
    try:
        return problem.logits(answer, inputs).shape[1]
    except SurgeonError as error:
        labels = "masks" if images.masks is not None else "one label per image"
        raise SurgeonError(f"{error.message} {images.name!r} has {labels}.", error.hint) from error
