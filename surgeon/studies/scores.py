"""The scores of finished networks, read from the logits that runs and evaluations leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from surgeon.conditions.base import ask
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.reading import read_bounded
from surgeon.measuring.features import FEATURES
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


@dataclass(frozen=True)
class Predicted:
    """What one run says of each image, or of each image under each condition."""

    file: Path
    logits: NDArray[np.float64]
    labels: NDArray[np.int64]
    features: NDArray[np.float32] | None = None


@dataclass
class Reader:
    """Reads the finished networks of a study, each file once."""

    study: Definition
    folder: StudyFolder
    _logits: dict[Path, dict[str, Tensor]] = field(default_factory=dict)

    def measured(self, cell: Cell) -> dict[int | None, Measured]:
        """By seed, all that is there; under None the ensemble of all seeds, once all are."""
        variant, evaluation = self._of(cell)
        if evaluation.is_own_validation:
            results = {seed: self._result(f"{variant.name}-{seed}") for seed in self.study.seeds}
            return {seed: Measured(figures=_on_validation(one)) for seed, one in results.items() if one is not None}
        ready = self._ready(variant, cell.evaluation)
        if evaluation.ensemble != "seeds":
            return {seed: Measured(self._scores(of, evaluation)) for seed, of in ready.items()}
        if len(ready) < len(self.study.seeds):
            return {}
        return {None: Measured(self._scores([file for of in ready.values() for file in of], evaluation))}

    def predicted(self, cell: Cell) -> dict[int, Predicted]:
        """By seed, what each run says of each image."""
        variant, evaluation = self._of(cell)
        found = {}
        for seed, files in self._ready(variant, cell.evaluation).items():
            parts = list(self._averaged(files, evaluation))
            features = self._read(files[0]).get(FEATURES)
            found[seed] = Predicted(
                files[0],
                torch.cat([logits for logits, _, _ in parts]).double().numpy(),
                torch.cat([labels for _, labels, _ in parts]).numpy(),
                features.numpy() if features is not None else None,
            )
        return found

    def _of(self, cell: Cell) -> tuple[Variant, Evaluation]:
        variant = next(one for one in self.study.variants if one.name == cell.variant)
        return variant, self.study.evaluations[cell.evaluation]

    def _ready(self, variant: Variant, evaluation: str) -> dict[int, list[Path]]:
        """By seed, the files of logits, where all of them are there."""
        files = {seed: self._files(variant, seed, evaluation) for seed in self.study.seeds}
        return {seed: of for seed, of in files.items() if of and all(file.is_file() for file in of)}

    def _files(self, variant: Variant, seed: int, evaluation: str) -> list[Path]:
        run, one = f"{variant.name}-{seed}", self.study.evaluations[evaluation]
        if one.is_own_test:
            if not (self.folder.run(run) / RESULT).is_file():  # which may be writing them
                return []
            if not (file := self.folder.run(run) / LOGITS).is_file():
                self._refuse_masks(run)
            return [file]
        return [logits_file(self.folder, run, evaluation, name) for name in networks(self.folder, variant, run, one)]

    def _refuse_masks(self, run: str) -> None:
        result = self._result(run)
        if result is not None and result.test is not None and metrics[result.test.primary].only_masks:
            raise SurgeonError(
                "A study compares the logits of test images, and those of masks are not kept.",
                "Evaluate it on `validation`, or compare its runs with `surgeon robustness --under clean`.",
            )

    def _scores(self, files: list[Path], evaluation: Evaluation) -> ImageScores:
        """Of the mean of the logits of all files, under all conditions of the evaluation."""
        parts = []
        for logits, labels, indices in self._averaged(files, evaluation):
            scores = Scores()
            scores.update(logits, labels, indices)
            parts.append(scores.images())
        return pool(parts)

    def _averaged(self, files: list[Path], evaluation: Evaluation) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Under each condition the mean of the logits of all files, with labels and indices."""
        found = [self._read(file) for file in files]
        first = found[0]
        if any(not torch.equal(first["indices"], one["indices"]) for one in found[1:]):
            raise SurgeonError(f"{files[0]} and {files[-1]} are of different images, and cannot be averaged.")
        for name in [one.name for one in ask(evaluation.under)] or [CLEAN]:
            key = "logits" if name == CLEAN else f"{LOGITS_UNDER}{name}"
            yield torch.stack([one[key] for one in found]).mean(0), first["labels"], first["indices"]

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
