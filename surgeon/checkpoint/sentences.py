"""The steps of a history in sentences, for model cards: each says what was done, on what, and with what result."""

from __future__ import annotations

from collections.abc import Iterable

from surgeon.core.errors import count, listing
from surgeon.metrics import presentation_of
from surgeon.models.facts import Figures, Gain, Images
from surgeon.models.history import (
    Averaged,
    Converted,
    Earlier,
    EntropyMinimised,
    Exported,
    FineTuned,
    Merged,
    Recalibrated,
    Renamed,
    Saved,
    Step,
    Swept,
    TemperatureFitted,
    Tested,
)


def in_sentences(history: Iterable[Step]) -> tuple[str, ...]:
    """One text for every step, in order; what an author or an earlier surgeon said, sentence by sentence."""
    return tuple(text for step in history for text in _texts(step) if text)


def _texts(step: Step) -> tuple[str, ...]:
    match step:
        case Earlier() | Saved():
            return step.findings
        case Renamed():
            return (_renamed(step),)
        case Converted():
            return (_converted(step),)
        case FineTuned():
            return (_fine_tuned(step),)
        case Swept():
            return (_swept(step),)
        case TemperatureFitted():
            return (_temperature(step),)
        case Tested():
            return (_tested(step),)
        case Merged():
            return (_merged(step),)
        case Averaged():
            return (_averaged(step), *_members(step))
        case Recalibrated():
            return (_recalibrated(step),)
        case Exported():
            folded = f", with {count(step.folded, 'BatchNorm layer')} folded into convolutions" if step.folded else ""
            return (f"Exported to {step.target}{folded}.",)


def _renamed(step: Renamed) -> str:
    parts = [f"Tensors of the weights file renamed by {listing(step.rules)}."] if step.rules else []
    if step.layers:
        parts.append(f"{count(len(step.layers), 'layer')} of the weights file matched by order and shape.")
        parts.append(
            f"Stored means agree with those of the layer's input in {step.checked} of "
            f"{count(step.norms, 'BatchNorm layer')}."
            if step.checked
            else "No statistics could confirm the order."
        )
    return " ".join(parts)


def _converted(step: Converted) -> str:
    parts = [count(step.layers, "layer")] if step.layers else []
    parts += [count(step.units, "inserted unit")] if step.units else []
    sentence = f"Converted to {step.rewrites or 'itself'}: {' and '.join(parts) or 'no layers'}."
    if (difference := step.identity_difference) is not None:
        told = f"differ by {difference:.1e} (relative)" if difference else "are identical"
        sentence += f" At the identity setting, outputs {told}."
    return sentence


def _fine_tuned(step: FineTuned) -> str:
    unlabelled = f", and {_images(step.unlabelled)}, without labels" if step.unlabelled is not None else ""
    sentences = [f"Fine-tuned on {step.data.name}: {count(step.train_images, 'image')}{unlabelled}."]
    trained = "1 class" if step.classes == 1 else f"{step.classes:,} classes"
    epochs = step.recipe.get("epochs")
    trained += f", {count(epochs, 'epoch')}" if isinstance(epochs, int) else ""
    if step.snapshot is not None:
        trained += f"; snapshot {step.snapshot.number} of {step.snapshot.of}"
    if step.validation is not None:
        held_back = " held back from the training images" if step.held_back else ""
        trained += f"; {_score(step.validation, 'validation image')}{held_back}, as trained"
    return " ".join([*sentences, f"{trained}.", *step.changes])


def _swept(step: Swept) -> str:
    held_out = f", {step.held_out:,} more held out" if step.held_out else ""
    views = f", views {step.tta}" if step.tta else ""
    sentences = [
        f"Swept {step.axis} on {_images(step.chosen_on)}{_under(step)}{held_out}: "
        f"{count(len(step.values), 'value')}, by "
        f"{step.metric}{views}.",
        _choice(step),
    ]
    if step.stored and not step.held_out:
        sentences.append("Chosen and measured on the same images, which flatters the gain.")
    return " ".join([*sentences, *step.warnings])


def _under(step: Swept) -> str:
    confirmed = f", confirmed under {listing(step.confirmed_under)}" if step.confirmed_under else ""
    return f" under {listing(step.under)}{confirmed}" if step.under else ""


def _choice(step: Swept) -> str:
    original, best = step.settings[0], step.setting(step.best)
    gain = best.gain(step.metric) if best is not None else None
    if best is None or gain is None:
        return "No value beats the original network, which is kept."
    before, after = (_figure(step.metric, one.reported.values.get(step.metric)) for one in (original, best))
    where = " on the held-out images" if step.held_out else ""
    measured = f"{step.best}: {step.metric} {before} to {after}{where}, gain {_gain(gain)}."
    if not step.stored:
        return f"{measured} The original is kept."
    return f"{measured} It was stored because of --force." if step.forced else f"{measured} It was stored."


def _temperature(step: TemperatureFitted) -> str:
    held_out = f", {step.held_out:,} more held out" if step.held_out else ""
    sentences = [f"Temperature {step.temperature:.4f} fitted on {_images(step.fitted_on)}{held_out}."]
    if step.gain is not None:
        sentences.append(f"Gain in {step.gain.metric}: {_gain(step.gain)}.")
    if step.stored:
        sentences.append("It was stored because of --force." if step.forced else "It was stored.")
    else:
        sentences.append("It was not stored.")
    return " ".join([*sentences, *step.warnings])


def _tested(step: Tested) -> str:
    views = f", views {step.tta}" if step.tta else ""
    known = "" if step.images.split == "test" else f" ({_images(step.images)})"
    if (iou := step.figures.values.get("iou")) is not None:
        return f"Test mean IoU: {_figure('iou', iou)} on {count(step.figures.images, 'image')}{known}{views}."
    accuracy = _figure("accuracy", step.figures.values.get("accuracy"))
    return f"Test accuracy: {accuracy} on {count(step.figures.images, 'image')}{known}{views}."


def _merged(step: Merged) -> str:
    sentences = [f"The branches of {count(step.layers, 'layer')} were merged into one, lambda {step.share:g}."]
    if step.probability_shift is not None:
        sentences.append(
            f"On random images, probabilities differ from the average of two passes by up to "
            f"{step.probability_shift:.2g}."
        )
    if step.measured_on is not None:
        gains = "; ".join(f"{gain.metric} {_gain(gain)}" for gain in step.gains)
        sentences.append(f"Gains over the average of two passes on {_images(step.measured_on)}: {gains}.")
    return " ".join([*sentences, *step.notes])


def _recalibrated(step: Recalibrated) -> str:
    chosen = f" ({' and '.join(step.where)})" if step.where else ""
    where = f"{count(step.layers, 'layer')} from {_images(step.estimated_on)}{chosen}, without labels"
    if step.prior is None:
        sentences = [f"Normalisation statistics collected for {where}."]
    else:
        sentences = [f"Normalisation statistics re-estimated for {where}, prior {step.prior:g} images."]
    if step.mean_shift is not None:
        sentences.append(f"Means moved by {step.mean_shift:.3f} standard deviations on average.")
    if step.entropy is not None:
        sentences.append(_entropy(step.entropy))
    if step.changed_predictions is not None:
        sentences.append(f"{step.changed_predictions:.1%} of the predicted classes changed.")
    if step.measured_on is not None:
        gains = "; ".join(f"{gain.metric} {_gain(gain)}" for gain in step.gains)
        sentences.append(f"Gains on {_images(step.measured_on)}, held out: {gains}.")
    if step.source is not None:
        gains = "; ".join(f"{gain.metric} {_gain(gain)}" for gain in step.source_gains)
        sentences.append(f"Gains on the original domain, {_images(step.source)}: {gains}.")
    return " ".join([*sentences, *step.warnings])


def _entropy(step: EntropyMinimised) -> str:
    if not step.epochs:
        return "Entropy minimisation collapsed at once and was undone."
    stopped = ", where it was stopped because predictions began to collapse" if step.collapsed else ""
    return (
        f"Gamma and beta of {count(step.layers, 'layer')} were then adapted by entropy minimisation, "
        f"{count(step.epochs, 'epoch')} at a learning rate of {step.lr:g}{stopped}: mean entropy {step.before:.3f} to "
        f"{step.after:.3f} nats."
    )


def _averaged(step: Averaged) -> str:
    names = listing((member.name for member in step.members), limit=12)
    sentences = [f"The weights are the mean of {count(len(step.members), 'network')}: {names}."]
    if step.chosen_on is not None:
        sentences.append(f"Members were chosen on {_images(step.chosen_on)}.")
    if step.statistics_from is not None:
        sentences.append(f"Normalisation statistics were re-estimated on {_images(step.statistics_from)}.")
    if step.averaged_layers:
        sentences.append(
            f"In {count(step.averaged_layers, 'layer')} the statistics of auxiliary branches or modes are averages."
        )
    if step.measured_on is not None and step.figures is not None:
        gains = "; ".join(f"{gain.metric} {_gain(gain)}" for gain in step.gains)
        over = f" Gains over the best member: {gains}." if gains else ""
        sentences.append(f"{_score(step.figures, 'image')} of {step.measured_on.data.name}, split "
                         f"{step.measured_on.split}.{over}")  # fmt: skip
    return " ".join([*sentences, *step.warnings])


def _members(step: Averaged) -> Iterable[str]:
    """What was done to the members, each text once with those that it is true of."""
    members_by_text: dict[str, list[str]] = {}
    for member in step.members:
        for text in in_sentences(member.history):
            members_by_text.setdefault(text, []).append(member.name)
    for text, names in members_by_text.items():
        whose = "Each member" if len(names) == len(step.members) else listing(names, limit=12)
        yield f"{whose}: {text}"


def _images(images: Images) -> str:
    return f"{count(images.number, 'image')} of {images.data.name}, split {images.split}"


def _score(figures: Figures, what: str) -> str:
    name = "iou" if figures.values.get("iou") is not None else "accuracy"
    return f"{presentation_of(name).label} {_figure(name, figures.values.get(name))} on {count(figures.images, what)}"


def _figure(metric: str, value: float | None) -> str:
    return presentation_of(metric).figure(value)


def _gain(gain: Gain) -> str:
    """`+0.26 points (95%: -0.10 to +0.62), not significant`; positive is better."""
    return presentation_of(gain.metric).improvement(gain.improvement)
