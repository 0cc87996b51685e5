"""What a result adds to the history of the network that it is about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from surgeon.core.errors import printable
from surgeon.data.opening import is_known
from surgeon.data.presets import PRESETS
from surgeon.data.union import UNION, parts_of
from surgeon.metrics import Metrics, metrics
from surgeon.metrics.own import OWN
from surgeon.models import history
from surgeon.models.facts import DataKind, DataSet, Figures, Images
from surgeon.models.history import Averaged, AveragedMember, EntropyMinimised, Merged, Recalibrated, Swept
from surgeon.models.origin import LoadedModel
from surgeon.results.ensemble import Choice, Ensemble, Restatement
from surgeon.results.outputs import Merging
from surgeon.results.recalibration import Measured, Recalibration
from surgeon.results.sweep import Setting, Sweep
from surgeon.surgery.entropy import EntropyResult

HUB = "hf:"


def data_set(spec: str) -> DataSet:
    """Images as others know them: those of a DATA of the command line."""
    if spec.startswith(UNION):
        return DataSet(name=" + ".join(data_set(part).name for part in parts_of(spec)), kind=DataKind.FILES)
    if spec in PRESETS:
        return DataSet(name=spec, kind=DataKind.HUB, hub=PRESETS[spec].hub)
    if spec.startswith(HUB):
        name = spec.removeprefix(HUB)
        return DataSet(name=name, kind=DataKind.HUB, hub=name.partition(":")[0])
    if is_known(spec):
        return DataSet(name=spec, kind=DataKind.BUNDLED)
    name = printable(Path(spec).expanduser().resolve().name)
    return DataSet(name=f"{name} (a local folder)" if is_known(name) else name, kind=DataKind.FILES)


def images_of(spec: str, split: str, number: int) -> Images:
    """So many images of a split of a DATA of the command line."""
    return Images(data=data_set(spec), split=split, number=number)


def figures_of(measured: Metrics) -> Figures:
    """All metrics of an evaluation by name, those that were added too; or the score of one's own."""
    own = {OWN: measured.value(OWN)} if OWN in (measured.model_extra or {}) else {}
    of_masks = measured.primary == "iou"
    names = [name for name in metrics if metrics[name].applies_to_masks(of_masks)]
    return Figures(images=measured.images, values=own or {name: measured.value(name) for name in names})


def swept(sweep: Sweep, *, changed: bool, data: DataSet | None = None) -> Swept:
    """A sweep, after which the network is at the setting to keep.

    Args:
        sweep: What was found.
        changed: Whether the network had another setting before.
        data: What it was found on, if that is not a DATA of the command line.
    """
    return Swept(
        chosen_on=Images(data=data or data_set(sweep.data), split=sweep.split, number=sweep.choosing_images),
        held_out=sweep.confirming_images,
        axis=sweep.axes,
        metric=sweep.metric,
        values=tuple(point.value for point in sweep.points),
        chosen=sweep.chosen,
        second_values=tuple(point.second for point in sweep.points if point.second is not None),
        second_chosen=sweep.second_chosen,
        settings=tuple(map(_setting, sweep.settings)),
        best=sweep.best,
        stored=sweep.kept == sweep.best and sweep.kept != sweep.settings[0].name,
        forced=sweep.forced,
        changed=changed,
        tta=sweep.tta,
        under=sweep.under,
        confirmed_under=sweep.confirmed_under,
        warnings=sweep.warnings,
    )


def _setting(setting: Setting) -> history.SweptSetting:
    held_out = figures_of(setting.confirming) if setting.confirming is not None else None
    return history.SweptSetting(
        name=setting.name, choosing=figures_of(setting.choosing), held_out=held_out, gains=setting.gains
    )


def merged(merging: Merging) -> Merged:
    """The branches of a split network, folded into one."""
    measured_on = None
    if merging.data is not None and merging.split is not None and merging.merged is not None:
        measured_on = images_of(merging.data, merging.split, merging.merged.images)
    return Merged(
        share=merging.share,
        layers=merging.layers,
        probability_shift=merging.probability_shift,
        measured_on=measured_on,
        two_passes=figures_of(merging.two_passes) if merging.two_passes is not None else None,
        merged=figures_of(merging.merged) if merging.merged is not None else None,
        gains=merging.gains,
        notes=merging.notes,
    )


def recalibrated(result: Recalibration) -> Recalibrated:
    """Statistics that were estimated anew."""
    confirmed, source = result.confirmed, result.source
    return Recalibrated(
        estimated_on=images_of(result.data, result.split, result.images),
        where=result.where,
        prior=result.prior,
        layers=len(result.layers) or len(result.collected),
        mean_shift=result.mean_shift,
        entropy=minimised(result.entropy),
        changed_predictions=result.change.changed,
        measured_on=_labelled(confirmed),
        before=figures_of(confirmed.before) if confirmed is not None else None,
        after=figures_of(confirmed.after) if confirmed is not None else None,
        gains=confirmed.gains if confirmed is not None else (),
        source=_labelled(source),
        source_gains=source.gains if source is not None else (),
        warnings=result.warnings,
    )


def minimised(result: EntropyResult | None) -> EntropyMinimised | None:
    """What entropy minimisation did, if it did anything."""
    if result is None:
        return None
    return EntropyMinimised(
        epochs=result.epochs,
        lr=result.lr,
        layers=result.layers,
        before=result.before.entropy,
        after=result.after.entropy,
        collapsed=result.collapsed,
    )


def _labelled(measured: Measured | None) -> Images | None:
    return None if measured is None else images_of(measured.data, measured.split, measured.after.images)


def averaged(ensemble: Ensemble, members: Iterable[tuple[str, LoadedModel]], start: int) -> Averaged:
    """The average of weights among the combinations of an ensemble.

    Args:
        ensemble: What was found.
        members: The networks whose weights it is, with the names to call them by.
        start: How many steps all of them have in common, which are not repeated.
    """
    soup, statistics, choice = ensemble.combinations[-1], ensemble.statistics, ensemble.choice
    return Averaged(
        members=tuple(
            AveragedMember(
                name=name,
                base_weights=member.origin.weights.origin,
                base_sha256=member.origin.weights.sha256,
                history=member.origin.history[start:],
            )
            for name, member in members
        ),
        statistics_from=_part(ensemble, statistics),
        statistics_layers=statistics.layers if statistics is not None else 0,
        averaged_layers=len(statistics.averaged_layers) if statistics is not None else 0,
        chosen_on=_part(ensemble, choice),
        measured_on=images_of(ensemble.data, ensemble.split, soup.metrics.images),
        figures=figures_of(soup.metrics),
        gains=soup.over_best,
        warnings=ensemble.warnings,
    )


def _part(ensemble: Ensemble, used: Choice | Restatement | None) -> Images | None:
    return None if used is None else images_of(ensemble.data, used.split, used.images)
