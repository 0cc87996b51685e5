"""Study files: strict, every mistake at once, and every variant spelled out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from surgeon.core.errors import SurgeonError
from surgeon.studies.definition import Cell, Comparison
from surgeon.studies.file import check_study, load_study

SMALLEST: dict[str, Any] = {
    "model": "digits-resnet8",
    "data": "digits",
    "variants": {"plain": None, "ghost": {"bn": "ghost"}},
}
SHIPPED = Path(__file__).parents[3] / "recipes" / "studies" / "digits-small.yaml"


def refusal(content: dict[Any, Any]) -> str:
    with pytest.raises(SurgeonError) as error:
        check_study(content, Path("mine.yaml"))
    return error.value.message


def test_every_variant_is_spelled_out() -> None:
    content = {
        **SMALLEST,
        "recipe": {"recipe": "baseline-small", "epochs": 3, "validate_every": 3},
        "variants": {"plain": None, "ghost": {"bn": "ghost:size=5", "lr": 0.1}, "other": {"recipe": "snapshot-small"}},
    }
    plain, ghost, other = check_study(content, Path("mine.yaml")).variants
    assert (plain.recipe["epochs"], plain.recipe["lr"], plain.recipe["batch_size"]) == (3, 0.05, 20)
    assert (ghost.recipe["bn"], ghost.recipe["lr"], ghost.epochs) == (["ghost:size=5"], 0.1, 3)
    assert other.epochs == 40  # it starts from its own recipe alone
    assert other.snapshots == 4


def test_by_default_three_seeds_are_tested_and_compared_with_the_first_variant() -> None:
    study = check_study(SMALLEST, Path("mine.yaml"))
    assert study.name == "mine"
    assert study.seeds == (0, 1, 2)
    assert list(study.evaluations) == ["test"]
    assert study.comparisons == (Comparison(Cell("ghost", "test"), Cell("plain", "test")),)


def test_all_mistakes_are_told_at_once() -> None:
    message = refusal(
        SMALLEST
        | {"seed": 3, "seeds": 0, "metrics": ["acuracy"], "cpus": True}
        | {"evaluations": {"noisy": {"under": "gaussian-nose"}, "two": {"ttta": "flip"}}}
    )
    assert message.startswith("5 problems in 'mine.yaml'")
    for text in ("there is no key 'seed' (did you mean seeds", "seeds=0", "acuracy", "cpus=True", "ttta"):
        assert text in message, text


def test_comparisons_are_checked_beside_other_mistakes_and_what_variants_share_is_told_once() -> None:
    message = refusal(
        SMALLEST
        | {"recipe": {"lr": -1}, "comparisons": {"ghost": "plan", "plain/odd": "plain/test"}}
        | {"variants": {"plain": None, "ghost": {"bn": "ghots"}}, "evaluations": {"odd": {"lim": 3}, "test": None}}
    )
    assert message.startswith("4 problems in 'mine.yaml'"), message
    assert message.count("lr=-1") == 1
    assert "variants 'plain' and 'ghost': lr=-1" in message
    assert "no evaluation compares 'ghost' with 'plan'" in message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"variants": {}}, "there are no variants"),
        ({"variants": {"a/b": None}}, "cannot be called 'a/b'"),
        ({"variants": {"a": {"epoch": 3}}}, "variant 'a': there is no key 'epoch'"),
        ({"variants": {"a": {"epochs": 3, "snapshots": 2}}}, "variant 'a': epochs=3 is not a multiple of snapshots=2"),
        ({"variants": {"a": {"seed": 3}}}, "variant 'a': seed: the study gives each run its own"),
        ({"variants": {"a": {"model": "resnet5O"}}}, "variant 'a': There is no model 'resnet5O'"),
        ({"variants": {"a": {"weights": "nowhere.pth"}}}, "there is no weights file 'nowhere.pth'"),
        ({"variants": {"a": {"recipe": "baselin-small"}}}, "There is no recipe 'baselin-small'"),
        ({"data": None}, "there is no `data`"),
        ({"seeds": [1, 1]}, "each once"),
        ({"seeds": [True]}, "seeds"),
        ({"seeds": -1}, "seeds"),
        ({"seeds": 10**30}, "seeds="),
        ({"seeds": [10**30]}, "seeds"),
        ({"model": 3}, "model=3"),
        ({"data": ["a"]}, "data=['a']"),
        ({True: 1}, "there is no key 'True'"),
        ({"variants": {True: None}}, "variants"),
        ({"evaluations": {"s": {"where": ["style"]}}}, "evaluation 's': --where cannot be 'style'"),
        ({"evaluations": {}}, "there are no evaluations"),
        ({"evaluations": {"s": {"ensemble": "snapshots"}}}, "evaluation 's': no variant has snapshots"),
        ({"evaluations": {"s": {"variants": "ghos"}}}, "there is no variant 'ghos'"),
        ({"evaluations": {"s": {"under": ["gaussian-nose"]}}}, "gaussian-nose"),
        ({"evaluations": {"s": {"tta": "flipp"}}}, "flipp"),
        ({"evaluations": {"s": {"alpha": 2}}}, "evaluations.s.alpha=2"),
        ({"evaluations": {"s": {"recalibrate": -1}}}, "evaluations.s.recalibrate=-1"),
        (
            {"evaluations": {"s": {"recalibrate": 64, "tta": "flip"}}},
            "recalibrate does not go with under, tta, lambda and features",
        ),
        ({"comparisons": {"ghost": "plan"}}, "no evaluation compares 'ghost' with 'plan'"),
        ({"comparisons": {"ghost/tset": "plain/test"}}, "no evaluation compares 'ghost/tset'"),
        ({"memory": 0}, "memory=0"),
    ],
)
def test_a_mistake_is_told(content: dict[Any, Any], says: str) -> None:
    assert says in refusal({**SMALLEST, **content})


def test_cells_of_different_evaluations_are_compared() -> None:
    content = {
        **SMALLEST,
        "evaluations": {"test": None, "flip": {"tta": "flip"}},
        "comparisons": {"plain/flip": "plain/test", "ghost": "plain"},
    }
    assert [tuple(map(str, one)) for one in check_study(content, Path("mine.yaml")).comparisons] == [
        ("plain/flip", "plain/test"),
        ("ghost/test", "plain/test"),
        ("ghost/flip", "plain/flip"),
    ]


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "variants: {a: 1}\nvariants: {b: 1}", "\xff"])
def test_what_is_no_study_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(SurgeonError, match=r"mine\.yaml"):
        load_study(file)


def test_the_shipped_study_compares_the_mean_of_snapshots_with_the_baseline() -> None:
    study = load_study(SHIPPED)
    assert len(study.variants) == 9
    assert len(study.comparisons) == 7 * 1 + 1
    assert "snapshot-small/snapshots" in {str(one.candidate) for one in study.comparisons}
    assert yaml.safe_load(SHIPPED.read_text())["seeds"] == len(study.seeds)
