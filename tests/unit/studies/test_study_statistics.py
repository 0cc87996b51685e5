"""Means over seeds, their intervals and differences, against the formulas in float64."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy import stats

from surgeon.metrics import Scores, metrics
from surgeon.metrics.interval import Interval, compare_images
from surgeon.metrics.seeds import image_interval, seed_interval
from surgeon.results import Study
from surgeon.studies.file import check_study
from surgeon.studies.folder import StudyFolder, begin, only_study_in
from surgeon.studies.table import table_of, verdict

IMAGES, CLASSES = 60, 4
CONTENT: dict[str, Any] = {
    "model": "digits-resnet8",
    "data": "digits",
    "variants": {"plain": None, "ghost": {"bn": "ghost"}},
}


def logits(seed: int, shift: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (IMAGES,), generator=torch.Generator().manual_seed(99))
    values = torch.randn(IMAGES, CLASSES, generator=generator)
    return values + shift * torch.nn.functional.one_hot(labels, CLASSES), labels


def finished(folder: StudyFolder, run: str, seed: int, shift: float) -> None:
    """A run that has left what the table reads."""
    values, labels = logits(seed, shift)
    folder.run(run).mkdir(parents=True)
    tensors = {"logits": values, "labels": labels, "indices": torch.arange(IMAGES)}
    save_file(tensors, folder.run(run) / "test-logits.safetensors")
    (folder.run(run) / "result.json").write_text("{}")


def study_in(path: Path, seeds: int, **more: Any) -> Study:
    folder = StudyFolder(path)
    definition = check_study({**CONTENT, "seeds": seeds, **more}, Path("mine.yaml"))
    with only_study_in(folder):
        begin(folder, definition, overwrite=False)
    for seed in range(seeds):
        finished(folder, f"plain-{seed}", seed, 1.0)
        finished(folder, f"ghost-{seed}", 100 + seed, 1.4)
    return table_of(definition, folder)


def of_seeds(shift: float, first: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether each image is right and its cross-entropy, by seed, written out."""
    right, entropy = [], []
    for seed in range(first, first + seeds):
        values, labels = (each.double().numpy() for each in logits(seed, shift))
        chosen = labels.astype(int)
        log_sum = np.log(np.exp(values).sum(1))
        entropy.append(log_sum - values[np.arange(IMAGES), chosen])
        right.append((values.argmax(1) == chosen).astype(float))
    return np.array(right), np.array(entropy)


def test_the_table_says_what_the_formulas_say(tmp_path: Path) -> None:
    seeds = 4
    result = study_in(tmp_path, seeds)
    assert result.comparisons == 2
    mine, theirs = of_seeds(1.4, 100, seeds), of_seeds(1.0, 0, seeds)
    for number, metric in enumerate(("accuracy", "cross-entropy")):
        values = mine[number].mean(1)
        row = next(one for one in result.rows if (one.variant, one.metric) == ("ghost", metric))
        assert [one.value for one in row.values] == pytest.approx(values.tolist(), rel=1e-6)
        assert row.mean == pytest.approx(values.mean(), rel=1e-6)
        assert row.deviation == pytest.approx(values.std(ddof=1), rel=1e-5)
        differences = values - theirs[number].mean(1)
        one = next(each for each in result.differences if each.metric == metric)
        assert one.difference == pytest.approx(differences.mean(), rel=1e-5)
        for bounds, share in ((one.over_seeds, 0.95), (one.family_over_seeds, 1 - 0.05 / 2)):
            low, high = stats.t.interval(share, seeds - 1, differences.mean(), stats.sem(differences))
            assert (bounds.low, bounds.high) == pytest.approx((low, high), rel=1e-5)
        by_image = (mine[number] - theirs[number]).mean(0)
        reach = stats.t.ppf(0.975, IMAGES - 1) * stats.sem(by_image)
        assert one.over_images.low <= by_image.mean() - 0.8 * reach  # imagined images and skewness make it longer
        assert one.over_images.high >= by_image.mean() + 0.8 * reach
        assert one.family_over_images.low < one.over_images.low < one.over_images.high < one.family_over_images.high


def test_over_images_one_run_against_another_is_the_paired_comparison() -> None:
    scores = []
    for seed, shift in ((0, 1.4), (1, 1.0)):
        one = Scores()
        one.update(*logits(seed, shift), np.arange(IMAGES))
        scores.append(one.images())
    for name in ("accuracy", "cross-entropy"):
        compared = compare_images(metrics[name], *scores)
        low, high = image_interval(metrics[name], scores[:1], scores[1:])
        assert (low, high) == pytest.approx((compared.low, compared.high))
    assert image_interval(metrics["ece"], scores[:1], scores[1:]) is None


def test_one_seed_has_no_deviation_and_says_so(tmp_path: Path) -> None:
    result = study_in(tmp_path, 1)
    assert all(row.deviation is None and row.over_seeds is None for row in result.rows)
    assert all(row.over_images is not None for row in result.rows)
    assert {one.verdict for one in result.differences} == {"one seed: training noise unknown"}
    assert "One seed" in result.notes[0]


def test_an_ensemble_of_all_seeds_averages_logits(tmp_path: Path) -> None:
    result = study_in(tmp_path, 3, evaluations={"test": None, "together": {"ensemble": "seeds"}})
    row = next(one for one in result.rows if (one.variant, one.evaluation) == ("plain", "together"))
    stacked = torch.stack([logits(seed, 1.0)[0] for seed in range(3)]).double().mean(0)
    assert row.values[0].seed is None
    assert row.mean == float((stacked.argmax(1) == logits(0, 1.0)[1]).double().mean())


def test_only_seeds_that_both_have_are_compared(tmp_path: Path) -> None:
    study_in(tmp_path, 3)
    folder = StudyFolder(tmp_path)
    (folder.run("plain-1") / "result.json").unlink()
    result = table_of(folder.definition(), folder)
    assert {one.seeds for one in result.differences} == {2}
    assert [run.name for run in result.runs if run.state.value != "finished"] == ["plain-1"]


def test_a_verdict_needs_both_intervals() -> None:
    above, around = Interval(0.1, 0.2), Interval(-0.1, 0.2)
    assert verdict(3, above, above, higher_is_better=True) == "better"
    assert verdict(3, above, above, higher_is_better=False) == "worse"
    assert verdict(3, above, around, higher_is_better=True) == "not significant"
    assert verdict(3, around, above, higher_is_better=True) == "not significant"
    assert verdict(3, above, None, higher_is_better=True) == "better"
    assert verdict(3, None, above, higher_is_better=True) == "not finite"


def test_the_first_note_is_what_was_found(tmp_path: Path) -> None:
    result = study_in(tmp_path / "two", 2)
    verdicts = {(one.variant, one.metric): one.verdict for one in result.differences}
    assert set(verdicts.values()) == {"not significant"}
    assert result.notes[0] == "No difference is significant."
    folder = StudyFolder(tmp_path / "two")
    for seed in range(2):  # the labels themselves, against which no luck of training is an excuse
        labels = logits(0, 1.0)[1]
        right = 10.0 * torch.nn.functional.one_hot(labels, CLASSES)
        tensors = {"logits": right.float(), "labels": labels, "indices": torch.arange(IMAGES)}
        save_file(tensors, folder.run(f"ghost-{seed}") / "test-logits.safetensors")
        values = logits(3, 1.0)[0]
        save_file({**tensors, "logits": values}, folder.run(f"plain-{seed}") / "test-logits.safetensors")
    result = table_of(folder.definition(), folder)
    assert result.notes[0] == (
        "Significant: ghost is better than plain (accuracy) and ghost is better than plain (cross-entropy)."
    )


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("comparisons", [1, 10])
def test_intervals_of_paired_differences_contain_the_truth(seeds: int, comparisons: int) -> None:
    """What seeds have in common cancels; of a family of comparisons, all are right in 95 of 100 studies."""
    generator = np.random.default_rng(seeds)
    studies, missed = 2000, 0
    for _ in range(studies):
        shared = generator.normal(0, 3, seeds)  # the difficulty of a seed
        wrong = False
        for _ in range(comparisons):
            baseline, candidate = (shared + generator.normal(0, 1, seeds) for _ in range(2))
            interval = seed_interval((candidate + 0.5 - baseline).tolist(), 0.025 / comparisons)
            wrong |= not interval.low <= 0.5 <= interval.high
        missed += wrong
    slack = 3.3 * math.sqrt(0.05 * 0.95 / studies)
    assert missed / studies < 0.05 + slack
    if comparisons == 1:
        assert missed / studies > 0.05 - slack


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.inf], [math.nan, 1.0]])
def test_there_is_no_interval_over_seeds_without_two_finite_values(values: list[float]) -> None:
    assert seed_interval(values) is None


def test_infinite_cross_entropies_are_told_as_such(tmp_path: Path) -> None:
    study_in(tmp_path, 2)
    folder = StudyFolder(tmp_path)
    values, labels = logits(0, 1.0)
    values[3] = math.nan
    tensors = {"logits": values, "labels": labels, "indices": torch.arange(IMAGES)}
    save_file(tensors, folder.run("ghost-0") / "test-logits.safetensors")
    result = table_of(folder.definition(), folder)
    one = next(each for each in result.differences if each.metric == "cross-entropy")
    assert one.verdict == "not finite"
    assert Study.model_validate(json.loads(result.model_dump_json())).differences[1].difference == math.inf
