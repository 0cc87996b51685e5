"""The test of a run: as trained, as saved, and with views, all on test images that are looked at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from surgeon.commands.evaluate import write_logits
from surgeon.commands.finetune.request import LOGITS
from surgeon.commands.finetune.run import Run
from surgeon.core.progress import Progress
from surgeon.measuring.choosing import TEST
from surgeon.measuring.engine import measure
from surgeon.measuring.keeping import Logits, ScoresAndLogits
from surgeon.measuring.preparation import batches_for, prepare
from surgeon.metrics import Metrics, summarise
from surgeon.models.history import Tested
from surgeon.results import Measured
from surgeon.results.steps import figures_of, images_of

AS_TRAINED, AS_SAVED, WITH_VIEWS = "as trained", "as saved", "as saved, with views"


@dataclass(frozen=True)
class TestFigures:
    """The figures of every way in which the network was tested, and the images that could not be read."""

    metrics: dict[str, Metrics]
    tta: str | None
    split: str
    bad_images: tuple[str, ...]

    @property
    def final(self) -> Metrics:
        """As the network is used: as saved, with views if the recipe has them."""
        return self.metrics[WITH_VIEWS if self.tta is not None else AS_SAVED]

    def figures(self) -> Iterator[Measured]:
        """With one view of each image as trained and as saved, which may be the same; then with views."""
        as_saved = self.metrics[AS_SAVED]
        yield Measured(split=TEST, setting=AS_TRAINED, metrics=self.metrics.get(AS_TRAINED, as_saved))
        yield Measured(split=TEST, setting=AS_SAVED, metrics=as_saved)
        if self.tta is not None:
            yield Measured(split=TEST, setting=AS_SAVED, tta=self.tta, metrics=self.final)

    def as_step(self, run: Run) -> Tested:
        """What looking at the test images adds to the history of the network."""
        return Tested(
            images=images_of(run.request.inference.data, self.split, self.final.images),
            tta=self.tta,
            figures=figures_of(self.final),
            as_trained=figures_of(self.metrics.get(AS_TRAINED, self.metrics[AS_SAVED])),
        )


def run_test(run: Run, trained: nn.Module | None, progress: Progress) -> TestFigures | None:
    """Measure the network on the test images if there are any, and write its logits.

    Args:
        run: With the network as it will be saved.
        trained: As it was before settings were chosen, if some were.
        progress: Told how many images are done.
    """
    images = run.splits.test
    if images is None:
        return None
    request = replace(run.request.inference, split=images.split, tta=run.recipe.tta)
    saved = prepare(run.loaded, request, images)
    networks = {AS_SAVED: saved.with_one_view()}
    if trained is not None:
        networks[AS_TRAINED] = prepare(replace(run.loaded, model=trained), request, images).with_one_view()
    if saved.views is not None:
        networks[WITH_VIEWS] = saved
    final = WITH_VIEWS if saved.views is not None else AS_SAVED
    measured = measure(
        {name: network.variant for name, network in networks.items()},
        batches_for(list(networks.values()), images),
        lambda name: ScoresAndLogits(
            run.problem.scores(), Logits() if name == final and images.masks is None else None
        ),
        processes=run.processes,
        progress=progress,
        doing="testing",
    )
    logits = measured.kept[final].logits
    if logits is not None:  # those of masks are too many
        run.processes.only_first(partial(write_logits, logits, run.folder / LOGITS))
    metrics = {name: summarise(kept.scores) for name, kept in measured.kept.items()}
    return TestFigures(metrics, run.recipe.tta, images.split, tuple(measured.bad))
