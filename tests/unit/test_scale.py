"""A sample costs the same among many as among few: nothing is merged, kept or gone through anew for every block."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from surgeon.core.errors import SurgeonError
from surgeon.data.stratified import limit, per_class
from surgeon.measuring.journal import Journal
from surgeon.metrics import Scores
from surgeon.metrics.own import OwnScores
from surgeon.metrics.pooling import ScoresUnder

FAR = 10_000_000


def scores_at(first: int, number: int = 8, seed: int = 0) -> Scores:
    logits = torch.randn(number, 5, generator=torch.Generator().manual_seed(seed))
    scores = Scores()
    scores.update(logits, torch.arange(number) % 5, range(first, first + number))
    return scores


def test_a_block_far_into_the_data_is_as_small_as_the_first() -> None:
    assert scores_at(FAR)._images.nbytes == scores_at(0)._images.nbytes


def test_taking_in_a_block_copies_no_more_than_the_block() -> None:
    whole = scores_at(0, 20_000)
    whole.absorb(scores_at(20_000, seed=1))  # makes room for as many again
    before = whole._images
    tracemalloc.start()
    for number in range(1, 20):
        assert whole.absorb(scores_at(20_000 + 8 * number, seed=number)) is whole
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert whole._images is before
    assert peak < before.nbytes / 2
    assert len(whole) == 20_160


@pytest.mark.parametrize("order", itertools.permutations(range(4)))
def test_blocks_may_come_in_any_order_and_give_what_merging_gives(order: tuple[int, ...]) -> None:
    blocks = [scores_at(first, seed=first) for first in (0, 8, 1000, 40)]
    taken, merged = Scores(), Scores()
    for number in order:
        taken = taken.absorb(blocks[number])
        merged = merged.merge(blocks[number])
    assert taken.to_bytes() == merged.to_bytes()
    assert taken.images().indices.tolist() == [*range(16), *range(40, 48), *range(1000, 1008)]
    assert [block.to_bytes() for block in blocks] == [scores_at(n, seed=n).to_bytes() for n in (0, 8, 1000, 40)]


def test_what_is_merged_or_taken_in_stays_as_it_was() -> None:
    one, other = scores_at(0), scores_at(8, seed=1)
    before = one.to_bytes(), other.to_bytes()
    both = one.merge(other)
    started = Scores().absorb(one)
    started.absorb(other)
    assert started.to_bytes() == both.to_bytes()
    under = ScoresUnder({}).absorb(ScoresUnder({"fog": one}))
    under.absorb(ScoresUnder({"fog": other}))
    assert under.by_condition["fog"].to_bytes() == both.to_bytes()
    assert (one.to_bytes(), other.to_bytes()) == before


def test_an_image_that_is_taken_in_twice_is_named() -> None:
    with pytest.raises(SurgeonError, match=r"scored twice.* image with index 7"):
        scores_at(0).absorb(scores_at(7))


def test_numbers_of_ones_own_take_a_few_bytes_each_and_the_last_one_counts() -> None:
    scores = OwnScores(lambda answer, target: answer)  # noqa: ARG005
    scores.update(torch.arange(4.0), None, [FAR, FAR + 1, FAR + 1, FAR + 3])
    assert scores.images().indices.tolist() == [FAR, FAR + 1, FAR + 3]
    assert scores.images().values.tolist() == [0, 2, 3]
    later = OwnScores(lambda answer, target: answer)  # noqa: ARG005
    later.update(torch.tensor([9.0]), None, [FAR])
    assert scores.merge(later).images().values.tolist() == [9, 2, 3]
    assert scores._images.nbytes < 100


def test_a_journal_keeps_nothing_of_what_it_writes_in_memory(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", {}, overwrite=False)
    tracemalloc.start()
    for number in range(20):
        journal.append({"phase": "choosing", "end": number, "scores": {"original": str(number) * 100_000}})
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000
    assert [record["end"] for record in journal.records()] == list(range(20))


@pytest.mark.parametrize("seed", range(5))
def test_strata_are_drawn_as_they_always_were(seed: int) -> None:
    """Class after class, each out of its images in order, from one generator."""
    labels = 3 * np.random.default_rng(seed).integers(0, 7, 300)
    random = np.random.default_rng(seed)
    drawn = [random.permutation(np.flatnonzero(labels == label))[:5] for label in np.unique(labels)]
    (chosen,) = per_class(labels, [5], seed)
    assert chosen.tolist() == sorted(np.concatenate(drawn).tolist())
    few = limit(labels, 30, seed)
    shares = np.bincount(labels[few]) - 30 * np.bincount(labels) / 300
    assert np.abs(shares).max() < 1
