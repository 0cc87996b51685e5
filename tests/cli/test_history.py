"""Whatever is done to a checkpoint, its record loses nothing, and its card tells the truth at each point."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard

import surgeon
from surgeon.checkpoint import open_model
from surgeon.models.history import Averaged, FineTuned, Swept
from tests.cli.hub import Hub
from tests.cli.running import document, done

STORED = Path(__file__).parents[1] / "stored" / "schema-1"
FEW = ("--data", "digits", "--limit", 60)
AS_BEFORE, FINE_TUNED = "predicts as the original did", "predicts with the fine-tuned weights"


def history(folder: Path | str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = json.loads((Path(folder) / "surgery.json").read_text("utf-8"))["history"]
    return steps


def kinds(folder: Path | str) -> list[str]:
    return [step["kind"] for step in history(folder)]


def card(folder: Path | str) -> str:
    """As it was written, which is as it would be written again."""
    text = (Path(folder) / "README.md").read_text("utf-8")
    assert text == done("card", folder).stdout
    return text


def quoted(folder: Path | str) -> Any:
    """The test figures in the header of the card."""
    return ModelCard(card(folder)).data.eval_results


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tuned networks: one with alpha and snapshots, one that is split."""
    folder = tmp_path_factory.mktemp("runs")
    common = ("finetune", "digits-resnet8", *FEW, "--workers", 0, "--no-pretrained", "--set", "lr=0.1")
    done(*common, "--epochs", 2, "--snapshots", 2, "--bn", "example-weighted", "-o", folder / "weighted")
    done(*common, "--epochs", 1, "--bn", "split", "--set", "sweep=null", "-o", folder / "split")
    return folder


def test_fine_tuning_is_a_fact(runs: Path) -> None:
    result = json.loads((runs / "weighted" / "result.json").read_text("utf-8"))
    converted, trained, swept, tested = history(runs / "weighted" / "checkpoint")
    assert (converted["kind"], converted["rewrites"]) == ("converted", "example-weighted")
    assert trained["data"] == {"name": "digits", "kind": "bundled", "hub": None}
    assert (trained["classes"], trained["train_images"]) == (10, 60)
    assert trained["recipe"] == result["recipe"]
    assert trained["validation"]["values"]["cross-entropy"] == result["validation"]["cross_entropy"]
    assert (swept["kind"], swept["axis"], swept["chosen_on"]["split"]) == ("swept", "alpha", "validation")
    assert tested["figures"]["values"]["accuracy"] == result["test"]["accuracy"]
    (shown,) = quoted(runs / "weighted" / "checkpoint")
    assert shown.metric_value == pytest.approx(result["test"]["accuracy"], abs=1e-6)
    assert FINE_TUNED in card(runs / "weighted" / "checkpoint")


def test_every_step_of_a_chain_is_kept(runs: Path) -> None:
    """Fine-tuned, swept, given a temperature, converted, and merged: the facts of all of them are there."""
    steps = history(runs / "split" / "checkpoint")
    assert [step["kind"] for step in steps] == ["converted", "fine-tuned", "tested"]
    chain: list[tuple[tuple[object, ...], str, list[str]]] = [
        (
            ("sweep", "CKPT", *FEW, "--alpha", "0,0.4", "--apply", "--force", "--temperature", "-o", "a"),
            "a/checkpoint",
            ["converted", "swept", "temperature fitted"],
        ),
        (("eval", "CKPT", *FEW, "--temperature", "--force", "-o", "b"), "b/checkpoint", ["temperature fitted"]),
        (("convert", "CKPT", "--bn", "ghost:size=2", "-o", "c"), "c", ["converted"]),
        (("merge", "CKPT", *FEW, "-o", "d"), "d", ["merged"]),
        (
            ("finetune", "CKPT", *FEW, "--workers", 0, "--epochs", 1, "--set", "sweep=null", "-o", "e"),
            "e/checkpoint",
            ["fine-tuned", "tested"],
        ),
    ]
    folder = str(runs / "split" / "checkpoint")
    for command, written, added in chain:
        done(*(folder if part == "CKPT" else part for part in command))  # type: ignore[misc]
        now = history(written)
        assert now[: len(steps)] == steps, command
        assert [step["kind"] for step in now[len(steps) :]] == added, command
        text = card(written)
        assert "Fine-tuned on digits: 60 images." in text, command
        assert AS_BEFORE not in text, command
        assert ", fine-tuned on digits\n" in text, command
        done("verify", written)
        folder, steps = written, now
    swept, evaluated = (json.loads(Path(name, "result.json").read_text("utf-8")) for name in ("a", "b"))
    assert (steps[4]["best"], steps[4]["chosen"]) == (swept["best"], swept["chosen"])
    assert [setting["gains"] for setting in steps[4]["settings"]] == [one["gains"] for one in swept["settings"]]
    assert (steps[5]["temperature"], steps[5]["gain"]) == (swept["temperature"], swept["temperature_gain"])
    assert steps[6]["temperature"] == evaluated["metrics"]["temperature"]
    assert steps[6]["before"]["values"]["ece"] == evaluated["metrics"]["ece"]
    assert (steps[8]["layers"], steps[8]["measured_on"]["number"]) == (7, 60)
    assert "predicts with the fine-tuned and merged weights" in card("d")


def test_a_test_figure_is_quoted_only_of_the_network_that_was_tested(runs: Path) -> None:
    tested = runs / "weighted" / "checkpoint"
    assert len(quoted(tested)) == 1
    done("eval", tested, *FEW, "--temperature", "-o", "cooler")
    assert quoted("cooler/checkpoint") == quoted(tested), "a temperature moves no prediction"
    done("sweep", tested, *FEW, "--alpha", "0,0.9", "--apply", "--force", "-o", "swept")
    (step,) = (s for s in history("swept/checkpoint")[4:] if s["kind"] == "swept")
    assert bool(quoted("swept/checkpoint") or ()) is not step["changed"]
    assert "Test accuracy: " in card("swept/checkpoint"), "the history still tells it"


def test_snapshots_and_their_average(runs: Path) -> None:
    snapshots = [runs / "weighted" / "snapshots" / f"{number}" for number in (1, 2)]
    for number, snapshot in enumerate(snapshots, 1):
        assert kinds(snapshot) == ["converted", "fine-tuned"]
        assert history(snapshot)[1]["snapshot"] == {"number": number, "of": 2}
        text = card(snapshot)
        assert f"snapshot {number} of 2" in text
        assert FINE_TUNED in text
    done("ensemble", *snapshots, *FEW, "--soup", "-o", "soup")
    common, average = open_model("soup/checkpoint").origin.history
    assert common == open_model(str(snapshots[0])).origin.history[0], "what all members share is told once"
    assert isinstance(average, Averaged)
    assert [member.name for member in average.members] == ["1", "2"]
    for number, member in enumerate(average.members, 1):
        (step,) = member.history
        assert isinstance(step, FineTuned)
        assert step.snapshot is not None
        assert step.snapshot.number == number
    result = json.loads(Path("soup/result.json").read_text("utf-8"))
    assert average.figures is not None
    assert average.figures.values["accuracy"] == result["combinations"][-1]["metrics"]["accuracy"]
    assert average.statistics_from is not None
    assert average.statistics_from.split == "train"
    record = json.loads(Path("soup/checkpoint/surgery.json").read_text("utf-8"))
    assert record["base_weights"] == json.loads((snapshots[0] / "surgery.json").read_text("utf-8"))["base_weights"]
    text = card("soup/checkpoint")
    assert "predicts with the fine-tuned and averaged weights" in text
    assert "# digits-resnet8, fine-tuned on digits\n" in text
    done("verify", "soup/checkpoint")


def test_exports_tell_the_history(runs: Path) -> None:
    steps = history(runs / "weighted" / "checkpoint")
    done("export", runs / "weighted" / "checkpoint", "--to", "torch-export", "-o", "net.pt2")
    described = json.loads(Path("net.pt2.json").read_text("utf-8"))["history"]
    assert described[:-1] == steps
    assert described[-1] == {"kind": "exported", "target": "torch-export", "folded": None}


def test_what_is_pushed_has_all_of_it(runs: Path, hub: Hub) -> None:
    done("push", runs / "weighted" / "checkpoint", "me/net")
    assert json.loads(hub.files["surgery.json"])["history"] == history(runs / "weighted" / "checkpoint")


def test_a_converted_network_is_the_original_until_somebody_may_have_trained_it() -> None:
    done("convert", "test_resnet", "--no-pretrained", "--bn", "ghost:size=4", "-o", "ghost")
    assert AS_BEFORE in card("ghost")
    assert "At the identity setting, outputs " in card("ghost")
    model = surgeon.load("ghost")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    surgeon.save(model, "trained", findings=["Trained by hand."])
    assert kinds("trained") == ["converted", "saved"]
    text = card("trained")
    assert AS_BEFORE not in text
    assert "- Trained by hand.\n" in text


def test_what_a_program_does_by_surgeon_is_told() -> None:
    model = surgeon.convert(surgeon.convert(open_model("digits-resnet8").model, "split"), "example-weighted")
    batches = [(torch.randn(4, 1, 8, 8), torch.arange(4))] * 3
    surgeon.merge_branches(model, 0.25)
    found = surgeon.sweep(model, batches, alphas=[0, 0.5], force=True)
    surgeon.save(model, "net")
    assert kinds("net") == ["earlier", "converted", "converted", "merged", "swept", "saved"]
    merged, swept = history("net")[3:5]
    assert (merged["share"], merged["layers"]) == (0.25, 7)
    assert swept["chosen_on"] == {"data": {"name": "list", "kind": "loader", "hub": None}, "split": "all", "number": 12}
    assert swept["best"] == found.best
    assert "predicts with the merged weights" in card("net")
    surgeon.save(surgeon.load("net"), "again")
    assert history("again") == history("net"), "saved twice in a row is saved"


def test_findings_that_are_no_sentences_are_refused(tmp_path: Path) -> None:
    model = surgeon.load(STORED)
    with pytest.raises(surgeon.SurgeonError, match="The findings cannot be kept"):
        surgeon.save(model, tmp_path / "out", findings=["x" * 10_001])
    assert not (tmp_path / "out").exists()


# --- a checkpoint of the schema before


def test_a_stored_checkpoint_without_a_history_is_read() -> None:
    """Its sentences are kept, and nothing is concluded from them."""
    assert json.loads((STORED / "surgery.json").read_text("utf-8"))["schema_version"] == 1
    done("verify", STORED)
    loaded = open_model(str(STORED))
    (earlier,) = loaded.origin.history
    assert earlier.kind == "earlier"
    assert earlier.findings[0] == "Fine-tuned on digits: 400 images."
    text = done("card", STORED).stdout
    assert "- Fine-tuned on digits: 400 images.\n" in text
    assert "- Test: 11.50% of 400 images.\n" in text
    assert "predicts without the rewrites" in text
    assert ModelCard(text).data.eval_results is None
    expected = document("eval", STORED, "--data", "digits", "--limit", 400)["metrics"]
    assert expected["accuracy"] == 0.115, "as it was when it was written"


def test_a_stored_checkpoint_is_gone_on_with() -> None:
    done("sweep", STORED, *FEW, "--alpha", "0,0.3", "--apply", "--force", "-o", "swept")
    assert kinds("swept/checkpoint") == ["earlier", "swept"]
    record = json.loads(Path("swept/checkpoint/surgery.json").read_text("utf-8"))
    assert record["schema_version"] == 2
    text = card("swept/checkpoint")
    assert text.index("- Fine-tuned on digits: 400 images.") < text.index("- Swept alpha on 60 images of digits")
    assert AS_BEFORE not in text
    done("verify", "swept/checkpoint")
    assert isinstance(open_model("swept/checkpoint").origin.history[-1], Swept)


def test_the_stored_checkpoint_cannot_be_changed_unseen(tmp_path: Path) -> None:
    folder = shutil.copytree(STORED, tmp_path / "copy")
    record = json.loads((folder / "surgery.json").read_text("utf-8"))
    for change in ({"findings": []}, {"schema_version": 2}, {"history": []}):
        (folder / "surgery.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(surgeon.SurgeonError):
            surgeon.load(folder)
