"""Accumulated scores: references, order, processes, duplicates, and images that cannot be scored."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss, top_k_accuracy_score
from torch import Tensor

from surgeon.errors import SurgeonError
from surgeon.metrics import Metrics, Part, Scores, metrics, summarise
from tests.helpers import randn

IMAGES, CLASSES = 40, 8
LOGITS = randn(IMAGES, CLASSES) * 3
LABELS = torch.randint(CLASSES, (IMAGES,), generator=torch.Generator().manual_seed(1))


def scored(*batches: list[int], choosing: np.ndarray | None = None) -> Scores:
    scores = Scores(choosing)
    for batch in batches:
        scores.update(LOGITS[batch], LABELS[batch], batch)
    return scores


def of(logits: Tensor, labels: list[int]) -> Metrics:
    scores = Scores()
    scores.update(logits, torch.tensor(labels), range(len(labels)))
    return summarise(scores)


ALL = list(range(IMAGES))
WHOLE = summarise(scored(ALL))
batches = st.permutations(ALL).flatmap(
    lambda order: st.integers(1, IMAGES).map(lambda size: [order[i : i + size] for i in range(0, IMAGES, size)])
)


def test_figures_are_those_of_scikit_learn() -> None:
    labels, probabilities = LABELS.numpy(), LOGITS.double().softmax(1).numpy()
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    assert WHOLE.accuracy == accuracy_score(labels, probabilities.argmax(1))
    assert WHOLE.top5 == top_k_accuracy_score(labels, probabilities, k=5, labels=range(CLASSES))
    assert WHOLE.cross_entropy == pytest.approx(log_loss(labels, probabilities, labels=range(CLASSES)), abs=1e-12)


def test_what_is_kept_of_each_image() -> None:
    images = scored(ALL).images()
    assert images.indices.tolist() == ALL
    assert images.predicted.tolist() == LOGITS.argmax(1).tolist()
    assert images.confidence == pytest.approx(LOGITS.double().softmax(1).amax(1).numpy(), abs=1e-14)


def test_memory_does_not_depend_on_the_number_of_classes() -> None:
    sizes = []
    for classes in (10, 5000):
        scores = Scores()
        scores.update(torch.zeros(64, classes), torch.zeros(64, dtype=torch.long), range(64))
        sizes.append(len(pickle.dumps(scores)))
    assert abs(sizes[0] - sizes[1]) < 64  # only integers of another length


@settings(max_examples=30, deadline=None)
@given(batches)
def test_order_and_batches_do_not_matter(parts: list[list[int]]) -> None:
    assert summarise(scored(*parts)) == WHOLE


@settings(max_examples=30, deadline=None)
@given(batches, st.data())
def test_processes_do_not_matter(parts: list[list[int]], data: st.DataObject) -> None:
    owners = data.draw(st.lists(st.integers(0, 2), min_size=len(parts), max_size=len(parts)))
    first, second, third = (
        scored(*(part for part, owner in zip(parts, owners, strict=True) if owner == process)) for process in range(3)
    )
    assert summarise(first.merge(second).merge(third)) == WHOLE
    assert summarise(first.merge(second.merge(third))) == WHOLE
    assert summarise(third.merge(first).merge(second)) == WHOLE


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.integers(1, 9))
def test_images_that_fill_up_last_batches_count_once(processes: int, size: int) -> None:
    padded = (ALL + ALL)[: math.ceil(IMAGES / processes) * processes]
    shares = [padded[process::processes] for process in range(processes)]
    scores = [scored(*(share[i : i + size] for i in range(0, len(share), size))) for share in shares]
    assert summarise(reduce(Scores.merge, scores)) == WHOLE
    assert summarise(reduce(Scores.merge, reversed(scores))) == WHOLE


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, IMAGES - 1), max_size=20), max_size=5))
def test_repeated_images_of_one_process_count_once(extra: list[list[int]]) -> None:
    assert summarise(scored(*extra, ALL, *extra)) == WHOLE


def test_images_of_two_processes_are_never_counted_twice() -> None:
    first, second = scored([0, 1], [2, 3]), scored([1, 4], [5, 6])
    with pytest.raises(SurgeonError, match="scored by two processes"):
        first.merge(second)


def test_scores_can_be_sent_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(scored(ALL[:17])))
    assert summarise(sent.merge(scored(ALL[17:]))) == WHOLE


def test_parts_are_summarised_apart() -> None:
    choosing = np.arange(IMAGES) < 15
    whole = scored(ALL, choosing=choosing)
    shared = scored(ALL[::2], choosing=choosing).merge(scored(ALL[1::2], choosing=choosing))
    for part, images in ((Part.ALL, 40), (Part.CHOOSING, 15), (Part.CONFIRMING, 25)):
        assert summarise(whole, part).images == images
        assert summarise(shared, part) == summarise(whole, part)
    assert summarise(whole, Part.CHOOSING) == summarise(scored(ALL[:15]))
    assert summarise(whole, Part.CONFIRMING).cross_entropy == summarise(scored(ALL[15:])).cross_entropy


def test_nan_logits_are_counted_and_lose() -> None:
    logits = torch.tensor([[2.0, 0.0], [math.nan, 0.0], [0.0, 2.0], [math.inf, 0.0], [-math.inf, -math.inf]])
    record = of(logits, [0, 0, 0, 0, 0])
    assert (record.images, record.nan_images, record.accuracy) == (5, 3, 0.2)
    assert record.cross_entropy == record.scaled_cross_entropy == math.inf
    assert record.temperature is None
    assert all(not math.isnan(metrics[name].merit(record)) for name in metrics)
    assert metrics["cross-entropy"].merit(record) < metrics["cross-entropy"].merit(WHOLE)
    assert Metrics.model_validate(json.loads(record.model_dump_json())) == record


def test_one_image() -> None:
    record = of(torch.tensor([[0.0, math.log(3)]]), [1])
    assert (record.images, record.accuracy, record.accuracy_high) == (1, 1, 1)
    assert record.cross_entropy == pytest.approx(math.log(4 / 3))
    assert record.ece == record.rms == record.mad == pytest.approx(0.25)


def test_one_class() -> None:
    record = of(torch.randn(3, 1), [0, 0, 0])
    assert (record.accuracy, record.cross_entropy, record.top5, record.soft_f1) == (1, 0, None, 1)


@pytest.mark.parametrize(("classes", "known"), [(5, False), (6, True)])
def test_top5_needs_six_classes(classes: int, known: bool) -> None:
    record = of(torch.arange(classes).float()[None], [0])
    assert record.top5 == (0.0 if known else None)
    assert metrics["top5"].merit(record) == (0.0 if known else -math.inf)


def test_ties_go_to_the_lower_class() -> None:
    assert of(torch.zeros(2, 6), [0, 5]).accuracy == 0.5
    assert of(torch.zeros(6, 6), [0, 1, 2, 3, 4, 5]).top5 == pytest.approx(5 / 6)


def test_half_precision_and_an_empty_batch() -> None:
    scores = scored([])
    scores.update(LOGITS.bfloat16(), LABELS, torch.arange(IMAGES))
    assert summarise(scores).cross_entropy == pytest.approx(WHOLE.cross_entropy, rel=1e-2)


def test_nothing_to_score() -> None:
    for scores in (Scores(), scored([])):
        with pytest.raises(SurgeonError, match="no images"):
            summarise(scores)


@pytest.mark.parametrize(
    ("logits", "labels", "indices", "message"),
    [
        (torch.zeros(2, 3), [0, 3], [0, 1], "Labels from 0 to 3"),
        (torch.zeros(2, 3), [-1, 0], [0, 1], "Labels from -1 to 0"),
        (torch.zeros(2, 3), [0], [0, 1], "do not fit 1 labels"),
        (torch.zeros(2, 3, 4), [0, 1], [0, 1], "shape"),
        (torch.zeros(2, 3), [0, 1], [-1, 1], "outside of the data"),
    ],
)
def test_wrong_batches_are_refused(logits: Tensor, labels: list[int], indices: list[int], message: str) -> None:
    with pytest.raises(SurgeonError, match=message):
        Scores().update(logits, torch.tensor(labels), indices)


def test_different_scores_are_not_merged() -> None:
    other = Scores()
    other.update(torch.zeros(1, 3), torch.tensor([0]), [0])
    with pytest.raises(SurgeonError, match="cannot be merged"):
        scored(ALL).merge(other)
    with pytest.raises(SurgeonError, match="cannot be merged"):
        scored(ALL).merge(scored(choosing=np.ones(IMAGES, dtype=bool)))


def test_the_record_is_frozen_and_answers_by_name() -> None:
    assert {name: WHOLE.value(name) for name in metrics}["soft-f1"] == WHOLE.soft_f1
    with pytest.raises(SurgeonError, match=r"no metric 'acuracy'. Did you mean accuracy"):
        WHOLE.value("acuracy")
    with pytest.raises(ValueError, match="frozen"):
        WHOLE.images = 3  # type: ignore[misc]


def test_metrics_are_listed_without_torch() -> None:
    code = (
        "import sys; from surgeon.metrics import metrics; "
        "print(*[n for n in metrics if metrics[n].summary]); print('torch' in sys.modules, 'scipy' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = "accuracy aurra cross-entropy ece mad rms scaled-cross-entropy soft-f1 top5"
    assert answer.splitlines() == [names, "False False"]
