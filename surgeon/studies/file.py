"""Reading a study: a strict YAML file in which every key is known and checked, and every mistake is told at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError, ValidationInfo
from pydantic import field_validator as validator

from surgeon.core.bounded_yaml import parse_yaml
from surgeon.core.errors import SurgeonError, count, did_you_mean, listing
from surgeon.core.reading import read_bounded, shortened
from surgeon.studies.definition import SEED, SOURCES, TEST, Cell, Comparison, Definition, Evaluation, Variant, applies
from surgeon.training.recipe import check_recipe
from surgeon.training.recipe_files import find_recipe, read_yaml

MOST_BYTES, MOST_VALUES, MOST_PROBLEMS, MOST_SEEDS = 1 << 18, 10_000, 20, 10_000
DEFAULT_SEEDS, DEFAULT_METRICS = 3, ("accuracy", "cross-entropy")
AS_TESTED = Evaluation.model_validate({})
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
OF_NETWORK = ("model", "weights", "pretrained", "data", "unlabelled")
"""Keys of a variant besides `recipe`, `varies` and the keys of recipes."""

Seeds = Annotated[StrictInt, Field(ge=1, le=MOST_SEEDS)] | tuple[Annotated[StrictInt, Field(ge=0, lt=2**63)], ...]


def _tested() -> dict[str, Evaluation | None]:
    return {TEST: AS_TESTED}


class StudyFile(BaseModel):
    """The keys of a study file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    description: str = Field("", description="The question, in a sentence.")
    model: str | None = Field(None, description="The network that is trained, as for `finetune`.")
    weights: str | None = Field(None, description="A file of local weights.")
    pretrained: StrictBool = Field(True, description="Start from pretrained weights, not from random ones.")
    data: str | None = Field(None, description="The images, as for `finetune --data`.")
    unlabelled: str | None = Field(
        None, description="Images without labels, as for `finetune --unlabelled`; `same`: those of `data`."
    )
    recipe: str | dict[str, Any] | None = Field(
        None, description="A recipe (name or file), or keys of one; its key `recipe` names one to start from."
    )
    variants: dict[str, dict[str, Any] | None] = Field(
        default_factory=dict,
        description="By name, what differs: `model`, `weights`, `pretrained`, `data`, `unlabelled`, `recipe`, any key "
        "of a recipe. `varies: init_seed` varies only that seed between runs, not all.",
    )
    seeds: Seeds = Field(DEFAULT_SEEDS, description="Number of seeds (0, 1, 2, …), or a list.")
    evaluations: dict[str, Evaluation | None] = Field(
        default_factory=_tested, description="By name; see below. Default: the test of each run."
    )
    metrics: tuple[str, ...] = Field(DEFAULT_METRICS, description="What is compared; see `surgeon ls metrics`.")
    comparisons: dict[str, str | tuple[str, ...]] | None = Field(
        None,
        description="`variant: baseline`, in every evaluation, or `variant/evaluation: baseline/evaluation`. "
        "Default: all against the first variant.",
    )
    variability: StrictBool | str | None = Field(
        None,
        description="Show how much the runs of each variant vary, in comparison with this `variant/evaluation`, or "
        "false. Default: if a variant has `varies`, in comparison with the first variant in the first evaluation.",
    )
    skip_bad: StrictBool = Field(False, description="Leave out images that cannot be read.")
    cpus: float = Field(1, gt=0, description="CPUs for each run, on Ray.")
    gpus: float = Field(0, ge=0, description="GPUs for each run, on Ray.")
    memory: float | None = Field(
        None, gt=0, description="Of each run, in GiB. Default: measured; on Ray, not reserved."
    )

    @validator("evaluations", mode="before")
    @classmethod
    def _texts_as_lists(cls, value: Any) -> Any:
        """`under: fog` is `under: [fog]`."""
        if not isinstance(value, dict):
            return value
        return {name: _with_lists(keys) if isinstance(keys, dict) else keys for name, keys in value.items()}

    @validator("*", mode="before")
    @classmethod
    def _no_truth_among_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """In Python true is 1, but `seeds: true` is a mistake."""
        allowed = (bool, StrictBool | str | None)
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation not in allowed:
            raise ValueError("true and false are not values of this key")
        return value


def _with_lists(keys: dict[Any, Any]) -> dict[Any, Any]:
    several = ("where", "under", "variants")
    return {key: [value] if key in several and isinstance(value, str) else value for key, value in keys.items()}


def load_study(path: Path, changes: Mapping[str, Any] | None = None) -> Definition:
    """A study from its file.

    Args:
        path: The file.
        changes: Keys of the file that have another value this time.
    """
    try:
        content = parse_yaml(read_bounded(path, "study file", MOST_BYTES).decode("utf-8"), MOST_VALUES)
    except (ValueError, UnicodeDecodeError) as error:
        raise SurgeonError(f"The study {str(path)!r} is not readable YAML: {str(error).rstrip('.')}.") from None
    if not isinstance(content, dict):
        raise SurgeonError(f"The study {str(path)!r} does not consist of `key: value` lines.")
    return check_study({**content, **(changes or {})}, path)


def check_study(content: Mapping[str, Any], path: Path) -> Definition:
    """A study, or everything that is wrong with it at once."""
    given, problems, wrong = _parsed({str(key): value for key, value in content.items()})  # YAML takes `on` for true
    variants = list(_variants(given, path.parent, problems, wrong))
    evaluations = {name: one or AS_TESTED for name, one in given.evaluations.items()}
    problems += _in_names(given, wrong)
    problems += _in_evaluations(evaluations, variants, given)
    problems += [text for name in given.metrics if (text := _refused(_check_metric, name))]
    # What has mistakes of its own is missing by now, but it may be compared.
    written = names if isinstance(names := content.get("evaluations"), dict) else evaluations
    named = [Cell(variant, str(evaluation)) for evaluation in written for variant in given.variants]
    cells = named if problems else _cells(variants, evaluations)
    comparisons: tuple[Comparison, ...] = ()
    reference: Cell | None = None
    if "variants" not in wrong:
        comparisons = tuple(dict.fromkeys(_comparisons(given, cells, problems)))
    if not problems:
        varied = any(one.varies != SEED for one in variants)
        reference = _reference(given.variability, cells, evaluations, varied, problems)
    if problems:
        shown = [text.strip().rstrip(".?") for text in problems[:MOST_PROBLEMS]]
        more = len(problems) - len(shown)
        sentence = "; ".join([*shown, f"and {more:,} more"] if more else shown)
        raise SurgeonError(
            f"{count(len(problems), 'problem')} in {str(path)!r}: {sentence}.",
            f"Keys: {listing(StudyFile.model_fields, limit=20)}.",
        )
    return Definition(
        name=path.stem,
        variants=tuple(variants),
        seeds=tuple(range(given.seeds)) if isinstance(given.seeds, int) else given.seeds,
        evaluations=evaluations,
        comparisons=comparisons,
        variability=reference,
        **given.model_dump(include={"description", "metrics", "skip_bad", "cpus", "gpus", "memory"}),
    )


def _parsed(content: Mapping[str, Any]) -> tuple[StudyFile, list[str], set[str]]:
    """What can be understood, what is wrong with the rest, and the keys which that concerns."""
    try:
        return StudyFile.model_validate(content), [], set()
    except ValidationError as error:
        found = error.errors()
        wrong = {str(details["loc"][0]) for details in found}
        rest = StudyFile.model_validate({key: value for key, value in content.items() if key not in wrong})
        # Of a key that may be of several types, each type has its own complaint: one is enough.
        by_place = {_place(details): details for details in reversed(found)}
        return rest, [_problem(details) for details in reversed(by_place.values())], wrong


def _place(details: Any) -> tuple[str, ...]:
    """Where a mistake is, without the types that pydantic adds to the place."""
    types = re.compile(r"[\[(]|^(int|constrained-int|str|dict|Evaluation)$")
    return tuple(str(part) for part in details["loc"] if not types.search(str(part)))


def _problem(details: Any) -> str:
    place = _place(details)
    where = ".".join(place)
    if details["type"] == "extra_forbidden":
        known = Evaluation.model_fields if place[0] == "evaluations" else StudyFile.model_fields
        hint = did_you_mean(place[-1], [field.alias or name for name, field in known.items()])
        return f"there is no key {shortened(where)}" + (f" ({hint.rstrip('.?').lower()}?)" if hint else "")
    message = details["msg"].removeprefix("Value error, ").replace("a valid tuple", "a list")
    return f"{where}={shortened(details['input'])}: {message}"


def _variants(given: StudyFile, folder: Path, problems: list[str], wrong: set[str]) -> Iterator[Variant]:
    base = {"recipe": given.recipe} if isinstance(given.recipe, str) else dict(given.recipe or {})
    outside = {name: getattr(given, name) for name in OF_NETWORK}
    mistakes: dict[str, list[str]] = {}
    for name, own in given.variants.items():
        keys = dict(own or {})
        network = {**outside, **{key: keys.pop(key) for key in OF_NETWORK if key in keys}}
        varies = keys.pop("varies", SEED)
        # A variant that names a recipe starts from that alone.
        content = keys if "recipe" in keys else {**base, **keys}
        found = [*_in_network(network, wrong), *_in_sources(varies, keys)]
        recipe = None
        try:
            recipe = _recipe(content, folder)
        except SurgeonError as error:
            listed = error.message.removeprefix("The options").partition(" in it: ")[2] or error.message
            found += listed.rstrip(".").split("; ")
        if found or recipe is None or wrong & {key for key in OF_NETWORK if network[key] is None}:
            for text in found:
                mistakes.setdefault(text.rstrip("."), []).append(repr(name))
            continue
        stored = recipe.model_dump(mode="json", exclude_defaults=True)
        yield Variant(
            name=name, recipe=stored, varies=varies, epochs=recipe.epochs, snapshots=recipe.snapshots, **network
        )
    for text, names in mistakes.items():  # one that all variants have from the study is told once
        problems.append(f"{'variant' if len(names) == 1 else 'variants'} {listing(names, limit=3)}: {text}")


def _recipe(content: dict[str, Any], folder: Path) -> Any:
    name = content.pop("recipe", None)
    if "seed" in content:
        raise SurgeonError("seed: the study gives each run its own, with `seeds`.")
    if name is None:
        return check_recipe(content, "it")
    if not isinstance(name, str):
        raise SurgeonError(f"recipe={shortened(name)}: it should be a name or a file.")
    beside = folder / name  # a file of the study's own folder comes before one of the working folder
    path = beside if beside.suffix in (".yaml", ".yml") and beside.is_file() else find_recipe(name)
    shared = {key: value for key, value in read_yaml(path).items() if key != "seed"}
    return check_recipe({**shared, **content}, "it")


def _in_network(network: Mapping[str, Any], wrong: set[str]) -> Iterator[str]:
    from surgeon.models.names import check_model_name

    for key in ("model", "data"):
        if network[key] is None and key not in wrong:
            yield f"there is no `{key}`, neither here nor in the study"
        elif network[key] is not None and not isinstance(network[key], str):
            yield f"{key}={shortened(network[key])}: it should be a string"
    if network["unlabelled"] is not None and not isinstance(network["unlabelled"], str):
        yield f"unlabelled={shortened(network['unlabelled'])}: it should be a string"
    if isinstance(network["model"], str) and (text := _refused(check_model_name, network["model"])):
        yield text
    if (weights := network["weights"]) is not None and not (isinstance(weights, str) and Path(weights).is_file()):
        yield f"there is no weights file {shortened(weights)}"
    if not isinstance(network["pretrained"], bool):
        yield f"pretrained={shortened(network['pretrained'])}: it should be true or false"


def _in_sources(varies: Any, keys: Mapping[str, Any]) -> Iterator[str]:
    known = (SEED, *SOURCES)
    if varies not in known:
        yield f"varies={shortened(varies)}: it should be one of {listing(known)}"
    elif varies in keys:
        yield f"{varies}: it varies, so the study gives each run its own"


def _in_names(given: StudyFile, wrong: set[str]) -> Iterator[str]:
    if not given.variants and "variants" not in wrong:
        yield "there are no variants"
    if not given.evaluations:
        yield "there are no evaluations"
    for kind, names in (("variant", given.variants), ("evaluation", given.evaluations)):
        for name in names:
            if not NAME.fullmatch(name):
                yield f"a {kind} cannot be called {shortened(name)}: it names files, so use letters, digits and ._+-"
    if not given.metrics:
        yield "metrics: name at least one"
    if not isinstance(given.seeds, int) and (not given.seeds or len(set(given.seeds)) < len(given.seeds)):
        yield f"seeds={list(given.seeds)}: name at least one, and each once"


def _in_evaluations(evaluations: Mapping[str, Evaluation], variants: list[Variant], given: StudyFile) -> Iterator[str]:
    from surgeon.conditions.base import check_conditions
    from surgeon.data.tables import split_condition
    from surgeon.views import check_views

    for name, one in evaluations.items():
        checks: list[str | None] = [_refused(check_conditions, one.under)]
        checks += [_refused(check_views, one.tta)] if one.tta is not None else []
        beside = one.under or one.features or one.tta is not None or one.branch_share is not None
        if one.recalibrate is not None and beside:
            checks.append("recalibrate does not go with under, tta, lambda and features")
        checks += [f"there is no variant {other!r}" for other in one.variants if other not in given.variants]
        if one.features and (one.averages or one.under):
            checks.append("features are those of one network, in one view of plain images")
        checks += [_refused(split_condition, condition) for condition in one.where]
        if variants and len(variants) == len(given.variants) and not any(applies(one, variant) for variant in variants):
            checks.append("no variant has snapshots")
        yield from (f"evaluation {name!r}: {text}" for text in checks if text)


def _comparisons(given: StudyFile, cells: list[Cell], problems: list[str]) -> Iterator[Comparison]:
    asked = given.comparisons
    if asked is None:
        first, *others = list(given.variants) or [""]
        asked = dict.fromkeys(others, first)
    for candidate, baselines in asked.items():
        for baseline in [baselines] if isinstance(baselines, str) else baselines:
            found = list(_pairs(candidate, baseline, cells))
            if not found:
                problems.append(f"comparisons: no evaluation compares {candidate!r} with {baseline!r}")
            yield from found


def _cells(variants: list[Variant], evaluations: Mapping[str, Evaluation]) -> list[Cell]:
    return [Cell(v.name, name) for name, one in evaluations.items() for v in variants if applies(one, v)]


def _reference(
    asked: bool | str | None,
    cells: list[Cell],
    evaluations: Mapping[str, Evaluation],
    varied: bool,
    problems: list[str],
) -> Cell | None:
    """Whose runs the variability of the others is compared with, if it is asked for."""
    if asked is False or (asked is None and not varied):
        return None
    fitting = [cell for cell in cells if evaluations[cell.evaluation].compares_runs]
    if isinstance(asked, str):
        fitting = [cell for cell in fitting if asked in (str(cell), cell.variant)]
    if not fitting and asked is not None:
        what = f"there is no {asked!r}" if isinstance(asked, str) else "there is nothing"
        problems.append(f"variability: {what} that leaves the logits of each run")
    return fitting[0] if fitting else None


def _pairs(candidate: str, baseline: str, cells: list[Cell]) -> Iterator[Comparison]:
    """Without an evaluation, in every one that both take part in."""
    mine = [cell for cell in cells if candidate in (str(cell), cell.variant)]
    theirs = [cell for cell in cells if baseline in (str(cell), cell.variant)]
    named = "/" in candidate, "/" in baseline
    for one in mine:
        for other in theirs:
            if one != other and (any(named) or one.evaluation == other.evaluation):
                yield Comparison(one, other)


def _check_metric(name: str) -> None:
    from surgeon.metrics import metrics

    metrics[name]


def _refused(check: Callable[[Any], object], value: Any) -> str | None:
    try:
        check(value)
    except SurgeonError as error:
        return str(error)
    return None
