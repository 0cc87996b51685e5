"""What every registered thing promises, whatever its kind: it can be listed, documented, configured and refused."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import pytest

from surgeon.cli import completion
from surgeon.commands.listing import REGISTRIES, ListedRegistry, document, documents, sweepable
from surgeon.core.entry import Entry
from surgeon.core.errors import SurgeonError
from surgeon.metrics import in_order, metrics, register
from surgeon.views import views

HOOKS = Path(__file__).parents[2] / "docs" / "hooks"
ALL = [
    pytest.param(kind, entry, id=f"{kind.name} {entry.name}") for kind in REGISTRIES.values() for entry in kind.entries
]


@pytest.mark.parametrize(("kind", "entry"), ALL)
def test_an_entry_says_what_it_is(kind: ListedRegistry, entry: Entry[Any]) -> None:
    assert isinstance(entry, Entry)
    assert (entry.noun, entry.listed) == (kind.registry.kind, kind.name)
    assert entry.summary.endswith(".")
    assert all(option["help"].endswith(".") for option in entry.options)
    assert list(document(entry)) == ["name", "summary", "paper", *entry.facts(), "options"]


@pytest.mark.parametrize(("kind", "entry"), ALL)
def test_its_options_are_checked(kind: ListedRegistry, entry: Entry[Any]) -> None:
    config = entry.configure({})
    assert entry.configure(config.model_dump()) == config
    with pytest.raises(SurgeonError, match=f"The {entry.noun} '{entry.name}' has no option 'colour'"):
        entry.configure({"colour": 1})
    if entry.options:
        with pytest.raises(SurgeonError, match="cannot take") as caught:
            entry.configure(dict.fromkeys(config.model_dump(), object()))
        assert f"surgeon ls {kind.name}" in caught.value.hint


@pytest.mark.parametrize("kind", REGISTRIES.values(), ids=REGISTRIES)
def test_a_kind_is_listed_completed_and_documented(kind: ListedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOOKS))
    overview = importlib.import_module("tables").TABLES[kind.name](None)
    names = [entry.name for entry in kind.entries]
    assert [each["name"] for each in documents(kind)] == names
    assert getattr(completion, kind.name)("") == names
    assert all(f"| `{name}` |" in overview for name in names)


def test_what_can_be_swept_is_a_number_within_its_bounds() -> None:
    assert sweepable() == {
        "example-weighted.alpha": (0.0, 0.3),
        "instance-aware.k": (2.0, 32.0),
        "instance-aware.weight": (0.0, 1.0),
    }
    for name, ends in sweepable().items():
        rewrite, _, option = name.partition(".")
        for end in ends:
            assert getattr(REGISTRIES["norms"].registry[rewrite].configure({option: end}), option) == end


def test_metrics_are_shown_in_one_order() -> None:
    assert [metric.name for metric in in_order()] == [
        "iou", "accuracy", "top5", "cross-entropy", "scaled-cross-entropy", "ece", "rms", "mad", "aurra", "soft-f1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "Their metric"}, "a name that cannot be typed"),
        ({"name": "temperature"}, "cannot be called 'temperature'"),
        ({"format": "4 digits"}, "cannot have the format '4 digits'"),
        ({"format": ".1%", "unit": "ms"}, "cannot have the format"),
    ],
)
def test_a_metric_that_could_not_be_shown_is_refused(changes: dict[str, Any], says: str) -> None:
    given = {"name": "theirs", "higher_is_better": True} | changes
    before = list(metrics)
    with pytest.raises(SurgeonError, match=says):

        @register(**given)
        def theirs(images: Any) -> float:  # noqa: ARG001
            """Somebody else's."""
            return math.nan

    assert list(metrics) == before


def test_what_does_not_say_what_it_is_is_refused() -> None:
    with pytest.raises(SurgeonError, match="The metric 'theirs' has no description"):
        register("theirs", higher_is_better=True)(lambda images: math.nan)  # noqa: ARG005


@pytest.mark.parametrize(("options", "count"), [({}, 162), ({"padding": 1}, 18)])
def test_the_number_of_views_follows_the_options(options: dict[str, int], count: int) -> None:
    family = views["cifar-flip-crop"]
    assert family.number(family.configure(options)) == count
