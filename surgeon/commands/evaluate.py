"""The `eval` command's whole operation: predict the images, measure, tell what views brought, and write a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from surgeon import checkpoint
from surgeon.commands.export.in_onnxruntime import InOnnxruntime, in_onnxruntime
from surgeon.commands.robustness.figures import CLEAN, Column, condition_figures
from surgeon.commands.storing import Decision, decide
from surgeon.commands.visible import thumbnails
from surgeon.conditions.base import ask
from surgeon.core.devices import Engine
from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.core.processes import Processes
from surgeon.core.progress import Progress
from surgeon.data.images import ImageSet
from surgeon.measuring.choosing import images_to_choose_on
from surgeon.measuring.comparison import gain_of_temperature, gain_over
from surgeon.measuring.conditions import ConditionMaker
from surgeon.measuring.engine import measure
from surgeon.measuring.error_analysis import break_down, surest_mistakes
from surgeon.measuring.features import FEATURES, HeadInputs
from surgeon.measuring.keeping import LOGITS_UNDER, Logits, OnlyLogits, Scored, ScoresAndLogits
from surgeon.measuring.mask_analysis import break_down_masks, example_pictures
from surgeon.measuring.preparation import InferenceRequest, PreparedNetwork, batches_for, prepare
from surgeon.measuring.variants import Variant
from surgeon.metrics import intervals, metrics, summarise
from surgeon.models.history import TemperatureFitted
from surgeon.models.origin import LoadedModel
from surgeon.report.evaluation import MOST_THUMBNAILS, evaluation_page, evaluation_picture
from surgeon.report.folder import write_report
from surgeon.report.masks import write_mask_report
from surgeon.results import AgainstOneView, ConditionFigures, Evaluation
from surgeon.results.steps import figures_of, images_of
from surgeon.surgery.branches import prediction_by
from surgeon.surgery.temperature import set_temperature, temperature_of
from surgeon.training.network import head_of

PICTURE, CHECKPOINT = "evaluation.png", "checkpoint"
AS_ASKED, ONE_VIEW = "as asked for", "one view"


def run_evaluation(
    loaded: LoadedModel,
    request: InferenceRequest,
    progress: Progress,
    *,
    save_logits: Path | None = None,
    save_features: bool = False,
    output: Path | None = None,
    with_temperature: bool = False,
    force: bool = False,
    images: ImageSet | None = None,
    under: Sequence[str] = (),
    engine: Engine = Engine.TORCH,
) -> Evaluation:
    """Evaluate a network on a data set; with several views, also on one for comparison.

    A report is written to the folder `output`, and `with_temperature` a checkpoint beside it, which has the fitted
    one if its gain is beyond noise. It is fitted on the images that settings are chosen on, which the figures are of;
    where half of the images were held back from that, the gain is measured on those. With `save_features`, the file of
    the logits also has what the head of the network sees of each image, in one view. Another `engine` computes the
    predictions; conditions that ask the network themselves have torch's.
    """
    if engine is Engine.ONNXRUNTIME:
        request = replace(request, device="cpu")
    processes = Processes.launched()
    warnings: tuple[str, ...] = ()
    held_back: ImageSet | None = None
    if with_temperature and images is None:
        choosing = images_to_choose_on(request)
        images, warnings, held_back = choosing.images, choosing.warnings, choosing.held_back
    prepared = prepare(loaded, request, images)
    predicting = in_onnxruntime(prepared) if engine is Engine.ONNXRUNTIME else prepared.model
    # Each image is decoded once for both.
    with_engine = replace(prepared, model=predicting)
    networks = {AS_ASKED: with_engine} | ({ONE_VIEW: with_engine.with_one_view()} if prepared.views else {})
    asked = [one for one in ask(under) if one.name != CLEAN]
    maker = ConditionMaker()
    conditions = {
        one.name: replace(
            with_engine.variant,
            condition=maker.make(one, prepared.preprocessing, prepared.model, prepared.outputs),
        )
        for one in asked
    }
    if save_logits is not None and prepared.image_set.masks is not None:
        raise SurgeonError("The logits of masks are too many to be kept.", "Leave --save-logits out.")
    features = {FEATURES: _features_of(prepared.with_one_view())} if save_features else {}
    kept_logits = save_logits is not None
    measured = measure(
        {name: network.variant for name, network in networks.items()} | conditions | features,
        batches_for(list(networks.values()), prepared.image_set),
        lambda name: (
            OnlyLogits(logits=Logits())
            if name in features
            else ScoresAndLogits(prepared.problem.scores(), Logits() if kept_logits and name != ONE_VIEW else None)
        ),
        processes=processes,
        progress=progress,
        doing=f"evaluating {prepared.view_count} views" if prepared.views else "evaluating",
    )
    scores, seconds = measured.kept[AS_ASKED].scores, measured.seconds_alone(AS_ASKED)
    figures = summarise(scores)

    checkpoint_folder = output / CHECKPOINT if output is not None and with_temperature else None
    temperature_gain, decision = None, Decision(False, "")
    if checkpoint_folder is not None:
        if figures.temperature is None:
            raise SurgeonError("The cross-entropy is infinite at every temperature, so there is none to store.")
        if held_back is None:
            temperature_gain = gain_of_temperature(scores)
        else:
            others = measure(
                {AS_ASKED: with_engine.variant},
                prepared.batches(held_back),
                prepared.problem.keep,
                processes=processes,
                progress=progress,
            )
            temperature_gain = gain_of_temperature(others.kept[AS_ASKED], fitted_on=scores)
        decision = decide(f"A temperature of {figures.temperature:.4f}", temperature_gain, force=force)
    plan = getattr(loaded.model, "surgery", None)
    result = Evaluation(
        model=loaded.name,
        data=request.data,
        split=prepared.image_set.split,
        warnings=(*warnings, *prepared.remarks),
        rewrites=plan.summary() if plan is not None else "",
        prediction_by=prediction_by(prepared.model),
        preprocessing=prepared.preprocessing,
        device=str(prepared.device),
        precision=prepared.precision,
        engine=engine,
        engine_difference=predicting.difference if isinstance(predicting, InOnnxruntime) else None,
        tta=request.tta,
        views=prepared.view_count,
        against_one_view=_against_one_view(measured) if prepared.views else None,
        metrics=figures,
        intervals=dict(intervals(scores)),
        under=_under([Column.of(one) for one in asked], measured),
        breakdown=break_down(scores.images(), prepared.image_set, prepared.class_names)
        if output and prepared.image_set.masks is None
        else None,
        masks=break_down_masks(scores.images(), prepared.image_set) if prepared.image_set.masks is not None else None,
        matched_classes=prepared.matched_classes,
        bad_images=tuple(measured.bad),
        seconds=seconds,
        images_per_second=len(scores) / seconds,
        logits_file=str(save_logits) if save_logits is not None else None,
        temperature_gain=temperature_gain,
        decision=decision.reason,
        checkpoint=str(checkpoint_folder) if checkpoint_folder is not None else None,
    )

    def write() -> None:
        if (logits := measured.kept[AS_ASKED].logits) is not None and save_logits is not None:
            under_each = {one.name: kept for one in asked if (kept := measured.kept[one.name].logits) is not None}
            write_logits(logits, save_logits, under_each, measured.kept[FEATURES].logits if features else None)
        if checkpoint_folder is not None:
            _save(loaded, result, decision, checkpoint_folder)
        if output is not None and result.masks is not None:
            write_mask_report(result, output, example_pictures(prepared), prepared.image_set.class_names)
        elif output is not None:
            answers = scores.images()
            seen = thumbnails(prepared, answers.indices[surest_mistakes(answers)[:MOST_THUMBNAILS]])
            write_report(result, output, PICTURE, evaluation_picture, partial(evaluation_page, thumbnails=seen))

    processes.only_first(write)
    return result


def _features_of(network: PreparedNetwork) -> Variant:
    plain = replace(network.inference, outputs=None, as_answered=True)
    return replace(network.variant, model=HeadInputs(network.model, head_of(network.model)), inference=plain)


def _under(columns: Sequence[Column], measured: Scored[ScoresAndLogits]) -> tuple[ConditionFigures, ...]:
    scores = {column.condition: measured.kept[column.condition].scores for column in columns}
    return condition_figures(columns, scores | {CLEAN: measured.kept[AS_ASKED].scores}, None)


def _against_one_view(measured: Scored[ScoresAndLogits]) -> AgainstOneView:
    one_view, many = measured.kept[ONE_VIEW].scores, measured.kept[AS_ASKED].scores
    names = many.compared
    return AgainstOneView(
        metrics=summarise(one_view),
        gains=tuple(gain_over(one_view, many, metrics[name]) for name in names),
        times_the_time=measured.seconds_alone(AS_ASKED) / measured.seconds_alone(ONE_VIEW),
    )


def _save(loaded: LoadedModel, result: Evaluation, decision: Decision, folder: Path) -> None:
    """The network as it is, with the fitted temperature on top of the one it may have if that was decided."""
    figures = result.metrics
    assert figures.temperature is not None
    if decision.stored:
        set_temperature(loaded.model, (temperature_of(loaded.model) or 1.0) * figures.temperature)
    fitted = TemperatureFitted(
        fitted_on=images_of(result.data, result.split, figures.images),
        temperature=figures.temperature,
        stored=decision.stored,
        forced=decision.forced,
        gain=result.temperature_gain,
        before=figures_of(figures),
        warnings=result.warnings,
    )
    checkpoint.save_checkpoint(loaded, folder, fitted, overwrite=True)


def write_logits(
    kept: Logits, path: Path, under: Mapping[str, Logits] = MappingProxyType({}), features: Logits | None = None
) -> None:
    """Logits, labels and indices as a .safetensors file, in the order of the data; of conditions, the logits too."""
    from safetensors.torch import save_file

    tensors = dict(zip(("logits", "labels", "indices"), kept.in_order(), strict=True))
    tensors |= {f"{LOGITS_UNDER}{name}": logits.in_order()[0] for name, logits in under.items()}
    tensors |= {FEATURES: features.in_order()[0]} if features is not None else {}
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        unfinished.touch()  # with the mode that files have here
        mode = unfinished.stat().st_mode
        save_file(tensors, unfinished)
        unfinished.chmod(mode)  # safetensors makes it private
        unfinished.replace(path)
    except Exception as error:
        unfinished.unlink(missing_ok=True)
        raise SurgeonError(f"Could not write {path}: {error}.", exit_code=ExitCode.FAILED) from error
