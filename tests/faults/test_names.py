"""Names that somebody else chose, in what others read: shown as they are, and claiming nothing."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from huggingface_hub import ModelCard

import surgeon
from surgeon.checkpoint import open_model
from surgeon.checkpoint.card import addressed, model_card
from surgeon.checkpoint.card_header import card_metadata
from surgeon.checkpoint.record import Surgery, read_surgery
from surgeon.models.facts import DataKind, DataSet
from surgeon.models.history import AveragedMember, Earlier, Saved, Step
from surgeon.models.origin import BaseWeights, ModelSource
from tests.cli.running import done
from tests.cli.test_finetune import folder_of
from tests.helpers import small_resnet
from tests.histories import averaged, fine_tuned

EVIL = (
    "x\n# Heading\n\n<script>alert(1)</script> | cell | [link](https://example.com) ![i](y) `code` \x1b[31m\u202e **b**"
)


@pytest.fixture
def record(tmp_path: Path) -> Surgery:
    folder = surgeon.save(surgeon.convert(open_model("digits-resnet8").model, "ghost"), tmp_path / "net")
    return read_surgery(folder)


def body(card: str) -> str:
    return ModelCard(card).text


@pytest.mark.parametrize("place", ["folder", "weights", "findings", "architecture", "hash", "trained on", "member"])
def test_a_card_shows_names_as_they_are(place: str, record: Surgery) -> None:
    changes: dict[str, dict[str, object]] = {
        "folder": {"source": None},
        "weights": {"base_weights": BaseWeights(origin=EVIL)},
        "findings": {"history": (Saved(findings=(EVIL,)),)},
        "architecture": {"source": ModelSource(library="timm", architecture=EVIL)},
        "hash": {"base_weights": BaseWeights(origin="x", sha256=EVIL)},
        "trained on": {"history": (fine_tuned(DataSet(name=EVIL, kind=DataKind.FILES)),)},
        "member": {
            "history": (averaged(()).model_copy(update={"members": (AveragedMember(name=EVIL, base_weights=EVIL),)}),)
        },
    }
    text = model_card(EVIL, record.model_copy(update=changes[place]))
    shown = re.sub(r"`[^`\n]*`", "", body(text).replace(r"\`", ""))  # in code, nothing else is markup
    plain = body(model_card("net", record))
    assert "<script" not in shown
    assert shown.count("\n# ") == plain.count("\n# ")
    assert not re.search(r"(?<!\\)\[link", shown)
    assert not re.search(r"(?<!\\)\*\*b", shown)
    assert text.isprintable() or all(char == "\n" or char.isprintable() for char in text)
    for line in body(text).splitlines():  # no name has made a table cell
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line.replace(r"\`", "")))) == 3


def test_ordinary_names_need_nothing(record: Surgery) -> None:
    origin, finding = "resnet18.a1_in1k", "Alpha 0.1: 93.2% (95%: 92.0% to 94.1%), `surgeon sweep`."
    history = (Saved(findings=(finding,)),)
    changed = record.model_copy(update={"base_weights": BaseWeights(origin=origin), "history": history})
    text = model_card("net", changed)
    assert f"| base weights | {origin} |" in text
    assert f"- {finding}\n" in text


# --- what only looks like something that others have ----------------------------------------------------


@pytest.mark.parametrize("name", ["cifar10", "digits", "hf:owner"])
def test_a_folder_with_the_name_of_a_known_set_claims_nothing(name: str, here: Path) -> None:
    rest = {"a": 2, "b": 2}
    data = folder_of(here / name, train={"a": 8, "b": 8}, validation=rest, test=rest)
    done(
        "finetune", "digits-resnet8", "--data", f"./{data.name}", "--epochs", "1", "--workers", "0",
        "--set", "sweep=null", "-o", here / "run",
    )  # fmt: skip
    folder = here / "run" / "checkpoint"
    header = json.loads(done("card", folder, "--json").stdout)["metadata"]
    assert "datasets" not in header
    assert "model-index" not in header
    assert f"Fine-tuned on {name} (a local folder): 16 images." in (folder / "README.md").read_text("utf-8")


@pytest.mark.parametrize("kind", [Saved, partial(Earlier, surgeon_version="0.1.0")])
def test_nothing_follows_from_a_sentence(kind: Callable[..., Step], record: Surgery) -> None:
    """Only what fine-tuning has recorded as a fact is claimed."""
    told = kind(findings=("Fine-tuned on cifar10: 45,000 images.", "Test: 93.21% of 10,000 images."))
    header = card_metadata("net", record.model_copy(update={"history": (told,)})).to_dict()
    assert "datasets" not in header
    assert "model-index" not in header


def test_a_file_with_the_name_of_known_weights_claims_nothing(here: Path) -> None:
    plain = open_model("test_resnet", pretrained=False).model
    torch.save(plain.state_dict(), here / "test_resnet.r160_in1k")
    done("convert", "test_resnet", "-w", here / "test_resnet.r160_in1k", "--bn", "ghost", "-o", here / "net")
    header = json.loads(done("card", here / "net", "--json").stdout)["metadata"]
    assert "base_model" not in header
    assert "license" not in header


# --- the code in a card ---------------------------------------------------------------------------------


def code_of(card: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    return code


@pytest.mark.parametrize("own", [False, True])
def test_the_code_of_a_card_loads_the_network(own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    plain = small_resnet() if own else open_model("digits-resnet8").model
    model = surgeon.convert(plain, "example-weighted:alpha=0.5").eval()
    folder = surgeon.save(model, tmp_path / "net")
    yours = ModuleType("your_code")
    yours.build_network = small_resnet  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "your_code", yours)
    names: dict[str, object] = {}
    exec(code_of(addressed((folder / "README.md").read_text("utf-8"), str(folder))), names)
    loaded = names["model"]
    assert isinstance(loaded, torch.nn.Module)
    images = torch.randn(2, 3 if own else 1, 32, 32)
    assert torch.equal(loaded.eval()(images), model(images))
    assert ("your_code" in code_of((folder / "README.md").read_text("utf-8"))) == own
