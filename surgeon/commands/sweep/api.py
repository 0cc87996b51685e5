"""`surgeon.sweep`: the same sweep from Python, on a network and a loader of one's own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from torch import nn

from surgeon.commands.sweep.investigation import Investigation, Question
from surgeon.commands.sweep.settings import ALPHA
from surgeon.core.errors import SurgeonError, listing
from surgeon.data.loaders import Batch
from surgeon.measuring.axes import AlphaAxis, has_alpha, kept_if_it_fails
from surgeon.measuring.batches import as_batches, as_samples, checked_loader, checked_network, with_problem
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.own_score import OwnRunner
from surgeon.measuring.runner import Runner
from surgeon.measuring.values import checked, parse_values
from surgeon.metrics import metrics
from surgeon.metrics.own import OWN_METRIC, ScoreFunction
from surgeon.models.facts import DataKind, DataSet
from surgeon.models.origin import note_on
from surgeon.problems import CLASSIFICATION
from surgeon.results import Learning, Method, Sweep
from surgeon.results.steps import swept
from surgeon.surgery.apply import convert, current_plan, unwrapped
from surgeon.surgery.branches import settings_of

E = TypeVar("E", bound=StrEnum)


def sweep(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    alphas: Iterable[float] | str = "0:0.2:21",
    metric: str | None = None,
    score: ScoreFunction | None = None,
    method: str = "grid",
    learn: Sequence[str] = (),
    confirm_on: Iterable[Any] | None = None,
    force: bool = False,
) -> Sweep:
    """Find the best alpha for a network on any loader of (images, labels), as `surgeon.evaluate` takes them.

    With `score`, that is any network with BatchNorm, whatever its task: a function of its answer and the targets of a
    batch says how good each sample is, and gains have paired intervals as for the metrics of a classifier.

    A network without example-weighted layers is left as it is, and a converted copy is swept; one that
    has them is left at the best setting if its gain is beyond noise (or `force` is set), and otherwise at the
    original one: `result.kept` and `result.decision` say which and why.

    `method="race"` saves most of the work, but the loader has to give its images in random order.
    `learn=["per-layer"]` also fits one alpha per layer (or `"per-channel"`), which needs images to confirm
    on; the loader then is gone through several times, and has to give the same batches each time.

    Args:
        model: A network as `surgeon.evaluate` takes it.
        loader: The images to choose on.
        alphas: Numbers, or `first:last:how many`.
        metric: What the best is chosen by; by default the accuracy, and of masks the mean IoU.
        score: A function of the network's answer and the targets of a batch, both on the CPU, that returns one number
            per sample, the higher the better (of an error, its negative). It takes the place of `metric`.
        method: `"grid"` or `"race"`.
        learn: `"per-layer"`, `"per-channel"` or both.
        confirm_on: Other images, on which the gain is measured.
        force: Keep the best setting even if its gain may be noise.

    Examples:
        >>> result = surgeon.sweep(model, validation_loader, alphas=[0, 0.02, 0.05], confirm_on=test_loader)
        >>> result.chosen, result.summary
        >>> surgeon.sweep(regressor, loader, score=lambda output, target: -(output[:, 0] - target).abs())
    """
    kinds = tuple(_one_of(Learning, kind, "learn") for kind in learn)
    if kinds and confirm_on is None:
        raise SurgeonError("What is learned has to be confirmed on other images.", "Pass confirm_on=another_loader.")
    if score is not None and metric is not None:
        raise SurgeonError(f"A sweep is by metric={metric!r} or by score=, not by both.", "Leave metric out.")
    if score is not None and kinds:
        raise SurgeonError("What is learned minimises the cross-entropy, and with score= none is known.")
    model = unwrapped(checked_network(model))
    if not has_alpha(model):
        model = convert(model, ALPHA)
    axis = AlphaAxis(model)
    read = as_batches if score is None else as_samples
    batches = _Loader(loader, read)
    problem = CLASSIFICATION if score is not None else with_problem(read(batches.loader))[1]
    inference = replace(InferenceSettings.of(model), as_answered=score is not None, problem=problem)
    runner = Runner(model, axis, inference) if score is None else OwnRunner(model, axis, inference, score=score)
    values = parse_values(alphas, "alphas") if isinstance(alphas, str) else checked(alphas, "alphas")
    chosen_by = metrics[metric or problem.default_metric] if score is None else OWN_METRIC
    if score is None and not chosen_by.applies_to_masks(problem is not CLASSIFICATION):
        raise SurgeonError(f"metric={metric!r} has no value for {problem.name}.", "Choose another one.")
    question = Question(values, chosen_by, _one_of(Method, method, "method"), kinds, force)
    confirming = _Loader(confirm_on, read) if confirm_on is not None else None
    investigation = Investigation(runner, question, batches, confirming)
    before = settings_of(model)
    with kept_if_it_fails(axis):
        found = investigation.run(
            model=type(model).__name__,
            rewrites=current_plan(model).summary(),
            data=type(loader).__name__,
            split="all",
            device=str(runner.inference.device),
        )
    data = DataSet(name=found.data, kind=DataKind.LOADER)
    note_on(model, swept(found, changed=settings_of(model) != before, data=data))
    return found


def _one_of(choices: type[E], word: str, option: str) -> E:
    try:
        return choices(word)
    except ValueError:
        raise SurgeonError(f"{option} cannot be {word!r}.", f"Choose {listing(choices, 'or')}.") from None


class _Loader:
    """Somebody's batches, numbered."""

    repeatable = False  # it may shuffle

    def __init__(
        self, loader: Iterable[Any], read: Callable[[Iterable[Any]], Iterator[Batch]] = as_batches, first: int = 0
    ) -> None:
        if isinstance(loader, Iterator):
            raise SurgeonError(
                f"A {type(loader).__name__} can be iterated only once, and a sweep may need several passes.",
                "Pass a DataLoader or a list.",
            )
        self.loader = checked_loader(loader)
        self.bad: list[str] = []
        self._read, self._first = read, first

    @cached_property
    def _batches(self) -> int:
        try:
            return len(self.loader)  # type: ignore[arg-type]
        except TypeError:  # a stream tells how long it is only by being gone through
            return sum(1 for _ in self.loader)

    def __len__(self) -> int:
        return self._batches - self._first

    @cached_property
    def batch_size(self) -> int:
        known = getattr(self.loader, "batch_size", None)
        if isinstance(known, int) and known > 0:
            return known
        first = next(self._read(self.loader), None)
        return 1 if first is None else len(first.indices)

    def only(self, numbers: Sequence[int]) -> _Loader:
        """From some batch on: without a journal nothing else is asked for."""
        return _Loader(self.loader, self._read, numbers[0] if numbers else len(self))

    def __iter__(self) -> Generator[Batch]:
        yield from self._read(islice(self.loader, self._first, None))
