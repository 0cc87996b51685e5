"""`surgeon ls`: the rewrites with their options, and the models."""

from __future__ import annotations

import pytest
import timm
import torchvision

from surgeon.augment.base import augments
from surgeon.data.presets import PRESETS
from surgeon.losses.base import losses
from surgeon.metrics import metrics
from surgeon.models.catalog import CATALOG
from surgeon.norms import norms
from surgeon.views import views
from tests.cli.running import document, done, refusal


def test_norms_as_a_table() -> None:
    outcome = done("ls", "norms")
    for name in norms:
        assert name in outcome.stdout
    assert "alpha (0.0): Weight of the" in outcome.stdout  # and so on, in a narrow column
    assert "compose" in outcome.stderr


def test_norms_as_json() -> None:
    found = {entry["name"]: entry for entry in document("ls", "norms")}
    assert list(found) == list(norms)
    assert found["example-weighted"]["changes"] == ["inference"]
    assert found["ghost"]["changes"] == ["training"]
    (alpha,) = found["example-weighted"]["options"]
    assert (alpha["name"], alpha["default"], alpha["sweep"]) == ("alpha", 0.0, [0.0, 0.3])
    assert all(entry["summary"] and entry["paper"] for entry in found.values())
    assert all(option["help"] for entry in found.values() for option in entry["options"])


def test_norms_by_pattern() -> None:
    assert [entry["name"] for entry in document("ls", "norms", "gh*")] == ["ghost"]


def test_a_narrow_terminal_cuts_no_name_and_has_the_paper_beside_the_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surgeon.cli.output.PIPED_WIDTH", 80)
    monkeypatch.setattr("surgeon.cli.output.narrow", lambda: True)
    shown = done("ls", "losses").stdout
    assert all(f"│ {name} " in shown for name in losses)
    assert "paper" not in shown.splitlines()[2]
    assert "(Kannan et" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_term_says_which_copies_it_needs() -> None:
    found = {entry["name"]: entry["copies"] for entry in document("ls", "losses")}
    assert (found["cross-entropy"], found["alp"]) == ("any", "weak + adversarial")


def test_augments() -> None:
    found = {entry["name"]: entry for entry in document("ls", "augments")}
    assert list(found) == list(augments)
    assert found["vh-mixup"]["kind"] == "mix"
    assert found["weak"]["kind"] == "policy"
    assert [option["name"] for option in found["randaugment"]["options"]] == ["num_ops", "magnitude"]
    assert all(entry["summary"] and entry["paper"] for entry in found.values())
    assert all(option["help"] for entry in found.values() for option in entry["options"])
    text = done("ls", "augments").stdout
    assert all(name in text for name in augments)
    assert [entry["name"] for entry in document("ls", "augments", "rand*")] == [
        name for name in augments if name.startswith("rand")
    ]


def test_models_as_a_table_name_every_source() -> None:
    text = done("ls", "models").stdout
    for name in (*CATALOG, "torchvision:NAME", "hf-hub:OWNER/NAME", "FOLDER"):
        assert name in text
    assert f"{len(timm.list_models()):,} architectures of timm" in text


def test_models_by_pattern_are_plain_lines() -> None:
    lines = done("ls", "models", "resnet1*").stdout.splitlines()
    assert lines == sorted(timm.list_models("resnet1*"))


def test_models_of_torchvision_by_pattern() -> None:
    lines = done("ls", "models", "torchvision:resnet*").stdout.splitlines()
    assert lines == [f"torchvision:{name}" for name in torchvision.models.list_models(include="resnet*")]


def test_all_models_as_json() -> None:
    names = document("ls", "models")
    assert (
        len(names) == len(set(names)) == len(CATALOG) + len(timm.list_models()) + len(torchvision.models.list_models())
    )


def test_a_pattern_that_matches_nothing() -> None:
    for kind in ("models", "norms"):
        said = refusal("ls", kind, "nothing-like-this*")
        assert "'nothing-like-this*'" in said
        assert "glob" in said


@pytest.mark.parametrize(
    ("kind", "names"), [("metrics", list(metrics)), ("views", list(views)), ("datasets", ["digits", *PRESETS])]
)
def test_other_kinds(kind: str, names: list[str]) -> None:
    found = document("ls", kind)
    assert [entry["name"] for entry in found] == names
    assert all(entry["what"] for entry in found)
    text = done("ls", kind).stdout
    assert all(name in text for name in names)
    assert names[0] in done("ls", kind, f"{names[0]}*").stdout
    refusal("ls", kind, "nothing-like-this")
