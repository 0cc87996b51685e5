"""What a sweep means, in sentences."""

from __future__ import annotations

from surgeon.metrics import Metrics
from surgeon.report.wording import difference, figure, gain_text, label, unit
from surgeon.results import Learned, Setting


def in_sentences(
    axis: str, metric: str, original: Setting, chosen: Setting, learned: list[tuple[Learned, Setting]], best: Setting
) -> tuple[str, ...]:
    """The choice and whether it is real; what learning added; ranking or confidence; how far to trust it."""
    sentences = [_choice(axis, metric, original, chosen)]
    sentences += [_learning(metric, record, setting) for record, setting in learned]
    if best.name != original.name:
        sentences.append(_ranking_or_confidence(original.reported, best))
        if best.confirming is None:
            sentences.append(
                "Chosen and measured on the same images, which flatters the gain: `surgeon sweep --confirm` holds "
                "half back."
            )
    elif original.reported.temperature is not None:
        sentences.append(_temperature_alone(original.reported))
    return tuple(sentences)


def _choice(axis: str, metric: str, original: Setting, chosen: Setting) -> str:
    before = figure(metric, original.reported.value(metric))
    gain = chosen.gain(metric)
    if gain is None:
        return f"No {axis} beats the original network by {label(metric)} ({before}): keep it as it is."
    after = figure(metric, chosen.reported.value(metric))
    where = " on held-out images" if chosen.confirming is not None else ""
    sentence = f"{chosen.name} gives {label(metric)} {after}{where}, the original {before}: {gain_text(gain)}"
    if gain.better or gain.within_noise:
        return f"{sentence}."
    return f"{sentence}. The choice did not hold up: keep the original."


def _learning(metric: str, learned: Learned, setting: Setting) -> str:
    gain = setting.gain(metric)
    assert gain is not None
    fitted, held_out = (difference(metric, g) for g in (learned.gain_choosing, learned.gain_confirming))
    return (
        f"{setting.name}, {learned.numbers:,} numbers, gives {label(metric)} "
        f"{figure(metric, setting.reported.value(metric))}: {gain_text(gain)}; overfitting: the gain is "
        f"{fitted}{unit(metric)} on the images it was fitted on and {held_out}{unit(metric)} on held-out ones."
    )


def _ranking_or_confidence(before: Metrics, setting: Setting) -> str:
    """Which part of the gain a single temperature would have given as well."""
    after = setting.reported
    accuracy, scaled = setting.gain("accuracy"), setting.gain("scaled-cross-entropy")
    assert accuracy is not None
    assert scaled is not None
    whole = before.cross_entropy - after.cross_entropy
    ranking = -scaled.difference
    sentence = f"Cross-entropy {before.cross_entropy:.4f} → {after.cross_entropy:.4f}"
    noise = ", not significant" if scaled.within_noise else ""
    left = f"{before.scaled_cross_entropy:.4f} → {after.scaled_cross_entropy:.4f} after temperature scaling{noise}"
    if before.temperature is None or not whole > 0:
        sentence += f", no gain; {left}."
    elif ranking <= 0:
        sentence += f". Temperature scaling alone gives all of that; ranking is no better ({left})."
    elif ranking > whole:
        sentence += (
            f". Better ranking gives {ranking:.4f} ({left}), of which confidence loses {ranking - whole:.4f}: "
            "a temperature would restore it."
        )
    else:
        sentence += (
            f". Temperature scaling alone gives {whole - ranking:.4f} of that; the rest is better ranking ({left})."
        )
    return f"{sentence} Accuracy: {gain_text(accuracy)}."


def _temperature_alone(original: Metrics) -> str:
    return (
        f"A temperature of {original.temperature:.3f} alone takes its cross-entropy from {original.cross_entropy:.4f} "
        f"to {original.scaled_cross_entropy:.4f}: `surgeon sweep --temperature` stores it."
    )
