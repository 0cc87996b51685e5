"""Accumulated scores: references, order, processes, duplicates, and images that cannot be scored."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss, top_k_accuracy_score
from torch import Tensor

from surgeon.core.errors import SurgeonError
from surgeon.metrics import GROUPS, Metrics, Scores, accumulator, group_of, metrics, packing, summarise
from surgeon.metrics.temperature_fit import TemperatureSums
from tests.helpers import randn
from tests.reference.metrics import METRICS

IMAGES, CLASSES = 40, 8
LOGITS = randn(IMAGES, CLASSES) * 3
LABELS = torch.randint(CLASSES, (IMAGES,), generator=torch.Generator().manual_seed(1))


def scored(*batches: list[int]) -> Scores:
    scores = Scores()
    for batch in batches:
        scores.update(LOGITS[batch], LABELS[batch], batch)
    return scores


def scores_of(logits: Tensor, labels: list[int]) -> Scores:
    scores = Scores()
    scores.update(logits, torch.tensor(labels), range(len(labels)))
    return scores


def of(logits: Tensor, labels: list[int]) -> Metrics:
    return summarise(scores_of(logits, labels))


ALL = list(range(IMAGES))
WHOLE = summarise(scored(ALL))
WHOLE_BYTES = scored(ALL).to_bytes()
batches = st.permutations(ALL).flatmap(
    lambda order: st.integers(1, IMAGES).map(lambda size: [order[i : i + size] for i in range(0, IMAGES, size)])
)


def test_figures_are_those_of_scikit_learn() -> None:
    labels, probabilities = LABELS.numpy(), LOGITS.double().softmax(1).numpy()
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    assert WHOLE.accuracy == accuracy_score(labels, probabilities.argmax(1))
    assert WHOLE.top5 == top_k_accuracy_score(labels, probabilities, k=5, labels=range(CLASSES))
    assert WHOLE.cross_entropy == pytest.approx(log_loss(labels, probabilities, labels=range(CLASSES)), abs=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_its_reference(name: str) -> None:
    """On 350 images: several bins, the last of which takes the rest."""
    logits = randn(350, CLASSES, seed=2) * 3
    labels = (logits + 3 * randn(350, CLASSES, seed=3)).argmax(1)
    value = summarise(scores_of(logits, labels.tolist())).value(name)
    tolerance = 1e-5 if name.startswith("scaled") else 1e-9  # the temperature is fitted from sums
    assert value == pytest.approx(METRICS[name](logits.numpy(), labels.numpy()), abs=tolerance)


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
    assert scored(*parts).to_bytes() == WHOLE_BYTES


@settings(max_examples=30, deadline=None)
@given(batches, st.data())
def test_processes_do_not_matter(parts: list[list[int]], data: st.DataObject) -> None:
    owners = data.draw(st.lists(st.integers(0, 2), min_size=len(parts), max_size=len(parts)))
    first, second, third = (
        scored(*(part for part, owner in zip(parts, owners, strict=True) if owner == process)) for process in range(3)
    )
    for merged in (
        first.merge(second).merge(third),
        first.merge(second.merge(third)),
        third.merge(first).merge(second),
    ):
        assert summarise(merged) == WHOLE
        assert merged.to_bytes() == WHOLE_BYTES


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, IMAGES - 1), max_size=20), max_size=5))
def test_repeated_images_of_one_process_count_once(extra: list[list[int]]) -> None:
    assert summarise(scored(*extra, ALL, *extra)) == WHOLE


def test_images_of_two_processes_are_never_counted_twice() -> None:
    with pytest.raises(SurgeonError, match=r"2 images scored twice, e.g. the image with index 1"):
        scored([0, 1], [2, 3]).merge(scored([4, 3], [5, 1]))


def test_scores_can_be_sent_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(scored(ALL[:17])))
    assert summarise(sent.merge(scored(ALL[17:]))) == WHOLE


def test_the_figures_of_some_images_do_not_change_with_later_ones() -> None:
    scores = scored(ALL[:20])
    images = scores.images()
    scores.update(LOGITS[20:], LABELS[20:], ALL[20:])
    assert images.scaled == scored(ALL[:20]).images().scaled


def test_images_without_a_group_are_as_if_never_scored() -> None:
    group = int(group_of(np.array([7]))[0])
    others = [index for index in ALL if group_of(np.array([index]))[0] != group]
    found, expected = scored(ALL).images().without(group), scored(others).images()
    assert found.indices.tolist() == others
    assert {name: metrics[name].compute(found) for name in metrics} == {
        name: metrics[name].compute(expected) for name in metrics
    }


PATTERNS = {
    "all": np.arange(5000),
    "blocks": np.arange(5000) // 50 * 1000 + np.arange(5000) % 50,
    **{f"every {step}": np.arange(3000) * step for step in (2, 10, 32, 987, 1000, 1024, 6765, 2**20)},
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_groups_are_balanced(pattern: str) -> None:
    groups = group_of(PATTERNS[pattern])
    sizes = np.bincount(groups, minlength=GROUPS)
    assert len(sizes) == GROUPS
    expected = len(groups) / GROUPS
    assert ((sizes - expected) ** 2 / expected).sum() < 70  # chance exceeds this once in 10,000 patterns


def test_stored_groups_stay_what_they_are() -> None:
    assert group_of(np.array([0, 1, 2, 3, 10**12])).tolist() == [0, 28, 13, 0, 7]


HUGE = torch.tensor([[1e30, 0.0], [0.0, 1e30]]).repeat(40, 1)
NOT_FINITE = torch.tensor([[math.nan, 0.0], [0.0, -math.inf], [-math.inf, 0.0], [math.inf, 0.0], [1.0, 2.0]])


@pytest.mark.parametrize(
    "scores",
    [Scores(), scored([]), scored(ALL), scored([3]), scores_of(HUGE, [0] * 80), scores_of(NOT_FINITE, [0, 1, 1, 0, 1])],
    ids=["nothing", "empty batch", "all", "one", "huge", "not finite"],
)
def test_stored_scores_are_exact(scores: Scores) -> None:
    read = Scores.from_bytes(scores.to_bytes())
    assert (read.to_bytes(), len(read), read.classes) == (scores.to_bytes(), len(scores), scores.classes)
    if len(scores):
        assert summarise(read) == summarise(scores)
        for mine, other in zip(vars(read.images()).values(), vars(scores.images()).values(), strict=True):
            if isinstance(mine, np.ndarray):
                assert mine.tobytes() == other.tobytes()


def test_stored_sums_may_exceed_64_bits() -> None:
    scores = scores_of(HUGE, [0] * 80)
    scores._sums = TemperatureSums(scores._sums.totals * 2**40)
    read = Scores.from_bytes(scores.to_bytes())
    assert read._sums.totals.max() > 2**64
    assert (read._sums.totals == scores._sums.totals).all()


def test_scoring_goes_on_from_stored_scores() -> None:
    read = Scores.from_bytes(scored(ALL[:11]).to_bytes())
    assert read.merge(scored(ALL[11:])).to_bytes() == WHOLE_BYTES
    read.update(LOGITS, LABELS, ALL)
    assert read.to_bytes() == WHOLE_BYTES


def test_stored_scores_are_small() -> None:
    scores = scores_of(randn(128, 10) * 3, [0] * 128)
    assert len(scores.to_bytes()) < 7000


def test_damaged_bytes_are_refused() -> None:
    cut = [WHOLE_BYTES[:length] for length in (0, 1, 2, 100, len(WHOLE_BYTES) - 1)]
    foreign = [b"scores", zlib.compress(b""), zlib.compress(b"scores"), WHOLE_BYTES + b"\0"]
    other = [packing.pack(np.arange(3)), packing.pack(*[np.arange(2)] * 4)]
    for data in (*cut, *foreign, *other):
        with pytest.raises(SurgeonError, match="damaged"):
            Scores.from_bytes(data)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(WHOLE_BYTES) - 1), st.integers(1, 255))
def test_a_changed_byte_never_changes_the_scores(place: int, change: int) -> None:
    data = bytearray(WHOLE_BYTES)
    data[place] ^= change
    try:
        read = Scores.from_bytes(bytes(data))
    except SurgeonError:
        return
    assert read.to_bytes() == WHOLE_BYTES  # zlib has a few bits without a meaning


def test_scores_of_another_format_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accumulator, "FORMAT", 2)
    with pytest.raises(SurgeonError, match="another version"):
        Scores.from_bytes(WHOLE_BYTES)


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


def test_scores_of_different_networks_are_not_merged() -> None:
    other = Scores()
    other.update(torch.zeros(1, 3), torch.tensor([0]), [0])
    with pytest.raises(SurgeonError, match="cannot be merged"):
        scored(ALL).merge(other)


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
    names = "accuracy aurra cross-entropy ece iou mad rms scaled-cross-entropy soft-f1 top5"
    assert answer.splitlines() == [names, "False False"]
