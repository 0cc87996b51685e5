"""Robustness in words: what figures are called, how they read, and what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon.core.errors import count
from surgeon.core.presentation import Improvement, Presentation
from surgeon.report import wording

if TYPE_CHECKING:
    from surgeon.results import Figure, Robustness

LABELS = {
    "clean-error": "error on clean images",
    "corruption-error": "mean error over corruptions (uCE)",
    "loss": "increase over clean error",
    "mce": "mCE",
    "relative-mce": "relative mCE",
}


SHARE = Presentation("error", "error", format=".2%")
OF_MASKS = "Masks: the error is 1 - mean IoU, and what moves pixels (elastic-transform) moves masks too."


def of_masks(result: Robustness) -> bool:
    """Whether networks were measured on images with masks."""
    return result.networks[0].conditions[0].metrics.primary == "iou"


def label(key: str) -> str:
    """What to call a figure."""
    return LABELS.get(key) or f"{wording.label(key)}, under corruptions"


def headed(key: str) -> str:
    """The same with the direction that is better."""
    return f"{label(key)} {arrow(key)}".strip()


def value_text(key: str, value: float) -> str:
    """A figure as people read it: errors in percent, metrics as they say themselves."""
    return f"{value:.2%}" if key in LABELS else wording.figure(key, value)


def arrow(key: str) -> str:
    """Which way is better."""
    return "↓" if key in LABELS else wording.arrow(key)


def against_text(figure: Figure) -> str:
    """The gain over the baseline with its interval; positive is better."""
    if (against := figure.against_baseline) is None:
        return "baseline"
    higher_is_better = arrow(figure.key) != "↓"
    found = Improvement.of(against.difference, against.low, against.high, higher_is_better=higher_is_better)
    return (SHARE if figure.key in LABELS else wording.shown(figure.key)).improvement(found)


def names_of(result: Robustness) -> list[str]:
    """The networks by names that tell them apart."""
    short = wording.short_names(list(dict.fromkeys(network.model for network in result.networks)))
    names = [short[network.model] for network in result.networks]
    twice = {name for name in names if names.count(name) > 1}
    return [f"{name} ({number})" if name in twice else name for number, name in enumerate(names, 1)]


def in_sentences(result: Robustness) -> list[str]:
    """What the figures say, most important first."""
    names = names_of(result)
    first = result.networks[0]
    sentences = []
    error, clean = first.figure("corruption-error"), first.figure("clean-error")
    if error is not None:
        versus = f"; on clean images it is {clean.value:.2%}" if clean is not None else ""
        counted = [one for one in first.corruptions if one.family != "extra"]
        sentences.append(
            f"The mean error of {names[0]} over {count(len(counted), 'corruption')} is {error.value:.2%} "
            f"(95%: {error.low:.2%} to {error.high:.2%}){versus}."
        )
        if len(counted) > 1:
            worst = max(counted, key=lambda one: one.error.value)
            sentences.append(f"{worst.corruption} is the worst of them: {worst.error.value:.2%}.")
    for name, network in zip(names[1:], result.networks[1:], strict=True):
        compared = [f"{label(f.key)} {against_text(f)}" for f in network.figures if f.key in LABELS]
        sentences.append(f"Gains of {name} over {names[0]}: {'; '.join(compared) or 'see the table'}.")
    for name, network in zip(names, result.networks, strict=True):
        attacks = [one for one in network.conditions if one.family == "attack"]
        if attacks:
            strongest = min(attacks, key=lambda one: one.metrics.accuracy)
            sentences.append(
                f"The strongest attack, {strongest.condition}, leaves {name} an accuracy of "
                f"{strongest.metrics.accuracy:.2%}."
            )
        failed = [check for check in network.attack_checks if not check.passed]
        if failed:
            sentences.append(
                f"{name}: {count(len(failed), 'sanity check')} of attacks failed ({failed[0].expectation}). Its "
                "gradients may be masked: its accuracy under attack does not prove robustness."
            )
    if not sentences:
        worst_of_all = max(first.conditions, key=lambda one: one.error)
        sentences.append(
            f"The worst of {count(len(first.conditions), 'condition')} for {names[0]} is {worst_of_all.condition}: an "
            f"error of {worst_of_all.error:.2%}{f'; on clean images it is {clean.value:.2%}' if clean else ''}."
        )
    if error is not None and not result.complete:
        sentences.append("Not all fifteen corruptions at all severities: the mean is not the published uCE.")
    elif error is not None and result.made_here:
        sentences.append("Frost has surgeon's own texture, so the mean is not comparable with published figures.")
    return [*sentences, OF_MASKS] if of_masks(result) else sentences
