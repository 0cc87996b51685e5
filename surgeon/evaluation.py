"""The `eval` command's whole operation: open the data, check it, predict, report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from surgeon.compute import Precision, pick_device, usable_precision
from surgeon.data.check import check_classes
from surgeon.data.images import ImageSet
from surgeon.data.loaders import Batch, batches
from surgeon.data.sources import open_data
from surgeon.data.splits import limit
from surgeon.errors import ExitCode, SurgeonError
from surgeon.metrics import Metrics, summarise
from surgeon.models.sources import LoadedModel, Preprocessing
from surgeon.scoring import score
from surgeon.surgery import parity
from surgeon.tta import Merge, Views
from surgeon.tta import views as view_families


@dataclass(frozen=True)
class Request:
    """What to evaluate on, and how."""

    data: str
    split: str | None = None
    limit: int | None = None
    image_column: str | None = None
    label_column: str | None = None
    skip_bad: bool = False
    tta: str | None = None
    merge: Merge = Merge.LOGITS
    batch_size: int | None = None
    workers: int | None = None
    device: str | None = None
    precision: Precision = Precision.FLOAT32
    save_logits: Path | None = None


class Evaluation(BaseModel):
    """The result of an evaluation; table and JSON render from it."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    model: str
    data: str
    split: str
    rewrites: str
    preprocessing: Preprocessing
    device: str
    precision: Precision
    tta: str | None
    views: int
    metrics: Metrics
    bad_images: tuple[str, ...]
    seconds: float
    images_per_second: float
    logits_file: str | None = None


Progress = Callable[[int, int], None]
"""Called with the number of images done and the number of all."""


def run_evaluation(loaded: LoadedModel, request: Request, progress: Progress) -> Evaluation:
    """Evaluate a network on a data set, decoding each image once."""
    preprocessing = loaded.origin.preprocessing
    if preprocessing is None:
        raise SurgeonError(f"It is not known what images {loaded.name!r} expects, so it cannot be evaluated.")
    views = view_families[request.tta].for_network(preprocessing) if request.tta else None
    image_set = _open(request)
    device = pick_device(request.device)
    precision = usable_precision(request.precision, device)
    model = loaded.model.to(device).to(memory_format=torch.channels_last)
    check_classes(image_set, _outputs(model, preprocessing, device))
    loader = batches(
        image_set,
        views.preprocessing if views else preprocessing,
        request.batch_size or (32 if preprocessing.input_size[-1] > 64 else 128),
        workers=request.workers,
        skip_bad=request.skip_bad,
    )
    keep = _LogitKeeper(request.save_logits is not None)
    done = 0

    def watch(logits: Tensor, batch: Batch) -> None:
        nonlocal done
        done += len(batch.labels)
        keep(logits, batch)
        progress(done, len(image_set))

    start = time.perf_counter()
    scores = score(model, loader, views=views, merge=request.merge, precision=precision, watch=watch)
    seconds = time.perf_counter() - start
    plan = getattr(loaded.model, "surgery", None)
    return Evaluation(
        model=loaded.name,
        data=request.data,
        split=image_set.split,
        rewrites=plan.summary() if plan is not None else "",
        preprocessing=views.preprocessing if views else preprocessing,
        device=str(device),
        precision=precision,
        tta=request.tta,
        views=_count(views),
        metrics=summarise(scores),
        bad_images=tuple(loader.bad),
        seconds=seconds,
        images_per_second=len(scores) / seconds,
        logits_file=keep.write(request.save_logits),
    )


def _open(request: Request) -> ImageSet:
    image_set = open_data(
        request.data, request.split, image_column=request.image_column, label_column=request.label_column
    )
    if request.limit is None:
        return image_set
    return image_set.subset(limit(image_set.labels, request.limit))


def _outputs(model: nn.Module, preprocessing: Preprocessing, device: torch.device) -> int:
    (logits,) = parity.evaluate_once(model, (torch.zeros(1, *preprocessing.input_size, device=device),))
    if logits.dim() != 2:
        raise SurgeonError(f"The network gives outputs of shape {tuple(logits.shape)}, not one number per class.")
    return logits.shape[1]


def _count(views: Views | None) -> int:
    return 1 if views is None else views.count


class _LogitKeeper:
    """Keeps logits only if they are to be saved; otherwise memory stays flat."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.kept: list[tuple[Tensor, Batch]] = []

    def __call__(self, logits: Tensor, batch: Batch) -> None:
        if self.wanted:
            self.kept.append((logits, Batch(batch.images[:0], batch.labels, batch.indices)))

    def write(self, path: Path | None) -> str | None:
        if path is None:
            return None
        from safetensors.torch import save_file

        tensors = {
            "logits": torch.cat([logits for logits, _ in self.kept]),
            "labels": torch.cat([batch.labels for _, batch in self.kept]),
            "indices": torch.cat([torch.as_tensor(batch.indices) for _, batch in self.kept]),
        }
        unfinished = path.with_name(f".unfinished-{path.name}")
        try:
            save_file(tensors, unfinished)
            unfinished.replace(path)
        except Exception as error:
            unfinished.unlink(missing_ok=True)
            raise SurgeonError(f"Could not write {path}: {error}.", exit_code=ExitCode.FAILED) from error
        return str(path)
