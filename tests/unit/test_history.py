"""What follows from a history: what data, whether the weights are the original's, which figures still hold."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from surgeon.checkpoint.sentences import in_sentences
from surgeon.models.facts import DataKind, Figures
from surgeon.models.history import Converted, Earlier, Exported, History, Renamed, Saved, Step
from surgeon.models.lineage import common_start, is_fully_known, last_test, training_data, what_changed_weights
from surgeon.results.steps import data_set
from tests.histories import CIFAR, OWN, averaged, every_step, fine_tuned, merged, on_test_images, swept, temperature

HISTORY: TypeAdapter[tuple[Step, ...]] = TypeAdapter(History)


def converted(shift: float | None) -> Converted:
    return Converted(rewrites="ghost:size=4", layers=7, units=0, output_shift=shift)


def proven(difference: float) -> Converted:
    return converted(0.0).model_copy(update={"identity_difference": difference})


def test_there_is_one_of_every_kind() -> None:
    kinds = {kind.model_fields["kind"].default for kind in get_args(get_args(Step)[0])}
    assert {step.kind for step in every_step()} == kinds


def test_the_schema_is_documented() -> None:
    """Every kind of step has a row, which names all of its fields."""
    page = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text("utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    for kind in get_args(get_args(Step)[0]):
        fields = {name for name in kind.model_fields if name != "kind"}
        row = rows[kind.model_fields["kind"].default]
        assert {name for name in fields if f"`{name}`" not in row} == set(), row


def test_a_history_survives_being_written_and_read() -> None:
    """Figures that are not finite too."""
    from surgeon.checkpoint.record import Surgery
    from surgeon.models.origin import BaseWeights
    from surgeon.surgery.plan import ResolvedPlan

    record = Surgery(
        surgeon_version="0",
        source=None,
        base_weights=BaseWeights(origin="mine"),
        preprocessing=None,
        plan=ResolvedPlan(operations=()),
        history=every_step(),
    )
    again = Surgery.model_validate_json(record.model_dump_json())
    assert again == record
    assert again.history[6].as_trained.values["cross-entropy"] == float("inf")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "change",
    [
        {"share": 1.5}, {"share": float("nan")}, {"layers": -1}, {"layers": 1 << 60}, {"notes": ["x" * 10_001]},
        {"notes": ["x"] * 1001}, {"kind": "eaten"}, {"more": 1},
    ],
)  # fmt: skip
def test_a_step_is_validated_and_bounded(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        HISTORY.validate_python([{**merged().model_dump(), **change}])


def test_a_history_is_bounded() -> None:
    with pytest.raises(ValidationError):
        HISTORY.validate_python([Exported(target="onnx")] * 1001)


# --- what follows from it


@pytest.mark.parametrize(
    ("history", "changed", "known"),
    [
        ((), (), True),
        ((converted(0.1), swept(), temperature(), on_test_images()), (), True),
        ((fine_tuned(), converted(0.0)), ("fine-tuned",), True),
        ((fine_tuned(), merged()), ("fine-tuned", "merged"), True),
        ((averaged((fine_tuned(),), ()),), ("fine-tuned", "averaged"), True),
        ((Saved(),), (), False),
        ((Earlier(surgeon_version="0.1.0"),), (), False),
        ((averaged((Saved(),), ()),), ("averaged",), False),
    ],
)
def test_whether_the_weights_are_the_originals(
    history: tuple[Step, ...], changed: tuple[str, ...], known: bool
) -> None:
    assert what_changed_weights(history) == changed
    assert is_fully_known(history) is known


def test_all_data_that_were_trained_on() -> None:
    assert training_data((converted(0.0), fine_tuned(), swept(), fine_tuned(OWN))) == (CIFAR, OWN)
    assert training_data((fine_tuned(OWN), fine_tuned(), fine_tuned(OWN))) == (CIFAR, OWN), "the latest last"
    assert training_data((averaged((fine_tuned(),), (fine_tuned(OWN),)),)) == (CIFAR, OWN)
    assert training_data((Saved(), on_test_images())) == ()


@pytest.mark.parametrize(
    "step", [temperature(), swept(stored=False), converted(0.0), Renamed(), Exported(target="timm")]
)
def test_a_test_figure_holds_while_the_classes_stay(step: Step) -> None:
    assert last_test((fine_tuned(), on_test_images(), step)) == on_test_images()


@pytest.mark.parametrize(
    "step", [swept(), converted(0.1), converted(None), merged(), averaged(), fine_tuned(), Saved()]
)
def test_a_test_figure_falls_when_the_network_changes(step: Step) -> None:
    assert last_test((fine_tuned(), on_test_images(), step)) is None
    assert last_test((fine_tuned(), on_test_images(), step, on_test_images(OWN))) == on_test_images(OWN)


def test_the_common_start_of_histories() -> None:
    first, second = (converted(0.0), fine_tuned(), swept()), (converted(0.0), fine_tuned(), on_test_images())
    assert common_start([first, second]) == first[:2]
    assert common_start([first, ()]) == ()
    assert common_start([first, first]) == first


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("digits", ("digits", DataKind.BUNDLED, None)),
        ("cifar10", ("cifar10", DataKind.HUB, "uoft-cs/cifar10")),
        ("hf:me/birds", ("me/birds", DataKind.HUB, "me/birds")),
        ("hf:me/birds:large", ("me/birds:large", DataKind.HUB, "me/birds")),
        ("/home/me/digits", ("digits (a local folder)", DataKind.FILES, None)),
        ("some/birds.parquet", ("birds.parquet", DataKind.FILES, None)),
    ],
)
def test_what_data_are_called(spec: str, expected: tuple[str, DataKind, str | None]) -> None:
    """Without their place on this machine, and never taken for data that others know by the name."""
    data = data_set(spec)
    assert (data.name, data.kind, data.hub) == expected


# --- in sentences


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (converted(0.0), "Converted to ghost:size=4: 7 layers."),
        (proven(0.0), "Converted to ghost:size=4: 7 layers. At the identity setting, outputs are identical."),
        (
            proven(2e-7),
            "Converted to ghost:size=4: 7 layers. At the identity setting, outputs differ by 2.0e-07 (relative).",
        ),
        (
            fine_tuned(),
            "Fine-tuned on cifar10: 45,000 images. 10 classes, 3 epochs; snapshot 2 of 3; accuracy 91.00% on 5,000 "
            "validation images held back from the training images, as trained. Resumed with a learning rate of 0.1 "
            "in place of 1.",
        ),
        (
            swept(),
            "Swept alpha on 500 images of cifar10, split validation, 500 more held out: 2 values, by accuracy, views "
            "flip. alpha 0.05: accuracy 89.00% to 91.00% on the held-out images, gain +2.00 points (95%: +1.00 to "
            "+3.00). It was stored because of --force. Settings are chosen on half of the test images.",
        ),
        (on_test_images(), "Test accuracy: 93.21% on 10,000 images, views flip."),
        (
            Renamed(rules=(r"stage_(\d)=layer\1",), layers={"stem": "conv1"}, checked=18, norms=19),
            r"Tensors of the weights file renamed by stage_(\d)=layer\1. 1 layer of the weights file matched by order "
            "and shape. Stored means agree with those of the layer's input in 18 of 19 BatchNorm layers.",
        ),
        (Exported(target="onnx", folded=1), "Exported to onnx, with 1 BatchNorm layer folded into convolutions."),
    ],
)
def test_a_step_in_sentences(step: Step, expected: str) -> None:
    assert in_sentences([step]) == (expected,)


def test_what_was_not_stored_is_told() -> None:
    (told,) = in_sentences([swept(stored=False)])
    assert "The original is kept." in told
    assert "stored" not in told


def test_members_are_told_apart() -> None:
    whole, first, second = in_sentences([averaged((fine_tuned(),), (fine_tuned(), swept()))])
    assert whole.startswith("The weights are the mean of 2 networks: run/0 and run/1.")
    assert first.startswith("Each member: Fine-tuned on cifar10")
    assert second.startswith("run/1: Swept alpha")


def test_figures_that_are_not_finite_are_told() -> None:
    nothing = Figures(images=3, values={"accuracy": float("nan")})
    (told,) = in_sentences([on_test_images().model_copy(update={"figures": nothing})])
    assert told.startswith("Test accuracy: not finite on 3 images")
