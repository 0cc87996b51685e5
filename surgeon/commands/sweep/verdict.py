"""What a sweep means, in sentences."""

from __future__ import annotations

from surgeon.metrics import Metrics
from surgeon.report.wording import figure, gain_text, gained, label, unit
from surgeon.results import Learned, Setting


def in_sentences(
    axis: str,
    metric: str,
    original: Setting,
    chosen: Setting,
    learned: list[tuple[Learned, Setting]],
    best: Setting,
    *,
    barred: str | None = None,
) -> tuple[str, ...]:
    """The choice and whether it is real; what learning added; ranking or confidence; how far to trust it.

    `barred` would have been the choice, had it not lost too much accuracy on clean images.
    """
    sentences = [
        _choice(axis if barred is None else f"{axis} within the bound on clean images", metric, original, chosen)
    ]
    if barred is not None:
        sentences.append(
            f"{barred} is best under the conditions, but loses more accuracy on clean images than allowed."
        )
    sentences += [_learning(metric, record, setting) for record, setting in learned]
    if best.name != original.name:
        if best.gain(best.reported.primary) is not None:  # by a score of one's own nothing is known of classes
            told = metric if best.name == chosen.name else ""
            sentences.append(_ranking_or_confidence(original.reported, best, told))
        if best.confirming is None:
            sentences.append(
                "Chosen and measured on the same images, which flatters the gain: `surgeon sweep --confirm` measures "
                "on held-out images."
            )
    elif original.reported.temperature is not None:
        sentences.append(_temperature_alone(original.reported))
    if best.clean is not None and best.clean_gain is not None and original.clean is not None:
        name = best.clean_gain.metric
        before, after = (figure(name, one.value(name)) for one in (original.clean, best.clean))
        sentences.append(f"On clean images: {label(name)} {before} → {after}, gain {gain_text(best.clean_gain)}.")
    return tuple(sentences)


def _choice(axis: str, metric: str, original: Setting, chosen: Setting) -> str:
    before = figure(metric, original.reported.value(metric))
    gain = chosen.gain(metric)
    if gain is None:
        return f"No {axis} beats the original network by {label(metric)} ({before}): keep it as it is."
    after = figure(metric, chosen.reported.value(metric))
    held_out = chosen.confirming
    where = f" on {held_out.images:,} held-out images" if held_out is not None else ""
    name = chosen.name[0].upper() + chosen.name[1:]
    sentence = f"{name}: {label(metric)} {before} → {after}{where}, gain {gain_text(gain)}"
    worse = not gain.within_noise and not gain.better
    return f"{sentence}. The gain was not confirmed: keep the original." if worse else f"{sentence}."


def _learning(metric: str, learned: Learned, setting: Setting) -> str:
    gain = setting.gain(metric)
    assert gain is not None
    fitted, held_out = (gained(metric, g) for g in (learned.gain_choosing, learned.gain_confirming))
    after = figure(metric, setting.reported.value(metric))
    return (
        f"{setting.name}, {learned.numbers:,} numbers: {label(metric)} {after}, gain {gain_text(gain)}. Overfitting: a "
        f"gain of {fitted}{unit(metric)} on the images it was fitted on, {held_out}{unit(metric)} on held-out images."
    )


def _ranking_or_confidence(before: Metrics, setting: Setting, told: str) -> str:
    """Which part of the gain a single temperature would have given as well; the gain in one metric is told already."""
    after = setting.reported
    first, scaled = setting.gain(after.primary), setting.gain("scaled-cross-entropy")
    assert first is not None
    assert scaled is not None
    whole, ranking = before.cross_entropy - after.cross_entropy, -scaled.difference
    noise = ", not significant" if scaled.within_noise else ""
    after_scaling = (
        f"After temperature scaling: {before.scaled_cross_entropy:.4f} → {after.scaled_cross_entropy:.4f}{noise}."
    )
    of = "the gain in cross-entropy" if told == "cross-entropy" else "that"
    if before.temperature is None or not whole > 0:
        share = "No gain."
    elif ranking <= 0:
        share = f"Temperature scaling alone ({before.temperature:.3f}) gives all of {of}; ranking is no better."
    elif ranking > whole:
        share = f"Ranking gains {ranking:.4f}, and confidence loses {ranking - whole:.4f}: add --temperature."
    else:
        given = f"{whole - ranking:.4f} of {of}"
        share = f"Temperature scaling alone ({before.temperature:.3f}) gives {given}; the rest is better ranking."
    change = f"Cross-entropy {before.cross_entropy:.4f} → {after.cross_entropy:.4f}."
    parts = [
        "" if told == "cross-entropy" else change,
        share,
        after_scaling,
        "" if told == first.metric else f"Gain in {label(first.metric)}: {gain_text(first)}.",
    ]
    return " ".join(filter(None, parts))


def _temperature_alone(original: Metrics) -> str:
    return (
        f"A temperature of {original.temperature:.3f} alone takes its cross-entropy from {original.cross_entropy:.4f} "
        f"to {original.scaled_cross_entropy:.4f}: `surgeon sweep --temperature` stores it."
    )
