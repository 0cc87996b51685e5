"""What has been done to a network, step by step, as facts: cards are rendered from them, and never parsed back.

Every kind of step is a class here; a new one is added to `Step`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from surgeon.models.facts import Count, DataSet, Fact, Figures, Gain, Gains, Images, Name, Text, Texts

MOST_STEPS = 1000
Fraction = Annotated[float, Field(ge=0, le=1)]
Temperature = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Earlier(Fact):
    """What a checkpoint without a history told of itself: sentences that nothing is concluded from."""

    kind: Literal["earlier"] = "earlier"
    surgeon_version: Name
    findings: Texts = ()


class Saved(Fact):
    """`surgeon.save` has written the network out of somebody's program: what that did to it is not known."""

    kind: Literal["saved"] = "saved"
    findings: Texts = ()
    """What its author had to say."""


class Renamed(Fact):
    """The weights came from a file with other names: its layers, and the BatchNorm layers that agree, of how many."""

    kind: Literal["renamed"] = "renamed"
    rules: Texts = ()
    layers: dict[Name, Name] = Field(default_factory=dict, max_length=100_000)
    checked: Count = 0
    norms: Count = 0


class Converted(Fact):
    """Layers were rewritten or units inserted."""

    kind: Literal["converted"] = "converted"
    rewrites: Text
    """Of these layers from now on, with their options, as they are written on the command line."""
    layers: Count
    units: Count
    identity_difference: float | None = None
    """Largest relative difference from the network before, at the identity setting; None if it was not measured."""
    output_shift: float | None = None
    """Relative difference from the network before, at the chosen setting."""


class Snapshot(Fact):
    """Which of the networks of a run with several learning-rate cycles."""

    number: Count
    of: Count


class FineTuned(Fact):
    """The weights were trained."""

    kind: Literal["fine-tuned"] = "fine-tuned"
    data: DataSet
    classes: Count
    train_images: Count
    validation_images: Count
    test_images: Count
    held_back: bool
    """Whether the validation images were taken out of the training images."""
    unlabelled: Images | None = None
    """Images without labels that it learned from as well."""
    recipe: Annotated[dict[Name, JsonValue], Field(max_length=1000)]
    changes: Texts = ()
    """What the run was resumed with that it was not begun with."""
    snapshot: Snapshot | None = None
    validation: Figures | None = None
    """None for a snapshot."""


class SweptSetting(Fact):
    """A setting of the network that a sweep looked at closely."""

    name: Name
    choosing: Figures
    held_out: Figures | None = None
    gains: Gains = ()
    """Over the original; on the held-out images if there are any."""

    @property
    def reported(self) -> Figures:
        """The figures to quote: of the held-out images, if there are any."""
        return self.held_out or self.choosing

    def gain(self, metric: str) -> Gain | None:
        """Over the original, by a metric; the original has none."""
        return next((gain for gain in self.gains if gain.metric == metric), None)


class Swept(Fact):
    """Values of a setting were compared, and one of them may have been stored."""

    kind: Literal["swept"] = "swept"
    chosen_on: Images
    held_out: Count = 0
    """Images that took no part in the choice."""
    axis: Name
    metric: Name
    values: Annotated[tuple[float, ...], Field(max_length=100_000)]
    chosen: float
    second_values: Annotated[tuple[float, ...], Field(max_length=100_000)] = ()
    """Where two axes were swept at once: what the second one had at each of the values."""
    second_chosen: float | None = None
    settings: Annotated[tuple[SweptSetting, ...], Field(min_length=1, max_length=1000)]
    """The original first."""
    best: Name
    stored: bool
    """Whether the best setting was stored; otherwise the network was left at the original one."""
    forced: bool = False
    """Whether it was stored although its gain may be noise."""
    changed: bool
    """Whether the network had another setting before."""
    tta: Name | None = None
    under: Texts = ()
    """The conditions that it was chosen under, by the mean over them; none for images as they are."""
    confirmed_under: Texts = ()
    """Those that the held-out images were seen under."""
    warnings: Texts = ()

    def setting(self, name: str) -> SweptSetting | None:
        """A setting by its name."""
        return next((setting for setting in self.settings if setting.name == name), None)


class TemperatureFitted(Fact):
    """A temperature was fitted to the logits; it is divided by on top of an earlier one."""

    kind: Literal["temperature fitted"] = "temperature fitted"
    fitted_on: Images
    held_out: Count = 0
    temperature: Temperature
    stored: bool
    forced: bool = False
    gain: Gain | None = None
    """In cross-entropy; on the held-out images if there are any."""
    before: Figures | None = None
    warnings: Texts = ()


class Tested(Fact):
    """The network as it then was on images that nothing was chosen on."""

    kind: Literal["tested"] = "tested"
    images: Images
    tta: Name | None = None
    figures: Figures
    as_trained: Figures | None = None
    """With one view of each image, before settings were chosen on validation images."""


class Merged(Fact):
    """The branches of a split network were folded into one."""

    kind: Literal["merged"] = "merged"
    share: Fraction
    """Of the auxiliary branch."""
    layers: Count
    probability_shift: float | None = None
    """Largest difference of a probability from the average of two passes, on random images."""
    measured_on: Images | None = None
    two_passes: Figures | None = None
    merged: Figures | None = None
    gains: Gains = ()
    """Of the merged network over the average of two passes."""
    notes: Texts = ()


class AveragedMember(Fact):
    """A network whose weights went into an average, with what had been done to it alone."""

    name: Name
    base_weights: Name
    base_sha256: Name | None = None
    history: Annotated[tuple[Step, ...], Field(max_length=MOST_STEPS)] = ()


class Averaged(Fact):
    """The weights are the mean of several networks' weights; the steps before are those that all of them share."""

    kind: Literal["averaged"] = "averaged"
    members: Annotated[tuple[AveragedMember, ...], Field(max_length=1000)]
    statistics_from: Images | None = None
    """From which normalisation statistics were estimated anew."""
    statistics_layers: Count = 0
    averaged_layers: Count = 0
    """Layers some of whose statistics are only averaged over the members."""
    chosen_on: Images | None = None
    """If the members were chosen among others, on which images."""
    measured_on: Images | None = None
    figures: Figures | None = None
    gains: Gains = ()
    """Over the member that is best on these very images."""
    warnings: Texts = ()


class EntropyMinimised(Fact):
    """Gamma and beta were adapted so that predictions for the same unlabelled images became surer."""

    epochs: Count
    """Whose result was kept."""
    lr: float
    layers: Count
    before: float
    """Mean entropy of the predictions, in nats."""
    after: float
    collapsed: bool = False
    """Whether it was stopped because predictions concentrated on few classes."""


class Recalibrated(Fact):
    """Normalisation statistics were estimated anew from images without labels, or for layers that had none."""

    kind: Literal["recalibrated"] = "recalibrated"
    estimated_on: Images
    where: Texts = ()
    """COLUMN=VALUE: only the rows in which all of these hold."""
    prior: float | None
    """How many images the old statistics counted for; None where layers had none."""
    layers: Count
    mean_shift: float | None = None
    """How far means moved, in old standard deviations, on average over the layers."""
    entropy: EntropyMinimised | None = None
    """What was done after that, if anything was."""
    changed_predictions: float | None = None
    """The share of images that are now taken for another class."""
    measured_on: Images | None = None
    """Other images, with labels."""
    before: Figures | None = None
    after: Figures | None = None
    gains: Gains = ()
    """On these."""
    source: Images | None = None
    """Images of the original domain."""
    source_gains: Gains = ()
    """On those."""
    warnings: Texts = ()


class Exported(Fact):
    """The network was written for programs that do not know surgeon."""

    kind: Literal["exported"] = "exported"
    target: Name
    folded: Count | None = None
    """BatchNorm layers folded into convolutions; None if that was not asked for."""


Step = Annotated[
    Earlier
    | Saved
    | Renamed
    | Converted
    | FineTuned
    | Swept
    | TemperatureFitted
    | Tested
    | Merged
    | Averaged
    | Recalibrated
    | Exported,
    Field(discriminator="kind"),
]
History = Annotated[tuple[Step, ...], Field(max_length=MOST_STEPS)]

AveragedMember.model_rebuild()
