"""A pickle can name any function: none is ever called, wherever the pickle is found."""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch

from tests.cli.running import contents, invoke, refusal, sentence


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.trace,)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def zipped(content: object, path: Path) -> None:
    torch.save(content, path)


def legacy(content: object, path: Path) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def bare(content: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(content))


def test_the_pickle_would_bite(tmp_path: Path, trace: Path) -> None:
    bare(Evil(trace), tmp_path / "evil.pth")
    assert "touch" in "".join(str(argument) for _, argument, _ in pickletools.genops(pickle.dumps(Evil(trace))))
    pickle.loads((tmp_path / "evil.pth").read_bytes())
    assert trace.exists()


@pytest.mark.parametrize("save", [zipped, legacy, bare])
@pytest.mark.parametrize("wrap", [lambda evil: evil, lambda evil: {"state_dict": {"a": torch.ones(1)}, "args": evil}])
def test_weights_file(
    save: Callable[[object, Path], None], wrap: Callable[[object], object], tmp_path: Path, trace: Path
) -> None:
    save(wrap(Evil(trace)), tmp_path / "evil.pth")
    before = contents(tmp_path)
    said = refusal("convert", "resnet18", "-w", tmp_path / "evil.pth", "--bn", "ghost", "-o", tmp_path / "out")
    assert "was refused" in said
    assert "nothing was run" in said
    assert contents(tmp_path) == before
    assert not trace.exists()


@pytest.mark.parametrize("prefix", ["", "local-dir:"])
def test_folder_of_timm(prefix: str, tmp_path: Path, trace: Path) -> None:
    folder = tmp_path / "evil"
    timm.models.save_for_hf(timm.create_model("test_resnet"), str(folder))
    zipped({"state_dict": Evil(trace)}, folder / "pytorch_model.bin")
    outcome = invoke("convert", f"{prefix}{folder}", "--bn", "ghost", "-o", tmp_path / "out")
    assert not trace.exists()
    assert not (tmp_path / "out").exists()
    assert "Unexpected" not in sentence(outcome)


def test_download_of_torchvision(tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in torch's cache is not checked again."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    zipped({"fc.bias": Evil(trace)}, _made(tmp_path / "hub" / "checkpoints") / "resnet18-f37072fd.pth")
    outcome = invoke("convert", "torchvision:resnet18", "--bn", "ghost", "-o", tmp_path / "out")
    assert not trace.exists()
    assert outcome.code in (1, 2)
    assert not (tmp_path / "out").exists()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
