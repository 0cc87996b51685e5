"""What an ensemble means, in sentences."""

from __future__ import annotations

from surgeon.core.errors import count, listing
from surgeon.data.named_splits import WHOLE
from surgeon.report.wording import figure, gain_text, label, short_names
from surgeon.results import Combination, Ensemble

TRAINED_ON = (WHOLE, "train")
"""Splits of which fine-tuning would have taken images to train on."""


def in_sentences(result: Ensemble) -> tuple[str, ...]:
    """What averaging brought; how different the members are; which were chosen; what their weights' average is."""
    first, *others = result.combinations
    sentences = [_gain(result, first), _disagreement(result)]
    for combination in others:
        if combination.name == "soup":
            sentences += _soup(result, combination)
        else:
            sentences += _greedy(result, combination)
    if result.split in TRAINED_ON:
        sentences.append(
            f"These are the images of the split {result.split!r}: if members were trained on them, every figure here "
            "is too good. Measure on other images, in test/ or with --data."
        )
    return tuple(sentences)


def _gain(result: Ensemble, combination: Combination) -> str:
    metric = result.metric
    gain = combination.gain(metric)
    names = short_names([member.name for member in result.members])
    value = figure(metric, combination.metrics.value(metric))
    best = next(member for member in result.members if member.name == result.best)
    sentence = (
        f"The average of {combination.passes} members gives {label(metric)} {value}, the best of them "
        f"({names[result.best]}) {figure(metric, best.metrics.value(metric))}: gain {gain_text(gain)}"
    )
    over_mean = next((gain for gain in combination.over_mean if gain.metric == metric), None)
    if over_mean is not None:
        sentence += f"; over the mean member {gain_text(over_mean)}"
    worse = not gain.within_noise and not gain.better
    return f"{sentence}. The best member alone is better." if worse else f"{sentence}."


def _disagreement(result: Ensemble) -> str:
    share = f"{result.mean_disagreement:.2%}"
    if result.mean_disagreement == 0:
        return "All members predict the same class for every image, so averaging can only change the confidence."
    return f"Two members disagree on {share} of the images on average."


def _greedy(result: Ensemble, combination: Combination) -> list[str]:
    choice, metric = result.choice, result.metric
    assert choice is not None
    names = short_names([member.name for member in result.members])
    where = "the other half of the split" if choice.half else f"split {choice.split}"
    start = f"Chosen by {label(metric)} on {count(choice.images, 'other image')} ({where}): "
    if len(combination.members) == 1:
        return [f"{start}{names[combination.members[0]]} alone, which no other member improves."]
    chosen = listing([names[name] for name in combination.members])
    value = figure(metric, combination.metrics.value(metric))
    return [
        f"{start}{chosen}, {len(combination.members)} of {len(result.members)}. Their average gives {value} here; "
        f"over the best member {gain_text(combination.gain(metric))}."
    ]


def _soup(result: Ensemble, combination: Combination) -> list[str]:
    metric, statistics = result.metric, result.statistics
    assert statistics is not None
    value = figure(metric, combination.metrics.value(metric))
    sentences = [
        f"The soup, one network with the mean weights of {len(combination.members)} and BatchNorm statistics of "
        f"{statistics.images:,} images (split {statistics.split}), gives {value}; "
        f"over the best member {gain_text(combination.gain(metric))}."
    ]
    if statistics.averaged_layers:
        sentences.append(
            f"In {len(statistics.averaged_layers)} of its layers the statistics of auxiliary branches or modes are "
            "averages of the members' and were not re-estimated."
        )
    if result.split == statistics.split:
        sentences.append("Its statistics come from the images that it is measured on, so its figures are optimistic.")
    return sentences
