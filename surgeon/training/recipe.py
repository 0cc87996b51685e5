"""How to train: a strict YAML file in which every key is known, typed and documented."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from surgeon.core.errors import SurgeonError, count, did_you_mean, listing
from surgeon.core.reading import shortened
from surgeon.core.specs import parse_spec
from surgeon.training.keys import (
    Attack,
    Augments,
    Frozen,
    Inserts,
    Losses,
    Metric,
    Optimizer,
    Rewrites,
    Shares,
    Strong,
    Values,
    Views,
)
from surgeon.training.recipe_files import find_recipe, read_yaml
from surgeon.training.shortening import for_fewer_epochs

MOST_PROBLEMS = 20
NO_TRUTH = "true and false are not values of this key"
SHORT_FORMS = {"label_smoothing": ("cross-entropy", "smoothing"), "consistency": ("jensen-shannon", "weight")}
"""Keys that are short for an option of a term of the loss."""


def key(default: Any, help: str, **constraints: Any) -> Any:
    return Field(default, description=help, **constraints)


class Recipe(BaseModel):
    """Everything that decides what training does, apart from the network and the images."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    bn: Rewrites = key((), "Rewrites of BatchNorm layers, as in `surgeon convert --bn`.")
    insert: Inserts = key((), "Units to insert, as in `surgeon convert --insert`.")
    layers: str | None = key(None, "Rewrite only these layers.")

    augment: Augments = key(
        (),
        "Augmentations, applied after `standard` unless they crop themselves. On pretrained weights `standard` is "
        "milder. "
        "See `surgeon ls augments`.",
    )
    strong: Strong = key(
        ("strong",),
        "Augmentations for the auxiliary branch of a split network; or an attack, as in AdvProp: `pgd:steps=5`.",
    )
    unmixed_epochs: int = key(0, "Final epochs without mixing augmentations.", ge=0)
    attack: Attack | None = key(None, "Adversarial training with this attack: `pgd:eps=0.03,steps=7`.")
    loss: Losses = key(
        ("cross-entropy",),
        "Terms of the loss, which add up. Cross-entropy is added if none of them uses labels. `label_smoothing: 0.1` "
        "is "
        "short for cross-entropy:smoothing=0.1. See `surgeon ls losses`.",
    )

    train_images: int | None = key(None, "Stratified subset of N training images.", ge=2)
    unlabelled_images: int | None = key(None, "Random subset of N of the unlabelled images.", ge=2)
    unlabelled_ratio: int = key(7, "Unlabelled images per labelled image in a batch.", ge=1)
    epochs: int | None = key(
        None,
        "Passes over the training images, or over the unlabelled ones if that is longer. Default: depends on their "
        "number.",
        ge=1,
    )
    batch_size: int | None = key(
        None, "Images per batch, over all processes. Default: depends on the number of training images.", ge=2
    )
    accumulate: int = key(1, "Gradient accumulation: number of parts each batch is split into.", ge=1)
    input_size: int | None = key(None, "Height and width of the images. Default: the network's own.", ge=8)

    optimizer: Optimizer = key("sgd", "Any timm optimiser: sgd, adamw, lamb, …")
    lr: float | None = key(None, "Peak learning rate. Default: depends on weights, optimiser and batch size.", gt=0)
    momentum: float = key(0.9, "SGD momentum.", ge=0, lt=1)
    weight_decay: float = key(1e-4, "Weight decay. For gamma and beta, see norm_weight_decay.", ge=0)
    norm_weight_decay: bool | None = key(
        None,
        "Weight decay on gamma and beta. Default: on for BatchNorm networks with residual connections.",
    )
    head_lr: float | None = key(
        None,
        "Learning rate of the head, as a multiple of lr. Default: 1 if lr is given, else depends on the weights.",
        gt=0,
    )
    head_scale: float | None = key(
        None,
        "Scale of a new head's initial weights, relative to the network's own initialisation. Default: 0.01 on "
        "pretrained "
        "weights.",
        gt=0,
    )
    layer_decay: float = key(
        1.0,
        "Layer-wise learning-rate decay, by timm's layer groups: each group's rate over the next one's.",
        gt=0,
        le=1,
    )
    freeze: Frozen | None = key(
        None,
        "backbone: train only the head. norm: freeze BatchNorm. Default: norm for few images, unless lr is given or "
        "BatchNorm is rewritten.",
    )
    only: Literal["norm"] | None = key(None, "norm: train only gamma, beta and the head.")

    schedule: Literal["cosine", "constant", "step"] = key("cosine", "Learning-rate schedule.")
    milestones: Shares = key(
        (0.5, 0.75), "When a step schedule divides the learning rate by 10, as fractions of training."
    )
    warmup_epochs: float | None = key(
        None,
        "Warm-up epochs of each cycle. Default: 0 if lr is given, else depends on the weights.",
        ge=0,
    )
    snapshots: int = key(1, "Snapshot ensemble: number of learning-rate cycles, each ending in a snapshot.", ge=1)

    clip_grad: float | None = key(None, "Gradient clipping: largest norm.", gt=0)
    ema: float | None = key(
        None,
        "Decay of an exponential moving average of the weights, which is validated, tested and stored.",
        gt=0,
        lt=1,
    )
    precision: Literal["float32", "bfloat16", "float16"] = key(
        "float32", "Mixed precision on accelerators; a CPU always uses float32."
    )
    seed: int = key(0, "Random seed, where none of the next three keys is given.", ge=0)
    init_seed: int | None = key(None, "Seed of the initial weights: of the head, or of an untrained network.", ge=0)
    order_seed: int | None = key(None, "Seed of the order of the images.", ge=0)
    augment_seed: int | None = key(None, "Seed of augmentation, mixing, attacks and dropout.", ge=0)
    rounding_seed: int | None = key(
        None,
        "Seed that shuffles the images within each batch, which changes only rounding errors, as nondeterministic "
        "kernels "
        "do. Not with mixing or ghost groups, which depend on the order.",
        ge=0,
    )
    one_bit: int | None = key(
        None, "Seed that picks one weight to raise to the next float32: the smallest possible change.", ge=0
    )

    validate_every: int = key(1, "Epochs between validations.", ge=1)
    sweep: Values | None = key(
        "0:0.2:21", "Values of alpha to try on the validation images after training; null: none."
    )
    sweep_metric: Metric | None = key(
        None, "Metric that chooses alpha and lambda. Default: accuracy; iou for segmentation."
    )
    tta: Views | None = key(None, "TTA views of each test image. See `surgeon ls views`.")

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_among_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """In Python true is 1, but `epochs: true` is a mistake."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation not in (bool, bool | None):
            raise ValueError(NO_TRUTH)
        return value

    @property
    def seed_of_weights(self) -> int:
        return self.seed if self.init_seed is None else self.init_seed

    @property
    def seed_of_order(self) -> int:
        return self.seed if self.order_seed is None else self.order_seed

    @property
    def seed_of_augmentation(self) -> int:
        return self.seed if self.augment_seed is None else self.augment_seed

    def contradictions(self) -> Iterator[tuple[set[str], str]]:
        """Which keys do not go together, and why; what is left open is in nobody's way."""
        if self.epochs is not None:
            if self.epochs % self.snapshots:
                yield {"epochs", "snapshots"}, f"epochs={self.epochs} is not a multiple of snapshots={self.snapshots}"
            if (self.warmup_epochs or 0) >= self.epochs / self.snapshots:
                keys = {"warmup_epochs", "epochs", "snapshots"}
                yield keys, f"warmup_epochs={self.warmup_epochs:g} leaves no epoch for training"
            if self.unmixed_epochs > self.epochs:
                sentence = f"unmixed_epochs={self.unmixed_epochs} is more than epochs={self.epochs}"
                yield {"unmixed_epochs", "epochs"}, sentence
        if self.only and self.freeze:
            yield {"only", "freeze"}, "only and freeze exclude each other"


class SettledRecipe(Recipe):
    """A recipe that leaves nothing open."""

    epochs: int
    batch_size: int
    lr: float
    norm_weight_decay: bool
    head_lr: float
    head_scale: float
    freeze: Frozen
    warmup_epochs: float


OPEN = tuple(name for name in SettledRecipe.__annotations__)
"""Keys that the network and the images decide if the recipe does not."""


def load_recipe(
    name: str | None, changes: Mapping[str, Any] | None = None, tell: Callable[[str], None] = warnings.warn
) -> Recipe:
    """A recipe with some keys changed; without a name, the defaults.

    Args:
        name: A file, or the name of a shipped recipe.
        changes: Keys and values. Fewer epochs make phases shorter that would take all of them.
        tell: Is told of each such phase.
    """
    content, changes = read_yaml(find_recipe(name)) if name is not None else {}, dict(changes or {})
    adapted, remarks = for_fewer_epochs({"epochs": Recipe.model_fields["epochs"].default, **content}, changes)
    for remark in remarks:
        tell(remark)
    return check_recipe(content, name or "the options", {**adapted, **changes})


def check_recipe(content: Mapping[str, Any], name: str, changes: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe with some keys changed, or everything that is wrong with it at once."""
    content, problems = spelled_out(content)
    if changes is not None:
        changed, wrong_changes = spelled_out(changes, content.get("loss", ()))
        content, problems = {**content, **changed}, [*problems, *wrong_changes]
    more, wrong = 0, set[str]()
    try:
        recipe = Recipe.model_validate(dict(content))
    except ValidationError as error:
        found = error.errors()
        told = [_problem(details) for details in found[:MOST_PROBLEMS]]
        more = len(found) - len(told)
        problems += told
        wrong = {str(details["loc"][0]) for details in found}
        recipe = Recipe.model_validate({key: value for key, value in content.items() if str(key) not in wrong})
    problems += [sentence for keys, sentence in recipe.contradictions() if not keys & wrong]
    if problems:
        sentence = "; ".join([*problems, f"and {more:,} more"] if more else problems)
        raise SurgeonError(
            f"{count(len(problems) + more, 'problem')} in {name}: {sentence}{'' if sentence.endswith('?') else '.'}",
            f"Keys: {listing(Recipe.model_fields, limit=8)}; see `surgeon recipe keys`.",
        )
    return recipe


def spelled_out(content: Mapping[str, Any], before: Any = ()) -> tuple[dict[str, Any], list[str]]:
    """The keys that are short for an option of a term of the loss, as that term; and what is wrong with them.

    Args:
        content: Keys and values, not yet checked.
        before: The loss that is changed, if `content` has none of its own.
    """
    from surgeon.losses.base import losses

    content, problems = dict(content), []
    for key, (term, option) in SHORT_FORMS.items():
        if key not in content:
            continue
        value, loss = content.pop(key), content.get("loss", before)
        try:
            if isinstance(value, bool):
                raise SurgeonError(NO_TRUTH)
            number = getattr(losses[term].configure({option: value}), option)
            specs = _with_option(loss, term, option, number, replaces="loss" not in content)
        except SurgeonError as error:
            problems.append(f"{key}={shortened(value)}: {error.message.rstrip('.')}")
            continue
        if specs != loss:
            content["loss"] = specs
    return content, problems


def _with_option(loss: Any, term: str, option: str, number: float, replaces: bool) -> Any:
    """The specs of a loss with an option of a term set, of which 0 asks for nothing; what is no loss stays as it is."""
    specs = [loss] if isinstance(loss, str) else loss
    if not isinstance(specs, list | tuple) or not all(isinstance(spec, str) for spec in specs):
        return loss
    for place, spec in enumerate(specs):
        try:
            name, options = parse_spec(spec)
            said = float(options.get(option, number))
        except (SurgeonError, ValueError):  # which is told of the loss itself
            continue
        if not _takes(name, term, option):
            continue
        if said != number and not replaces:
            raise SurgeonError(f"it contradicts the loss {spec!r}")
        chosen = ",".join(f"{key}={value}" for key, value in {**options, option: number}.items())
        return [*specs[:place], f"{name}:{chosen}", *specs[place + 1 :]]
    return [f"{term}:{option}={number}", *specs] if number else loss


def _takes(name: str, term: str, option: str) -> bool:
    """Whether a loss is the term, or stands for it and others, and has the option."""
    from surgeon.losses.base import losses

    if name not in losses or option not in losses[name].config.model_fields:
        return False
    stands_for = losses[name].stands_for(losses[name].config())
    return term in (name, *(parse_spec(spec)[0] for spec in stands_for))


def _problem(details: Any) -> str:
    where = str(details["loc"][0])
    if details["type"] == "extra_forbidden":
        hint = did_you_mean(where, [*Recipe.model_fields, *SHORT_FORMS])
        return f"there is no key {shortened(where)}" + (f" ({hint.rstrip('.?').lower()}?)" if hint else "")
    message = details["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    return f"{where}={shortened(details['input'])}: {message}"


def as_yaml(recipe: Recipe) -> str:
    """Every key of a recipe, spelled out."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
