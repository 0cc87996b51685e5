"""The engine: variants of networks predict the same samples, which gives scores per sample for each of them.

A variant is a network at a setting, with its own views, under a condition. Samples are decoded once for all
variants, each condition is applied once, and variants that differ only in the value of a swept number share
what is computed before it acts. The batches are spread over the processes that were launched together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from surgeon.core.errors import ExitCode, SurgeonError, count
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress, say_nothing
from surgeon.data.loaders import Batch, Batches
from surgeon.measuring.batches import as_batches, as_samples, checked_network, with_problem
from surgeon.measuring.inference import InferenceSettings
from surgeon.measuring.keeping import K, Scored
from surgeon.measuring.spreading import spread
from surgeon.measuring.variants import Average, Variant, average
from surgeon.metrics import Metrics, summarise
from surgeon.metrics.own import OwnScores, ScoreFunction


def evaluate(model: nn.Module, batches: Iterable[Any], *, score: ScoreFunction | None = None) -> Metrics:
    """All metrics of a network that classifies or segments, on any iterable of (images, labels); or of your own score.

    It is evaluated where it is and left as it was.

    Args:
        model: A network that answers with one row of logits per image: as a tensor, as the `.logits` of a Hugging Face
            output, or in a dictionary or tuple. If labels are masks, with scores of every class for each pixel: a
            tensor (N, classes, height, width), or the `out` of torchvision's dictionaries. With `score`, any network.
        batches: Such as a DataLoader: images as one tensor, preprocessed as the network expects them, and one class
            number, one-hot row or mask (of whole numbers; 255 and negative ones are void) per image; or dictionaries
            with "image" (or "pixel_values", "input") and "label".
            With `score`, images may also be a list, and targets anything.
        score: A function of the network's answer and the targets of a batch, both on the CPU, that returns one number
            per sample, the higher the better. The result then has its mean and 95% interval: `score`, `score_low` and
            `score_high`, and no other metric.
    """
    settings = InferenceSettings.of(checked_network(model))
    if score is None:
        given, problem = with_problem(as_batches(batches))
        variant = Variant(model, replace(settings, problem=problem))
        return summarise(score_batches({"": variant}, given, problem.keep).kept[""])
    variant = Variant(model, replace(settings, as_answered=True))
    return summarise(score_batches({"": variant}, as_samples(batches), lambda _: OwnScores(score)).kept[""])


def measure(
    variants: Mapping[str, Variant],
    samples: Batches,
    keep: Callable[[str], K],
    *,
    averages: Mapping[str, Average] | None = None,
    processes: Processes | None = None,
    progress: Progress = say_nothing,
    doing: str = "predicting",
) -> Scored[K]:
    """Let all variants predict all samples.

    Args:
        variants: What predicts, by name.
        samples: Decoded once, for every kind of preprocessing that the variants need.
        keep: Makes what is kept of the predictions of a variant, given its name, for most the scores of its problem.
        averages: Variants that average the predictions of others, by name.
        processes: Those that share the work; all of them learn the whole result.
        progress: Told how many images are done.
        doing: What it is told that is being done.
    """
    start = time.perf_counter()
    processes = processes or Processes()
    images = len(samples.image_set)
    with spread(samples, processes) as share:
        whole = share.score(
            len(samples),
            partial(score_batches, variants, keep=keep, averages=averages),
            lambda _, done: progress(doing, min(done, images), images),
        )
    if not any(map(len, whole.kept.values())):
        raise SurgeonError(
            f"None of the {count(images, 'image')} of {samples.image_set.name!r} can be read.",
            exit_code=ExitCode.FAILED,
        )
    return replace(whole, elapsed=time.perf_counter() - start)


def score_batches(
    variants: Mapping[str, Variant],
    batches: Iterable[Batch],
    keep: Callable[[str], K],
    averages: Mapping[str, Average] | None = None,
    watch: Callable[[int], None] = lambda images: None,  # noqa: ARG005
) -> Scored[K]:
    """Let all variants predict some batches in this process; `watch` is told of the images of each batch."""
    averages = averages or {}
    scored = Scored({name: keep(name) for name in (*variants, *averages)}, [], dict.fromkeys(variants, 0.0))
    groups = _grouped(variants)
    clock = Clock()
    with _ready(variants.values()):
        for batch in clock.waiting_for(batches):
            if len(batch.indices):  # not all of them unreadable
                _score_batch(groups, averages, batch, scored, clock)
            watch(len(batch.indices))
    return replace(scored, waiting=clock.waiting, scoring=clock.scoring)


@dataclass
class Clock:
    """Seconds that measuring takes besides predicting."""

    waiting: float = 0.0
    scoring: float = 0.0

    def waiting_for(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches."""
        start = time.perf_counter()
        for batch in batches:
            self.waiting += time.perf_counter() - start
            yield batch
            start = time.perf_counter()

    @contextmanager
    def while_scoring(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.scoring += time.perf_counter() - start


@contextmanager
def _ready(variants: Iterable[Variant]) -> Iterator[None]:
    """All networks in evaluation mode and in their precision."""
    networks = {(id(variant.model), variant.inference): variant for variant in variants}
    with ExitStack() as stack:
        for variant in networks.values():
            stack.enter_context(variant.inference.applied_to(variant.model))
        yield


def _score_batch(
    groups: Iterable[Iterable[Mapping[str, Variant]]],
    averages: Mapping[str, Average],
    batch: Batch,
    scored: Scored[K],
    clock: Clock,
) -> None:
    averaged = {name for one in averages.values() for name in one.of}
    predicted: dict[str, Tensor] = {}
    for with_same_inputs in groups:
        seen: Batch | None = None  # of one condition at a time: a batch under many of them would fill the memory
        for together in with_same_inputs:
            start = time.perf_counter()
            variants = list(together.values())
            if seen is None:
                seen = _seen(variants[0], batch)
            for name, logits in zip(together, _predict(variants, seen), strict=True):
                with clock.while_scoring():
                    scored.kept[name].update(logits, seen.labels, seen.indices)
                if name in averaged:
                    predicted[name] = logits
            seconds = (time.perf_counter() - start) / len(together)
            for name in together:
                scored.seconds[name] += seconds
    for name, one in averages.items():
        logits = average([predicted[member] for member in one.of], one.merge)
        scored.kept[name].update(logits, batch.labels, batch.indices)


def _grouped(variants: Mapping[str, Variant]) -> list[list[dict[str, Variant]]]:
    """Variants that see the same side by side, and among them those that are predicted together as one group."""
    groups: dict[object, dict[object, dict[str, Variant]]] = {}
    for name, variant in variants.items():
        groups.setdefault(variant.inputs, {}).setdefault(variant.shared, {})[name] = variant
    return [list(with_same_inputs.values()) for with_same_inputs in groups.values()]


def _seen(variant: Variant, batch: Batch) -> Batch:
    prepared = batch.as_for(variant.preprocessing)
    return prepared if variant.condition is None else variant.condition(prepared)


def _predict(variants: Sequence[Variant], batch: Batch) -> list[Any]:
    """The logits of variants that are predicted together, or whatever they answer."""
    first = variants[0]
    if first.axis is not None:
        values = [variant.value for variant in variants]
        return first.inference.answers(partial(first.axis.logits, values=values), batch.images)
    (logits,) = first.inference.answers(lambda images: [first.model(images)], batch.images)
    return [logits] * len(variants)
