"""The scores of finished networks, read from the logits that runs and evaluations leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from surgeon.conditions.base import ask
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.reading import read_bounded
from surgeon.measuring.keeping import LOGITS_UNDER
from surgeon.metrics import ImageScores, Metrics, Scores, metrics
from surgeon.metrics.pooling import pool
from surgeon.results import FineTuning
from surgeon.studies.definition import VALIDATION, Cell, Definition, Evaluation, Variant
from surgeon.studies.folder import StudyFolder
from surgeon.studies.tasks import LOGITS, RESULT, logits_file, networks

CLEAN, AS_SAVED, MOST_RESULT_BYTES = "clean", "as saved", 1 << 28


@dataclass(frozen=True)
class Measured:
    """What is known of one network, or of an ensemble: scores of every image, or figures alone."""

    scores: ImageScores | None = None
    figures: Metrics | None = None

    def value(self, metric: str) -> float | None:
        if self.scores is not None:
            return metrics[metric].compute(self.scores)
        return self.figures.value(metric) if self.figures is not None else None


@dataclass
class Reader:
    """Reads the finished networks of a study, each file once."""

    study: Definition
    folder: StudyFolder
    _logits: dict[Path, dict[str, Tensor]] = field(default_factory=dict)

    def measured(self, cell: Cell) -> dict[int | None, Measured]:
        """By seed, all that is there; under None the ensemble of all seeds, once all are."""
        variant = next(one for one in self.study.variants if one.name == cell.variant)
        evaluation = self.study.evaluations[cell.evaluation]
        if evaluation.is_own_validation:
            results = {seed: self._result(f"{variant.name}-{seed}") for seed in self.study.seeds}
            return {seed: Measured(figures=_on_validation(one)) for seed, one in results.items() if one is not None}
        files = {seed: self._files(variant, seed, cell.evaluation) for seed in self.study.seeds}
        ready = {seed: of for seed, of in files.items() if of and all(file.is_file() for file in of)}
        if evaluation.ensemble != "seeds":
            return {seed: Measured(self._scores(of, evaluation)) for seed, of in ready.items()}
        if len(ready) < len(files):
            return {}
        return {None: Measured(self._scores([file for of in ready.values() for file in of], evaluation))}

    def _files(self, variant: Variant, seed: int, evaluation: str) -> list[Path]:
        run, one = f"{variant.name}-{seed}", self.study.evaluations[evaluation]
        if one.is_own_test:
            if (result := self._result(run)) is not None and result.test is not None and result.test.primary == "iou":
                raise SurgeonError(
                    "A study compares the logits of test images, and those of masks are not kept.",
                    "Evaluate it on `validation`, or compare its runs with `surgeon robustness --under clean`.",
                )
            # A run without its result may be writing them.
            return [self.folder.run(run) / LOGITS] if (self.folder.run(run) / RESULT).is_file() else []
        return [logits_file(self.folder, run, evaluation, name) for name in networks(self.folder, variant, run, one)]

    def _scores(self, files: list[Path], evaluation: Evaluation) -> ImageScores:
        """Of the mean of the logits of all files, under all conditions of the evaluation."""
        found = [self._read(file) for file in files]
        first = found[0]
        if any(not torch.equal(first["indices"], one["indices"]) for one in found[1:]):
            raise SurgeonError(f"{files[0]} and {files[-1]} are of different images, and cannot be averaged.")
        names = [one.name for one in ask(evaluation.under)] or [CLEAN]
        parts = []
        for name in names:
            key = "logits" if name == CLEAN else f"{LOGITS_UNDER}{name}"
            scores = Scores()
            scores.update(torch.stack([one[key] for one in found]).mean(0), first["labels"], first["indices"])
            parts.append(scores.images())
        return pool(parts)

    def _read(self, file: Path) -> dict[str, Tensor]:
        if file not in self._logits:
            try:
                self._logits[file] = load_file(file)
            except (OSError, SafetensorError) as error:
                raise SurgeonError(
                    f"{file} cannot be read: {error}.",
                    "Remove it to measure again.",
                    ExitCode.FAILED,
                ) from None
        return self._logits[file]

    def _result(self, run: str) -> FineTuning | None:
        path = self.folder.run(run) / RESULT
        if not path.is_file():
            return None
        try:
            return FineTuning.model_validate_json(read_bounded(path, "result of a run", MOST_RESULT_BYTES))
        except ValidationError:
            raise SurgeonError(f"{path} is not the result of a run.", "Remove it to finish the run again.") from None


def _on_validation(result: FineTuning) -> Metrics:
    saved = (one for one in result.figures if (one.split, one.setting, one.tta) == (VALIDATION, AS_SAVED, None))
    return next(saved).metrics
