"""What a study is: networks trained in several ways and with several seeds, evaluated and compared."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictBool

TEST, VALIDATION = "test", "validation"
SEED = "seed"
SOURCES = ("init_seed", "order_seed", "augment_seed", "rounding_seed", "one_bit")
"""Keys of a recipe that are each the seed of one source of randomness."""


class Evaluation(BaseModel):
    """How finished networks are measured; without any key, as their runs have tested them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)

    data: str | None = Field(None, description="Other images than those of the run.")
    split: str | None = Field(None, description="Default: test.")
    where: tuple[str, ...] = Field((), description="COLUMN=VALUE: only these rows of a table, as for `eval --where`.")
    limit: int | None = Field(None, ge=1, description="Stratified subset of N images.")
    under: tuple[str, ...] = Field(
        (), description="Conditions, as for `eval --under`; the figure is the mean over them."
    )
    tta: str | None = Field(None, description="Views of each image, as for `eval --tta`.")
    alpha: float | None = Field(None, ge=0, le=1, description="Alpha of example-weighted layers, set after training.")
    branch_share: float | None = Field(
        None, alias="lambda", ge=0, le=1, description="Mix of the branches of a split network, as for `eval --lambda`."
    )
    recalibrate: float | None = Field(
        None,
        ge=0,
        description="Recalibrate each network on these images, without labels, at this prior. Each half is predicted "
        "by the network adapted to the other half.",
    )
    ensemble: Literal["seeds", "snapshots"] | None = Field(
        None, description="Average the logits of the networks of all seeds, or of the snapshots of each run."
    )
    features: StrictBool = Field(
        False,
        description="Also keep the features before each network's head, to compare networks (`variability`). "
        "They take 4 bytes per image and channel.",
    )
    variants: tuple[str, ...] = Field((), description="Only these variants. Default: all that it applies to.")

    @property
    def measures_anew(self) -> bool:
        """Whether it asks for more than the logits or the figures that a run leaves anyway."""
        asked = (self.data, self.limit, self.tta, self.alpha, self.branch_share, self.recalibrate)
        return any(one is not None for one in asked) or bool(self.where or self.under or self.features)

    @property
    def averages(self) -> bool:
        """Whether predictions of several networks or views are averaged."""
        return self.ensemble is not None or self.tta is not None

    @property
    def compares_runs(self) -> bool:
        """Whether there are logits of each run, so that runs can be compared image by image."""
        return self.ensemble != "seeds" and not self.is_own_validation

    @property
    def is_own_test(self) -> bool:
        """Whether the run's own test answers it."""
        return not self.measures_anew and self.split in (None, TEST) and self.ensemble != "snapshots"

    @property
    def is_own_validation(self) -> bool:
        """Whether the figures on its validation images, which the run has written down, answer it."""
        return not self.measures_anew and self.split == VALIDATION and self.ensemble is None


class Variant(BaseModel):
    """One way to train, with any seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    model: str
    weights: str | None = None
    pretrained: bool = True
    data: str
    unlabelled: str | None = None
    recipe: dict[str, Any]
    """The keys that are not as they are by default."""
    varies: str = SEED
    """The key of the recipe that is different in each run: all that is random, or one source of it."""
    epochs: int | None
    """Unless the network and the images decide."""
    snapshots: int

    @property
    def training(self) -> list[str]:
        """The arguments of `finetune` that name the network and its images."""
        arguments = [self.model, "--data", self.data]
        arguments += ["--unlabelled", self.unlabelled] if self.unlabelled is not None else []
        arguments += ["--weights", self.weights] if self.weights is not None else []
        return arguments + ([] if self.pretrained else ["--no-pretrained"])

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides what a run does, but for its seed."""
        network = self.model_dump(mode="json", include={"model", "weights", "pretrained", "data"})
        network |= {"unlabelled": self.unlabelled} if self.unlabelled is not None else {}
        return network | self.recipe | ({"varies": self.varies} if self.varies != SEED else {})


class Cell(NamedTuple):
    """The networks of a variant, in an evaluation."""

    variant: str
    evaluation: str

    def __str__(self) -> str:
        return f"{self.variant}/{self.evaluation}"


class Comparison(NamedTuple):
    """A cell and the one that it is compared with."""

    candidate: Cell
    baseline: Cell


class Definition(BaseModel):
    """A study whose file has been checked, with every variant spelled out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str = ""
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    evaluations: dict[str, Evaluation]
    metrics: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    variability: Cell | None = None
    """Whose runs the variability of all others is compared with; None if it is not asked for."""
    skip_bad: bool = False
    cpus: float = 1
    gpus: float = 0
    memory: float | None = None
    """Of one run, in GiB."""

    def applies(self, evaluation: str, variant: Variant) -> bool:
        """Whether networks of a variant take part in an evaluation."""
        return applies(self.evaluations[evaluation], variant)


def applies(evaluation: Evaluation, variant: Variant) -> bool:
    """Whether networks of a variant take part in an evaluation: one over snapshots wants variants that have some."""
    if evaluation.ensemble == "snapshots" and variant.snapshots < 2:
        return False
    return not evaluation.variants or variant.name in evaluation.variants
