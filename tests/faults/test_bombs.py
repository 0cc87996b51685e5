"""Small files that would take gigabytes or hours: refused in a sentence, before anything is built."""

from __future__ import annotations

import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from surgeon.checkpoint import open_model
from surgeon.core.errors import SurgeonError
from surgeon.models.weights import read_weights

# --- pickles --------------------------------------------------------------------------------------------

GIGABYTES = 1 << 34


def text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def function(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def called(what: bytes, *arguments: bytes) -> bytes:
    return what + b"(" + b"".join(arguments) + b"tR"


def rebuilt(what: bytes, *arguments: bytes) -> bytes:
    """A call by way of the function with which PyTorch calls others."""
    given = b"(" + b"".join(arguments) + b"t"
    return called(function("torch._tensor", "_rebuild_from_type_v2"), what, function("torch", "Tensor"), given, b"}")


def entry(value: bytes) -> bytes:
    return b"\x80\x02}(" + text("weight") + value + b"u."


def archive(path: Path, pickle: bytes, method: int = zipfile.ZIP_STORED, storage: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in {"data.pkl": pickle, "version": b"3\n", "data/0": storage}.items():
            file.writestr(f"archive/{name}", content)
    return path


BYTES, SLOWLY = function("builtins", "bytearray"), (text("é" * 100_000), text("punycode"))
PICKLES = {
    "bytes by number": called(BYTES, number(GIGABYTES)),
    "by their old name": called(function("__builtin__", "bytearray"), number(GIGABYTES)),
    "bytes, handed on": rebuilt(BYTES, number(GIGABYTES)),
    "bytes, handed on in a list": function("torch._tensor", "_rebuild_from_type_v2") + b"](" + BYTES + b"eR",
    "bytes, after adding nothing to them": called(BYTES + b"(u", number(GIGABYTES)),
    "a tensor by number": called(function("torch", "FloatTensor"), number(GIGABYTES)),
    "a storage by number": called(function("torch.storage", "UntypedStorage"), number(GIGABYTES)),
    "an encoding that takes hours": called(function("_codecs", "encode"), *SLOWLY),
    "the same, handed on": rebuilt(function("_codecs", "encode"), *SLOWLY),
    "the same, with a list": function("_codecs", "encode") + b"](" + b"".join(SLOWLY) + b"eR",
    "a million calls": b"](" + called(function("collections", "OrderedDict")) * 300_000 + b"e",
    "tuples of tuples as a key": b"}(" + b")" + b"q\x00h\x00\x86" * 60 + b"Nu",
    "the same, after adding nothing to them": b"}(" + b")" + b"q\x00h\x00\x86(u" * 60 + b"Nu",
}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("case", PICKLES)
def test_a_costly_pickle_is_refused(case: str, method: int, tmp_path: Path) -> None:
    path = archive(tmp_path / "bomb.pth", entry(PICKLES[case]), method)
    with pytest.raises(SurgeonError, match="far more time or memory than any weights need"):
        read_weights(path)


@pytest.mark.parametrize("case", ["bytes by number", "an encoding that takes hours"])
def test_a_costly_pickle_in_the_old_format_is_refused(case: str, tmp_path: Path) -> None:
    torch.save({}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    magic = (tmp_path / "old.pth").read_bytes().split(b"}q\x00.")[0]
    (tmp_path / "old.pth").write_bytes(magic + entry(PICKLES[case]))
    with pytest.raises(SurgeonError, match="far more time or memory than any weights need"):
        read_weights(tmp_path / "old.pth")


def test_an_archive_of_two_kinds_is_looked_at_as_it_is_read(tmp_path: Path) -> None:
    content = archive(tmp_path / "bomb.pth", entry(PICKLES["bytes by number"])).read_bytes()
    header = bytearray(tarfile.TarInfo("PK\3\4").tobuf())
    (tmp_path / "bomb.pth").write_bytes(header + content)
    assert tarfile.is_tarfile(tmp_path / "bomb.pth")
    assert zipfile.is_zipfile(tmp_path / "bomb.pth")
    with pytest.raises(SurgeonError, match="far more time or memory than any weights need"):
        read_weights(tmp_path / "bomb.pth")


def test_what_unpacks_to_far_more_than_weights_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "bomb.pth", entry(b"N"), zipfile.ZIP_DEFLATED, bytes(100_000_000))
    assert path.stat().st_size < 200_000
    with pytest.raises(SurgeonError, match="unpack to far more than weights would"):
        read_weights(path)


def test_bytes_and_attributes_of_tensors_are_no_bombs(tmp_path: Path) -> None:
    """What the bounds are about, in ordinary amounts."""
    weight = torch.nn.Parameter(torch.ones(2))
    weight.note = "learned"  # type: ignore[attr-defined]
    torch.save(
        {"weight": weight, "raw": b"\xff" * 5000, "shape": torch.Size((1, 2)), "seen": {1, 2}}, tmp_path / "w.pt"
    )
    assert torch.equal(read_weights(tmp_path / "w.pt").state["weight"], torch.ones(2))


# --- weights that are smaller than they say -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["repeated", "empty"])
def test_a_file_cannot_ask_for_a_billion_classes(kind: str, tmp_path: Path) -> None:
    """The number of classes is that of the file, and a billion rows can lie in four bytes."""
    state = timm.create_model("test_resnet").state_dict()
    path = tmp_path / ("weights.pth" if kind == "repeated" else "weights.safetensors")
    if kind == "repeated":
        state["fc.weight"] = torch.zeros(1, 1).expand(10**9, state["fc.weight"].shape[1])
        state["fc.bias"] = torch.zeros(1).expand(10**9)
        torch.save(state, path)
    else:
        state["fc.weight"], state["fc.bias"] = torch.zeros(10**9, 0), torch.zeros(10**9, 0)
        save_file(state, path)
    with pytest.raises(SurgeonError, match=r"far larger than its weights file|do not fit the model"):
        open_model("test_resnet", weights=path)


def test_a_folder_of_timm_with_a_pickle_that_looks_like_safetensors(tmp_path: Path) -> None:
    """timm goes by the name of a file, so a bomb must not pass for the other format."""
    timm.models.save_for_hf(timm.create_model("test_resnet"), str(tmp_path))
    (tmp_path / "model.safetensors").unlink(missing_ok=True)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02X\2\0\0\0\0{" + entry(PICKLES["bytes by number"])[2:])
    with pytest.raises(SurgeonError, match="another format than its name"):
        open_model(str(tmp_path))
