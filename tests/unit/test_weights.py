"""Weight files as people have them: found wherever they are, refused in one sentence, never run."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import pickle
import tarfile
import zipfile
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from timm.utils import CheckpointSaver, ModelEmaV3
from torch import Tensor, nn
from torchvision.models import mnasnet0_5
from torchvision.ops import FrozenBatchNorm2d

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.models.fitting import load_into
from surgeon.models.weights import WeightsFile, read_weights

if TYPE_CHECKING:
    from collections.abc import Callable

SHARED_WEIGHTS = Path(__file__).parents[2].parent / "shared" / "data" / "weights"

State = dict[str, Tensor]


class Net(nn.Module):
    def __init__(self, width: int = 4, classes: int = 3, depth: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3)
        self.blocks = nn.Sequential(*(self.block(width) for _ in range(depth)))
        self.fc = nn.Linear(width, classes)

    @staticmethod
    def block(width: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(width, width, 3), nn.BatchNorm2d(width))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "weights.pth"


def saved(content: object, path: Path, **options: Any) -> Path:
    torch.save(content, path, **options)
    return path


def prefixed(state: State, prefix: str) -> State:
    return OrderedDict((prefix + name, tensor) for name, tensor in state.items())


def assert_same(found: State, expected: State) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def refusal(path: Path) -> SurgeonError:
    with pytest.raises(SurgeonError) as caught:
        read_weights(path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


# --- formats


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_reads_what_torch_saves(net: Net, file: Path, zipped: bool) -> None:
    weights = read_weights(saved(net.state_dict(), file, _use_new_zipfile_serialization=zipped))
    assert_same(weights.state, net.state_dict())
    assert weights.notes == ()
    assert weights.path == file
    assert weights.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["model.safetensors", "MODEL.SAFETENSORS", "blob", "pytorch_model.bin"])
def test_reads_safetensors_under_any_name(net: Net, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(save(net.state_dict()))
    assert_same(read_weights(path).state, net.state_dict())


def test_reads_a_zip_that_was_compressed_afterwards(net: Net, file: Path, tmp_path: Path) -> None:
    compressed = tmp_path / "compressed.pth"
    saved(net.state_dict(), file)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            new.writestr(entry, old.read(entry))
    assert_same(read_weights(compressed).state, net.state_dict())


def test_weights_outlive_their_file(net: Net, file: Path) -> None:
    weights = read_weights(saved(net.state_dict(), file))
    file.unlink()
    assert_same(weights.state, net.state_dict())


def test_reading_changes_neither_the_file_nor_the_working_folder(
    net: Net, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    before = saved(net.state_dict(), file).read_bytes()
    weights = read_weights(file)
    weights.state["stem.weight"].zero_()
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


# --- where the weights are


@pytest.mark.parametrize("name", ["state_dict", "model", "model_state_dict", "net", "network", "weights", "module"])
def test_finds_the_weights_under_the_usual_names(net: Net, file: Path, name: str) -> None:
    checkpoint = {
        name: net.state_dict(),
        "epoch": 3,
        "best_acc1": torch.tensor(0.9),
        "optimizer": {"lr": 0.1},
    }
    weights = read_weights(saved(checkpoint, file))
    assert_same(weights.state, net.state_dict())
    assert weights.notes == (f"took {name!r}",)


@pytest.mark.parametrize("name", ["state_dict_ema", "model_ema", "ema", "ema_state_dict"])
def test_prefers_an_averaged_copy_and_says_so(net: Net, file: Path, name: str) -> None:
    weights = read_weights(saved({"state_dict": Net().state_dict(), name: net.state_dict()}, file))
    assert_same(weights.state, net.state_dict())
    assert weights.notes == (f"took {name!r}",)


def test_leaves_an_average_without_statistics_aside(net: Net, file: Path) -> None:
    parameters = {name: torch.zeros_like(parameter) for name, parameter in net.named_parameters()}
    weights = read_weights(saved({"model": net.state_dict(), "ema": parameters}, file))
    assert_same(weights.state, net.state_dict())
    assert weights.notes == ("took 'model'", "left 'ema' aside: it lacks 2 names of 'model'")


@pytest.mark.parametrize("ema", [None, "0.999", {"decay": 0.999}, {}, {"decay": torch.tensor(0.999)}])
def test_an_average_that_is_none_is_no_average(net: Net, file: Path, ema: object) -> None:
    assert_same(read_weights(saved({"model": net.state_dict(), "ema": ema}, file)).state, net.state_dict())


def test_reads_torchvisions_averaged_model(net: Net, file: Path) -> None:
    averaged = torch.optim.swa_utils.AveragedModel(net)
    checkpoint = {"model": Net().state_dict(), "model_ema": averaged.state_dict(), "epoch": 1}
    weights = read_weights(saved(checkpoint, file))
    assert_same(weights.state, net.state_dict())
    assert weights.notes == (
        "took 'model_ema'",
        "left out n_averaged: it counts averaging steps",
        "removed the prefix 'module.' from 11 names",
    )


def test_reads_timms_training_checkpoint(tmp_path: Path) -> None:
    model = timm.create_model("test_resnet.r160_in1k", pretrained=False)
    average = ModelEmaV3(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    arguments = argparse.Namespace(model="test_resnet", lr=0.1, mean=(0.5, 0.5, 0.5), nested={"a": None})
    saver = CheckpointSaver(model, optimizer, args=arguments, model_ema=average, checkpoint_dir=str(tmp_path))
    saver.save_checkpoint(epoch=0, metric=1.0)
    weights = read_weights(tmp_path / "last.pth.tar")
    assert weights.notes == ("took 'state_dict_ema'",)
    assert_same(weights.state, average.module.state_dict())
    load_into(timm.create_model("test_resnet.r160_in1k", pretrained=False), weights)


@pytest.mark.parametrize("number", [np.float64(91.5), np.float32(91.5), np.int64(91)])
def test_numpy_numbers_beside_the_weights_do_no_harm(net: Net, file: Path, number: object) -> None:
    weights = read_weights(saved({"state_dict": net.state_dict(), "best_prec1": number}, file))
    assert_same(weights.state, net.state_dict())


def test_reads_lightnings_checkpoint(net: Net, file: Path) -> None:
    checkpoint = {
        "epoch": 3,
        "pytorch-lightning_version": "2.4.0",
        "state_dict": prefixed(net.state_dict(), "model."),
        "loops": {"fit_loop": {"state_dict": {}}},
        "hyper_parameters": {"lr": 0.1},
        "optimizer_states": [{"state": {0: {"momentum_buffer": torch.zeros(1)}}}],
    }
    weights = read_weights(saved(checkpoint, file))
    assert_same(weights.state, net.state_dict())
    assert weights.notes == ("took 'state_dict'", "removed the prefix 'model.' from 11 names")


def test_keeps_a_prefix_that_not_every_name_has(net: Net, file: Path) -> None:
    state = prefixed(net.state_dict(), "model.")
    state["criterion.weight"] = torch.ones(3)
    assert_same(read_weights(saved(state, file)).state, state)


def test_keeps_a_counter_that_is_not_an_averaged_models(file: Path) -> None:
    state = {"n_averaged": torch.tensor(1), "fc.weight": torch.ones(2)}
    assert_same(read_weights(saved(state, file)).state, state)


def test_leaves_out_what_is_not_a_named_tensor(net: Net, file: Path) -> None:
    weights = read_weights(saved({**net.state_dict(), "epoch": 3, 7: torch.ones(1)}, file))
    assert_same(weights.state, net.state_dict())
    assert weights.notes == ("left out epoch and 7: not named tensors",)


def test_parameters_come_out_as_plain_tensors(net: Net, file: Path) -> None:
    weights = read_weights(saved(dict(net.named_parameters()), file))
    assert not any(tensor.requires_grad for tensor in weights.state.values())


def test_an_endlessly_nested_file_ends(file: Path) -> None:
    checkpoint: dict[str, Any] = {"epoch": 1}
    checkpoint["model"] = checkpoint["ema"] = checkpoint
    assert "holds no weights: its entries are epoch, model and ema" in refusal(saved(checkpoint, file)).message


WRAPPERS = st.lists(
    st.sampled_from(["state_dict", "model", "model_state_dict", "net", "ema", "state_dict_ema"]), max_size=4
)
PREFIXES = st.lists(st.sampled_from(["module.", "_orig_mod.", "model.", "net.", "network.", "backbone."]), max_size=4)


@settings(max_examples=40, deadline=None)
@given(wrappers=WRAPPERS, prefixes=PREFIXES, zipped=st.booleans())
def test_any_nesting_of_wrappers_is_undone(
    tmp_path_factory: pytest.TempPathFactory, wrappers: list[str], prefixes: list[str], zipped: bool
) -> None:
    state = Net().state_dict()
    content: object = prefixed(state, "".join(prefixes))
    for wrapper in wrappers:
        content = {"epoch": 1, wrapper: content}
    path = tmp_path_factory.mktemp("nested") / "weights.pth"
    assert_same(read_weights(saved(content, path, _use_new_zipfile_serialization=zipped)).state, state)


# --- what is refused


class RunsWhenLoaded:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.reduced


def torch_zip(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def torch_legacy(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


PICKLERS: dict[str, Callable[[object], bytes]] = {
    "torch zip": torch_zip,
    "torch legacy": torch_legacy,
    **{f"pickle {protocol}": partial(pickle.dumps, protocol=protocol) for protocol in range(6)},
}


@pytest.mark.parametrize("pickler", PICKLERS.values(), ids=PICKLERS.keys())
@pytest.mark.parametrize("name", ["evil.pth", "evil.safetensors"])
@pytest.mark.parametrize(
    "nested", [lambda evil: evil, lambda evil: {"state_dict": {"fc.weight": torch.ones(1), "x": evil}}]
)
def test_a_malicious_pickle_runs_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pickler: Callable[[object], bytes],
    name: str,
    nested: Callable[[object], object],
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    harm = tmp_path / "harm"
    for evil in (
        RunsWhenLoaded(os.system, f"touch {harm}"),
        RunsWhenLoaded(exec, f"open({str(harm)!r}, 'w')"),
    ):
        (tmp_path / name).write_bytes(pickler(nested(evil)))
        refusal(tmp_path / name)
    assert not harm.exists()


def test_the_harm_would_be_done_by_an_unsafe_reader(tmp_path: Path, file: Path) -> None:
    harm = tmp_path / "harm"
    saved(RunsWhenLoaded(exec, f"open({str(harm)!r}, 'w')"), file)
    torch.load(file, weights_only=False)
    assert harm.exists()


@pytest.mark.parametrize(
    ("evil", "name"),
    [(RunsWhenLoaded(os.system, "true"), f"{os.name}.system"), (RunsWhenLoaded(eval, "1"), "eval")],
)
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_says_what_a_pickle_asks_to_run(file: Path, evil: RunsWhenLoaded, name: str, zipped: bool) -> None:
    saved({"state_dict": evil}, file, _use_new_zipfile_serialization=zipped)
    message = refusal(file).message
    assert message == f"{str(file)!r} was refused: it asks to run {name}; nothing was run."


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.filterwarnings("ignore:.*source code")
def test_a_pickled_model_is_told_to_save_its_weights(file: Path, zipped: bool, wrapped: bool) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    saved({"model": model} if wrapped else model, file, _use_new_zipfile_serialization=zipped)
    error = refusal(file)
    assert "a whole pickled model and asks to run torch.nn.modules.container.Sequential" in error.message
    assert "model.state_dict()" in error.hint


def test_another_pickle_protocol_is_refused(net: Net, file: Path) -> None:
    assert "pickled in a way" in refusal(saved(net.state_dict(), file, pickle_protocol=4)).message


@pytest.mark.filterwarnings("ignore")
def test_a_torchscript_program_is_named(file: Path) -> None:
    torch.jit.script(nn.Linear(1, 1)).save(str(file))
    assert "TorchScript" in refusal(file).message


def test_the_old_tar_format_is_named(file: Path) -> None:
    with tarfile.open(file, "w") as archive:
        for part in ("sys_info", "pickle", "tensors", "storages"):
            archive.addfile(tarfile.TarInfo(part))
    assert "(tar) format" in refusal(file).message


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "resnet20.pth").touch()
    error = refusal(tmp_path / "resnet02.pth")
    assert "There is no weights file" in error.message
    assert error.hint == "Did you mean resnet20.pth?"


def test_a_file_in_a_missing_folder(tmp_path: Path) -> None:
    assert "There is no weights file" in refusal(tmp_path / "nowhere" / "x.pth").message
    assert "cannot be read" in refusal(saved({}, tmp_path / "file") / "x.pth").message


def test_a_folder_names_the_files_in_it(tmp_path: Path) -> None:
    assert "Name the weights file itself" in refusal(tmp_path).hint
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").touch()
    error = refusal(tmp_path)
    assert "is a folder" in error.message
    assert error.hint == "Name a file in it: model.safetensors."


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(net: Net, file: Path) -> None:
    saved(net.state_dict(), file).chmod(0)
    assert "Permission denied" in refusal(file).message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "is a web page"),
        (b"\n  <html lang='en'>", "is a web page"),
        (b"\xef\xbb\xbf<?xml version='1.0'?><Error/>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "is a Git LFS pointer"),
        (b"Entry not found", "not a weights file"),
        (b'{"error":"Repository not found"}', "not a weights file"),
        (b"PK", "incomplete"),
        (b"PK\x03\x04", "incomplete"),
        (b"\x80", "incomplete"),
        (b"\x80\x02}", "incomplete"),
        (b"\x00" * 100, "not a weights file"),
    ],
)
@pytest.mark.parametrize("name", ["x.pth", "x.safetensors"])
def test_what_is_no_weights_file_is_named(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert expected in refusal(tmp_path / name).message


def test_a_numpy_archive_is_no_weights_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", weight=np.ones(3))
    assert "not a weights file" in refusal(tmp_path / "x.npz").message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"epoch": 3, "optimizer": {"lr": 0.1}}, "holds no weights: its entries are epoch and optimizer."),
        ({"state_dict": {}}, "holds no weights: its entries are state_dict."),
        ({0: torch.ones(1)}, "holds no weights: its entries are 0."),
        ({}, "holds no weights: it has no entries."),
        ([torch.ones(1)], "holds a list, not named weights."),
        (torch.ones(1), "holds a Tensor, not named weights."),
    ],
)
def test_a_file_without_weights_says_what_it_has(file: Path, content: object, expected: str) -> None:
    assert expected in refusal(saved(content, file)).message


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.empty(2, device="meta"), "stores 'fc.weight' without values"),
        (torch.eye(2).to_sparse(), "in sparse form"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_plain_values_are_refused(file: Path, tensor: Tensor, expected: str) -> None:
    assert expected in refusal(saved({"fc.weight": tensor}, file)).message


FORMATS: dict[str, Callable[[State], bytes]] = {
    "zip.pth": torch_zip,
    "legacy.pth": torch_legacy,
    "x.safetensors": save,
}


@pytest.mark.parametrize(("name", "encode"), FORMATS.items())
def test_a_half_written_file_is_named(tmp_path: Path, name: str, encode: Callable[[State], bytes]) -> None:
    content = encode(Net().state_dict())
    for end in (len(content) // 2, len(content) - 1):
        (tmp_path / name).write_bytes(content[:end])
        assert "is incomplete" in refusal(tmp_path / name).message


@pytest.mark.parametrize(("name", "encode"), FORMATS.items())
@settings(max_examples=60, deadline=None)
@given(part=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, encode: Callable[[State], bytes], part: float
) -> None:
    content = encode({"stem.weight": torch.ones(16, 3, 3, 3), "fc.weight": torch.ones(10, 16)})
    path = tmp_path_factory.mktemp("cut") / name
    path.write_bytes(content[: int(part * len(content))])
    refusal(path)


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=300), magic=st.sampled_from([b"", b"PK\x03\x04", b"\x80\x02", b"\x80\x04"]))
def test_any_bytes_are_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, magic: bytes
) -> None:
    path = tmp_path_factory.mktemp("noise") / "x.pth"
    path.write_bytes(magic + content)
    refusal(path)


@settings(max_examples=100, deadline=None)
@given(encode=st.sampled_from([torch_zip, torch_legacy, save]), place=st.floats(0, 1), value=st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, encode: Callable[[State], bytes], place: float, value: int
) -> None:
    content = bytearray(encode({"fc.weight": torch.ones(3, 4)}))
    content[int(place * (len(content) - 1))] = value
    path = tmp_path_factory.mktemp("flip") / "x.pth"
    path.write_bytes(content)
    with suppress(SurgeonError):
        read_weights(path)


# --- into a model


def weights_of(model: nn.Module, **changes: Tensor) -> WeightsFile:
    return WeightsFile({**model.state_dict(), **changes}, (), "", Path("weights.pth"))


def without(weights: WeightsFile, ending: str) -> WeightsFile:
    kept = {name: tensor for name, tensor in weights.state.items() if not name.endswith(ending)}
    return WeightsFile(kept, (), "", weights.path)


def misfit(model: nn.Module, weights: WeightsFile) -> SurgeonError:
    """The error, after making sure that the model is as it was."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(SurgeonError) as caught:
        load_into(model, weights)
    assert_same(dict(model.state_dict()), before)
    assert caught.value.exit_code == ExitCode.USAGE
    return caught.value


def test_loads_every_value(net: Net) -> None:
    other = Net()
    load_into(other, weights_of(net))
    assert_same(dict(other.state_dict()), dict(net.state_dict()))


def test_the_model_keeps_no_hold_of_the_file(net: Net) -> None:
    weights, other = weights_of(net), Net()
    load_into(other, weights)
    weights.state["stem.weight"].zero_()
    assert other.stem.weight.all()


def test_batch_counters_may_be_missing(net: Net) -> None:
    other = Net()
    load_into(other, without(weights_of(net), "num_batches_tracked"))
    assert torch.equal(other.fc.weight, net.fc.weight)


def test_batch_counters_may_be_too_many() -> None:
    frozen = nn.Sequential(FrozenBatchNorm2d(2))
    load_into(frozen, weights_of(nn.Sequential(nn.BatchNorm2d(2)), **{"0.bias": torch.ones(2)}))
    assert frozen.state_dict()["0.bias"].tolist() == [1, 1]


def test_batch_counters_that_were_averaged_are_rounded_down(net: Net) -> None:
    other = Net()
    load_into(other, weights_of(net, **{"blocks.0.1.num_batches_tracked": torch.tensor(7.5)}))
    assert other.state_dict()["blocks.0.1.num_batches_tracked"].item() == 7


def test_loads_into_a_network_that_checks_format_versions() -> None:
    load_into(mnasnet0_5(num_classes=2), weights_of(mnasnet0_5(num_classes=2)))


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda net: nn.ModuleDict({"backbone": net})])
def test_loads_into_a_wrapped_model(net: Net, wrap: Callable[[nn.Module], nn.Module]) -> None:
    inner = Net()
    load_into(wrap(inner), weights_of(net))
    assert_same(dict(inner.state_dict()), dict(net.state_dict()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_another_precision_becomes_the_models(net: Net, file: Path, dtype: torch.dtype) -> None:
    weights = read_weights(saved(Net().to(dtype).state_dict(), file))
    load_into(net, weights)
    assert net.fc.weight.dtype == torch.float32
    assert torch.equal(net.fc.weight, weights.state["fc.weight"].float())
    stored = str(dtype).removeprefix("torch.")
    assert weights.notes == (f"stored as {stored}; used in the precision of the model",)


def test_integers_are_no_weights(net: Net) -> None:
    error = misfit(net, weights_of(net, **{"fc.weight": torch.ones(3, 4, dtype=torch.int8)}))
    assert "stores 'fc.weight' as torch.int8" in error.message
    assert "quantised" in error.hint


def test_another_number_of_classes_is_recognised(net: Net) -> None:
    error = misfit(net, weights_of(Net(classes=10)))
    assert error.message == (
        "The weights in 'weights.pth' do not fit the model: "
        "2 tensors of another shape (fc.weight 10x4 instead of 3x4 and fc.bias 10 instead of 3)."
    )
    assert error.hint == "The file has 10 classes, the model 3: pass --num-classes 10."


def test_another_architecture_is_recognised(net: Net) -> None:
    error = misfit(net, weights_of(timm.create_model("test_resnet", pretrained=False)))
    assert "missing (stem.weight, stem.bias, blocks.0.0.weight and 5 more)" in error.message
    assert "unexpected (conv1.0.weight" in error.message
    assert "another architecture" in error.hint


@pytest.mark.parametrize("other", [Net(width=8), Net(depth=5), Net(width=2, classes=7)])
def test_another_variant_is_recognised(net: Net, other: Net) -> None:
    assert "another variant" in misfit(net, weights_of(other)).hint
    assert "another variant" in misfit(other, weights_of(net)).hint


def test_a_single_layer_that_differs_is_named(net: Net) -> None:
    assert misfit(net, without(weights_of(net), "fc.weight")).hint == "Only the layer 'fc' differs; all others fit."
    coloured = weights_of(net, **{"stem.weight": torch.ones(4, 3, 3, 3)})
    assert misfit(net, coloured).hint == "Only the layer 'stem' differs; all others fit."


@pytest.mark.skipif(not SHARED_WEIGHTS.is_dir(), reason=f"the published weights are not in {SHARED_WEIGHTS}")
def test_published_timm_weights_load() -> None:
    weights = read_weights(SHARED_WEIGHTS / "tf_efficientnet_lite0.safetensors")
    load_into(timm.create_model("tf_efficientnet_lite0", pretrained=False), weights)
    assert weights.notes == ()
