"""What `surgeon finetune` rewrites, stores and records: nothing that was not asked for, and nothing not significant."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn

import surgeon
from surgeon.core.errors import SurgeonError
from surgeon.layers.surgical import surgical_layers
from tests.cli.running import document, done, operations
from tests.cli.test_finetune import QUICK

OPTIONS = ("--data", "digits", "--limit", 20, "--batch-size", 10, "--epochs", 1, "--workers", 0)
FEW = ("finetune", "digits-resnet8", *OPTIONS)
WEIGHTED = (*FEW, "--bn", "example-weighted", "--set", "sweep_metric=cross-entropy")


def figures(result: dict[str, Any]) -> dict[tuple[str, str], Any]:
    return {(row["split"], row["setting"]): row["metrics"] for row in result["figures"]}


def alphas(folder: Path) -> set[Any]:
    return {rewrites["example-weighted"]["alpha"] for rewrites in operations(folder).values()}


def test_without_bn_nothing_is_rewritten_and_the_checkpoint_is_plain(tmp_path: Path) -> None:
    run, plain = tmp_path / "run", tmp_path / "plain"
    options = ("--no-pretrained", "--set", "input_size=32", "-o", run)
    result = document("finetune", "resnet10t", *OPTIONS, *options)
    assert (result["rewrites"], result["sweeps"], operations(run / "checkpoint")) == ("", [], {})
    assert result["settings"] == [
        "No alpha was tried, because the network has no example-weighted layers: `--bn example-weighted` adds them."
    ]
    done("export", run / "checkpoint", "--to", "timm", "-o", plain)
    network = timm.create_model(f"local-dir:{plain}", pretrained=True).eval()
    assert type(network.bn1).__name__ == "BatchNorm2d"
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        assert torch.equal(network(images), surgeon.load(run / "checkpoint").eval()(images))


def test_an_alpha_within_noise_is_not_stored_unless_forced(tmp_path: Path) -> None:
    result = document(*WEIGHTED, "--set", "sweep=0,0.01", "-o", tmp_path / "run")
    assert "alpha 0.01 is not stored: its gain in cross-entropy is not significant" in result["settings"][-1]
    assert alphas(tmp_path / "run" / "checkpoint") == {0}
    assert len({json.dumps(one) for (split, _), one in figures(result).items() if split == "test"}) == 1
    forced = document(*WEIGHTED, "--set", "sweep=0,0.01", "--force", "-o", tmp_path / "forced")
    assert "alpha 0.01 is stored because of --force" in forced["settings"][-2]
    assert forced["settings"][-1] == (
        "Rewrites as trained: ghost:size=4 + example-weighted; as saved: ghost:size=4 + example-weighted:alpha=0.01."
    )
    assert alphas(tmp_path / "forced" / "checkpoint") == {0.01}


def test_both_settings_are_measured_on_both_splits(tmp_path: Path) -> None:
    """As trained is the network at the alpha that was asked for, as saved the checkpoint: `eval` gives the same."""
    asked, run = tmp_path / "asked", tmp_path / "run"
    result = document(*WEIGHTED[:-4], "--bn", "example-weighted:alpha=0.3", "--set", "sweep=0,0.1", "--set",
                      "sweep_metric=cross-entropy", "-o", run)  # fmt: skip
    found = figures(result)
    assert list(found) == [(s, k) for s in ("validation", "test") for k in ("as trained", "as saved")]
    assert found["validation", "as trained"] == result["validation"] == result["epochs"][-1]["validation"]
    assert found["test", "as saved"] == result["test"]
    assert found["test", "as trained"] != found["test", "as saved"]
    swept = json.loads((run / "sweep-alpha" / "result.json").read_text("utf-8"))
    assert [point["value"] for point in swept["points"]] == [0, 0.1, 0.3], "the one that was asked for is compared too"
    network = surgeon.load(run / "checkpoint")
    for layer in surgical_layers(network).values():
        layer.set_alpha(0.3)
    surgeon.save(network, asked)
    for setting, folder in (("as trained", asked), ("as saved", run / "checkpoint")):
        for split in ("validation", "test"):
            again = document("eval", folder, "--data", "digits", "--split", split, "--limit", 20)["metrics"]
            assert again["accuracy"] == found[split, setting]["accuracy"]
            assert again["cross_entropy"] == pytest.approx(found[split, setting]["cross_entropy"], rel=1e-5)


def test_the_rates_of_backbone_and_head_are_recorded_by_step(tmp_path: Path) -> None:
    """Against the formula of a cosine: 2 epochs of 4 steps, and a head that learns ten times as fast."""
    options = ("--lr", 0.02, "--set", "head_lr=10", "--set", "warmup_epochs=0")
    told = done(*QUICK, *options, "-o", tmp_path / "run").stderr
    epochs = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["epochs"]
    cosine = [0.01 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]
    assert [rate for epoch in epochs for rate in epoch["backbone_rates"]] == pytest.approx(cosine)
    assert [rate for epoch in epochs for rate in epoch["head_rates"]] == pytest.approx([10 * rate for rate in cosine])
    assert f"lr {cosine[3]:.3g}, head {10 * cosine[3]:.3g}" in told
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert 'colspan="2">learning rate</th>' in page
    assert all(f'<th scope="col" class="tight">{part}</th>' in page for part in ("backbone", "head"))
    frozen = document(*QUICK, "--freeze-backbone", "-o", tmp_path / "frozen")["epochs"]
    assert [(len(epoch["backbone_rates"]), len(epoch["head_rates"])) for epoch in frozen] == [(0, 4), (0, 4)]


def test_a_loader_is_no_data_set_for_a_run(tmp_path: Path) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(4, 1, 8, 8), torch.zeros(4)))
    with pytest.raises(SurgeonError, match="takes the name of a data set or a folder, not a DataLoader"):
        surgeon.finetune("digits-resnet8", loader, tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(SurgeonError, match="not a Linear"):
        surgeon.finetune(nn.Linear(1, 1), "digits", tmp_path / "run")  # type: ignore[arg-type]
