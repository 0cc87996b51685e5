"""`surgeon convert --insert`: what it writes and says, and `ls`, `inspect` and `verify` of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import surgeon
from surgeon.checkpoint import load_checkpoint
from surgeon.checkpoint.record import read_surgery, sha256_of
from surgeon.layers.running import evaluate_once
from surgeon.models.sources import example_inputs, load_model
from tests.cli.running import contents, document, done, invoke, refusal

RESNET18 = ("convert", "resnet18", "--no-pretrained")
RESNET20 = ("convert", "cifar-resnet20", "--no-pretrained")


def test_moex_is_the_original_in_evaluation_and_has_two_names(here: Path) -> None:
    outcome = done(*RESNET18, "--insert", "moex:norm=pono,site=stem", "-o", "moex")
    assert "+ 1 × moex before layer1.0" in outcome.stderr
    assert "0 (bit-identical)" in outcome.stderr
    assert "(unchanged) · 1 unit inserted" in outcome.stderr
    done(*RESNET18, "--bn", "pono-moex", "-o", "moex2")
    one, other = (read_surgery(here / folder) for folder in ("moex", "moex2"))
    assert one == other  # the weights' hash aside: safetensors writes its metadata in any order
    assert contents(here / "moex")["config.json"] == contents(here / "moex2")["config.json"]
    loaded, plain = load_checkpoint(here / "moex"), load_model("resnet18", pretrained=False)
    inputs = example_inputs(plain.origin)
    assert torch.equal(evaluate_once(loaded.model, inputs)[0], evaluate_once(plain.model, inputs)[0])
    card = (here / "moex" / "README.md").read_text()
    assert "with inserted units: **moex**" in card
    assert "also load into the unconverted network" in card
    plain.model.load_state_dict(load_file(here / "moex" / "model.safetensors"))
    assert "1 unit inserted" in done("verify", "moex").stdout


def test_crossnorm_and_selfnorm(here: Path) -> None:
    outcome = done(*RESNET18, "--insert", "crossnorm", "--insert", "selfnorm", "-o", "cnsn")
    assert "+ 8 × crossnorm after the addition in layer1.0 and 7 others" in outcome.stderr
    assert "11,697,192 (before: 11,689,512) · 16 units inserted" in outcome.stderr
    assert "0 (bit-identical)" in outcome.stderr
    assert "`selfnorm` added others" in (here / "cnsn" / "README.md").read_text()
    checks = {check["name"]: check for check in document("verify", "cnsn")["checks"]}
    assert "without the selfnorm units" in checks["parity"]["detail"]
    inspection = document("inspect", "cnsn")
    assert len(inspection["units"]) == 16
    assert inspection["units"][8] == {
        "insert": "selfnorm", "where": "after the addition in layer1.0", "channels": 64, "parameters": 256,
    }  # fmt: skip
    assert inspection["kinds"] == {"BatchNorm2d": 20}
    assert "Inserted units" in done("inspect", "cnsn").stdout


def test_the_published_selfnorm_says_that_it_moves_the_outputs() -> None:
    told = document(*RESNET20, "--insert", "selfnorm:form=published", "-o", "out")
    assert told["identity_difference"] == 0
    assert told["output_shift"] > 0.1
    assert any("train the network" in note for note in told["notes"])
    done("verify", "out")


def test_a_trained_selfnorm_still_verifies(here: Path) -> None:
    done(*RESNET20, "--insert", "selfnorm", "-o", "out")
    model = surgeon.load(here / "out")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(0.1 if "inserted_" in name else 0.01)
    surgeon.save(model, here / "trained")
    done("verify", "trained")
    assert torch.equal(*(m(torch.ones(1, 3, 32, 32)) for m in (model, surgeon.load(here / "trained"))))


def test_what_is_there_stays_when_converted_again(here: Path) -> None:
    done(*RESNET20, "--insert", "selfnorm", "--bn", "ghost", "-o", "one")
    done("convert", "one", "--insert", "moex:site=stage1", "--bn", "example-weighted:alpha=0.1", "-o", "two")
    plan = read_surgery(here / "two").plan
    assert plan.summary() == "ghost + example-weighted:alpha=0.1 + selfnorm + moex:site=stage1"
    assert [len(plan.operations), len(plan.insertions)] == [19, 10]
    done("verify", "two")
    assert "already" in refusal("convert", "two", "--insert", "selfnorm", "-o", "three")
    assert "takes only one" in refusal("convert", "two", "--insert", "moex", "-o", "three")


def test_dry_run(here: Path) -> None:
    outcome = done(*RESNET20, "--insert", "crossnorm:site=image", "--insert", "selfnorm@layer3*", "--dry-run")
    assert "before the network" in outcome.stdout
    assert "after the addition in layer3.2" in outcome.stdout
    assert "after the addition in layer2.2" not in outcome.stdout
    assert not list(here.iterdir())


def test_a_record_from_before_there_were_inserts_is_read(here: Path) -> None:
    done(*RESNET20, "--bn", "ghost", "-o", "out")
    record = json.loads((here / "out" / "surgery.json").read_text())
    del record["plan"]["insertions"]
    embedded = {key: value for key, value in record.items() if key != "files"}
    weights = here / "out" / "model.safetensors"
    save_file(load_file(weights), weights, {"format": "pt", "surgeon": json.dumps(embedded)})
    record["files"]["model.safetensors"] = sha256_of(weights)
    (here / "out" / "surgery.json").write_text(json.dumps(record))
    done("verify", "out")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*RESNET18,), "--insert"),
        ((*RESNET18, "--insert", "mox"), "moex"),
        ((*RESNET18, "--insert", "ghost"), "Write --bn ghost"),
        ((*RESNET18, "--bn", "crossnorm"), "Write --insert crossnorm"),
        ((*RESNET18, "--insert", "moex:norm=bn"), "norm='bn'"),
        ((*RESNET18, "--bn", "pono-moex:q=1"), "no option 'q'"),
        (("convert", "vgg11_bn", "--no-pretrained", "--insert", "crossnorm"), "no residual addition"),
        ((*RESNET20, "--insert", "crossnorm", "--layers", "layer1.*"), "--layers"),
    ],
)
def test_refusals(arguments: tuple[str, ...], says: str, here: Path) -> None:
    assert says in refusal(*arguments)
    assert not list(here.iterdir())


def test_ls() -> None:
    found = {entry["name"]: entry for entry in document("ls", "inserts")}
    assert list(found) == ["crossnorm", "moex", "selfnorm"]
    assert found["moex"]["aliases"] == ["pono-moex"]
    assert found["selfnorm"]["evaluation changes"] == "after training"
    assert all(option["help"] for entry in found.values() for option in entry["options"])
    assert "crossnorm" in done("ls", "inserts").stdout
    assert invoke("ls", "inserts", "qqq").code == 2
