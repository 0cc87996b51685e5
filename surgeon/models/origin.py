"""What is known of a network: how it is built, what it expects, whose weights it has, what was done to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from torch import nn

from surgeon.core.media import Medium
from surgeon.models.history import History, Step
from surgeon.models.spectrogram import Spectrogram


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSource(Record):
    """How to build the network again, without weights."""

    library: Literal["timm", "torchvision", "surgeon"]
    architecture: str
    arguments: dict[str, Any] = {}


Side = Annotated[int, Field(ge=1, le=8192)]
Values = Annotated[tuple[float, ...], Field(min_length=1, max_length=8192)]


class Preprocessing(Record):
    """What the network expects of its images, or of clips of sound."""

    model_config = ConfigDict(allow_inf_nan=False)

    input_size: tuple[Side, Side, Side]
    mean: Values
    std: Values
    interpolation: Annotated[str, Field(pattern="^[a-z_-]{1,20}$")] = "bilinear"
    crop_pct: Annotated[float, Field(gt=0, le=100)] = 1.0
    sound: Spectrogram | None = None
    """What is made of clips, for a network that takes sound; mean and standard deviation are of this."""

    @model_validator(mode="after")
    def _of_one_channel(self) -> Self:
        if self.sound is not None and (self.input_size[0], len(self.mean), len(self.std)) != (1, 1, 1):
            raise ValueError("a spectrogram has one channel")
        return self

    @property
    def medium(self) -> Medium:
        """What the network takes."""
        return Medium.IMAGE if self.sound is None else Medium.SOUND

    @property
    def is_reversible(self) -> bool:
        """Whether samples can be told from what the network sees of them, as pixels can, and waveforms cannot."""
        return self.sound is None

    @model_serializer(mode="wrap")
    def _without_sound(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Records of networks for images, which timm also reads, say nothing of sound."""
        fields: dict[str, Any] = serialise(self)
        return {name: value for name, value in fields.items() if name != "sound" or value is not None}


class BaseWeights(Record):
    """Which weights the network had before surgery."""

    origin: str
    sha256: str | None = None


class Origin(Record):
    """Everything known about where a network came from."""

    source: ModelSource | None = None
    preprocessing: Preprocessing | None = None
    weights: BaseWeights = BaseWeights(origin="unknown")
    class_names: tuple[str, ...] | None = None
    """Of the outputs, where they are known."""
    notes: tuple[str, ...] = ()
    history: History = ()
    """What has been done to it, in order."""

    def after(self, *steps: Step) -> Origin:
        """The same with more steps."""
        return self.model_copy(update={"history": (*self.history, *steps)})


@dataclass
class LoadedModel:
    """A network in evaluation mode and where it came from."""

    name: str
    model: nn.Module
    origin: Origin

    @property
    def medium(self) -> Medium:
        """What it takes, images if that is not known."""
        return self.origin.preprocessing.medium if self.origin.preprocessing is not None else Medium.IMAGE

    def note(self, *steps: Step) -> None:
        """Add to the history what was done to the network."""
        self.origin = self.origin.after(*steps)
        self.model.origin = self.origin  # type: ignore[assignment]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Of the outputs, where they are known: to us, or to timm."""
        names = self.origin.class_names or (getattr(self.model, "pretrained_cfg", None) or {}).get("label_names")
        return tuple(map(str, names)) if isinstance(names, list | tuple) and names else None


def note_on(model: nn.Module, step: Step) -> None:
    """Add to the history of a network in memory, wherever it came from."""
    known: Origin = getattr(model, "origin", None) or Origin()
    model.origin = known.after(step)  # type: ignore[assignment]
