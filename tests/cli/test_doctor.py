"""`surgeon doctor` and `surgeon --version`: what is here, whether it works, and what to do if not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import constants

import surgeon
from surgeon.commands import doctor
from surgeon.core.versions import kernels_file
from tests.cli.running import done, invoke

FOUND = {
    "surgeon", "python", "torch", "torchvision", "timm", "requirements", "imports", "devices", "threads",
    "compiled kernels", "Triton kernels", "hub cache", "disk", "hub", "self-test",
}  # fmt: skip


def named(findings: list[dict[str, str]], name: str) -> dict[str, str]:
    return next(finding for finding in findings if finding["name"] == name)


def test_a_healthy_environment() -> None:
    outcome = done("doctor")
    for name in FOUND:
        assert f"│ {name} " in outcome.stdout
    assert "broken" not in outcome.stdout
    assert outcome.stderr == ""


def test_a_healthy_environment_as_json(tmp_path: Path) -> None:
    cached = tmp_path / "caches" / "models--me--net" / "blobs"
    cached.mkdir(parents=True)
    (cached / "blob").write_bytes(bytes(2500))
    (cached / "again").symlink_to("blob")
    told = json.loads(done("doctor", "--json").stdout)
    assert told["healthy"] is True
    assert {finding["name"] for finding in told["findings"]} >= FOUND
    assert named(told["findings"], "torch")["value"] == torch.__version__.partition("+")[0]
    assert named(told["findings"], "hub cache")["value"] == f"{constants.HF_HUB_CACHE}: 2.5 kB of downloads"
    hub = named(told["findings"], "hub")
    assert hub["state"] == "note"
    assert "HF_HUB_OFFLINE" in hub["value"]
    assert "push" in hub["advice"]


def test_a_network_that_predicts_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = surgeon.load(Path(surgeon.__file__).parent / "assets" / "digits-resnet8")
    with torch.no_grad():
        for parameter in wrong.parameters():
            parameter.zero_()  # then it sees a 0 in everything
    monkeypatch.setattr("surgeon.checkpoint.open_model", lambda _: type("Loaded", (), {"model": wrong}))
    outcome = invoke("doctor")
    assert outcome.code == 1
    assert "self-test" in outcome.stderr
    assert "install surgeon again" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_what_is_missing_or_too_old_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ["jinja2>=3.1", "timm>=999", "no-such-package>=2", "elsewhere>=1; sys_platform == 'nowhere'"]
    monkeypatch.setattr(doctor, "requires", lambda _: [*needs, "tensorboard-nope; extra == 'track'"])
    (finding,) = doctor._requirements()
    assert finding.state == "broken"
    assert "no-such-package is not installed" in finding.value
    assert "is not >=999" in finding.value
    assert finding.advice == "Run: pip install 'timm>=999' 'no-such-package>=2'"


def test_extras_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ["nope; extra == 'export'", "nope; extra == 'dev'", "jinja2; extra == 'track'"]
    extras = type("M", (), {"get_all": lambda *_: ["track", "export", "dev"]})
    monkeypatch.setattr(doctor, "requires", lambda _: needs)
    monkeypatch.setattr(doctor, "metadata", lambda _: extras())
    (finding,) = doctor._extras()
    assert finding.state == "ok"
    assert finding.value == "track installed; without export"
    assert "norm-surgeon[export]" in finding.advice


def test_a_look_that_fails_is_a_finding() -> None:
    def _hub() -> None:
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    (finding,) = doctor._carefully(_hub)  # type: ignore[arg-type]
    assert finding.state == "broken"
    assert finding.value == "RuntimeError: operator torchvision::nms does not exist"
    assert finding.advice


def test_without_kernels_everything_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "kernels_file", lambda: None)
    (finding,) = doctor._kernels()
    assert finding.state == "note"
    assert "C compiler" in finding.advice


def test_kernels_that_compute_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "kernels_file", lambda: Path("_kernels.so"))
    monkeypatch.setattr("surgeon.layers.native.available", lambda: True)
    monkeypatch.setattr("surgeon.layers.native.ghost_forward", lambda x, *_: (x + 1, x, x))
    (finding,) = doctor._kernels()
    assert finding.state == "broken"


def test_kernels_of_triton_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (finding,) = doctor._gpu_kernels()
    assert finding.state == "ok"
    assert "no GPU" in finding.value


def test_kernels_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: by the interpreter, or by what is there."""
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("surgeon.layers.triton._failures", [])
    (finding,) = doctor._gpu_kernels(device)
    assert finding.value == "installed and usable"
    with monkeypatch.context() as patch:
        patch.setattr("surgeon.layers.triton.ghost_forward", lambda x, *_: SimpleNamespace(y=x + 1))
        assert next(doctor._gpu_kernels(device)).state == "broken"
    with monkeypatch.context() as patch:
        patch.setattr("surgeon.layers.triton.ghost.launch", lambda *_, **__: 1 / 0)
        (finding,) = doctor._gpu_kernels(device)
        assert finding.value == "not usable: ZeroDivisionError: division by zero"
        assert finding.advice
    monkeypatch.setattr("surgeon.layers.triton.installed", lambda: False)
    (finding,) = doctor._gpu_kernels(device)
    assert "pip install triton" in finding.advice


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 5 * 10**6}))
    *_, finding = doctor._cache()
    assert finding.state == "note"
    assert finding.value == "only 5.0 MB free for the cache"
    assert "HF_HOME" in finding.advice


def test_versions() -> None:
    *versions, kernels = done("--version").stdout.splitlines()
    told = dict(line.split(" ") for line in versions)
    assert told["surgeon"] == surgeon.__version__
    assert told["torch"] == torch.__version__.partition("+")[0]
    assert told.keys() == {"surgeon", "python", "torch", "torchvision", "timm"}
    assert kernels == f"compiled kernels {'installed' if kernels_file() else 'not installed'}"
