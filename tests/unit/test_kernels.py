"""Compiled kernels where one does not expect them: on nothing, with more threads than work, after a fork; sanitized."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import surgeon
from surgeon.layers import native, statistics
from tests.helpers import randn

ROOT = Path(__file__).parents[2]
PACKAGE = Path(surgeon.__file__).parent
SOURCES = sorted([*(PACKAGE / "layers" / "native").glob("*.c"), *(PACKAGE / "data").glob("*.c")])
needs_kernel = pytest.mark.skipif(not native.available(), reason="the kernels were not compiled at installation")
both_orders = pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])


def weighted(x: Tensor) -> Tensor | None:
    ones = torch.ones(x.shape[1])
    return native.example_weighted(x, 0 * ones, ones, ones, ones, 0.5 * ones, 1e-5, activation=native.Activation(3))


def grouped(x: Tensor, bounds: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    y, _ = statistics.normalise_groups(x, torch.ones(x.shape[1]), None, bounds, 1e-5)
    (gradient,) = torch.autograd.grad(y, x, y.detach().sin())
    return y.detach(), gradient


def expected_of(x: Tensor) -> Tensor:
    """What `weighted` computes, in float64."""
    x = x.double()
    mean, var = x.mean((2, 3), keepdim=True), x.var((2, 3), keepdim=True, correction=0)
    y = (x - 0.5 * mean) / (0.5 * var + 0.5 + 0.25 * mean**2 + 1e-5).sqrt() + 1
    return y.sigmoid() * y


@needs_kernel
@pytest.mark.parametrize("noise", [None, native.Noise(2.0, 0.5)])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_threads_share_the_positions_of_few_images(noise: native.Noise | None, offset: float) -> None:
    """Shares of different lengths, whose moments differ: the two halves of an image are not alike."""
    before = torch.get_num_threads()
    try:
        for shape in ((1, 24, 20, 20), (2, 5, 33, 17), (1, 3, 500, 2), (3, 40, 24, 24)):
            x = (
                offset
                + randn(*shape) * torch.linspace(0.1, 3, shape[2])[:, None]
                + torch.linspace(-2, 2, shape[2])[:, None]
            )
            x = x.contiguous(memory_format=torch.channels_last)
            mean, var = torch.full((shape[1],), offset), torch.linspace(0.5, 2, shape[1])
            answers = []
            for threads in (1, 2, 5):
                torch.set_num_threads(threads)
                answers.append(native.example_weighted(x, mean, var, var, mean, var / 2, 1e-5, noise=noise))
            for shared in answers[1:]:
                torch.testing.assert_close(shared, answers[0], rtol=2e-6, atol=2e-6 * max(offset, 1))
            if noise is None:
                running = statistics.Statistics(mean.double(), var.double())
                exact = statistics.example_weighted(
                    x.double(), running, var.double(), mean.double(), var.double() / 2, 1e-5, shape[1]
                )
                for found in answers:
                    torch.testing.assert_close(found.double(), exact, rtol=2e-6, atol=2e-6 * max(offset, 1))
    finally:
        torch.set_num_threads(before)


@needs_kernel
@pytest.mark.parametrize("channel_groups", [24, 6, 1])
@pytest.mark.parametrize("bounds", [[(0, 5)], [(0, 3), (3, 5)]])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_threads_share_the_rows_of_few_groups(
    channel_groups: int, bounds: list[tuple[int, int]], offset: float
) -> None:
    x = offset + randn(5, 24, 21, 20) * torch.linspace(0.1, 3, 21)[:, None] + torch.arange(5.0)[:, None, None, None]
    x = x.contiguous(memory_format=torch.channels_last)
    upstream = randn(*x.shape, seed=1).contiguous(memory_format=torch.channels_last)
    weight, bias = 1 + randn(24, seed=2) / 4, randn(24, seed=3)

    def found(dtype: torch.dtype) -> list[Tensor]:
        tensors = [t.detach().to(dtype).requires_grad_() for t in (x, weight, bias)]
        y, moments = statistics.normalise_groups(*tensors, bounds, 1e-5, channel_groups)
        y.backward(upstream.to(dtype))
        return [y.detach(), *moments, *(t.grad for t in tensors)]  # type: ignore[list-item]

    before, exact = torch.get_num_threads(), found(torch.float64)
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            for ours, theirs in zip(found(torch.float32), exact, strict=True):
                close = 1e-5 * max(1.0, float(theirs.abs().max()))
                torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=close * (10 if offset else 1))
    finally:
        torch.set_num_threads(before)


@needs_kernel
@both_orders
def test_more_threads_than_work_give_the_same(memory_format: torch.memory_format) -> None:
    before = torch.get_num_threads()
    try:
        for shape in ((1, 1, 300, 300), (3, 17, 41, 43), (5, 130, 9, 9), (1, 64, 57, 31)):
            x = randn(*shape).contiguous(memory_format=memory_format)
            each, together = [(i, i + 1) for i in range(shape[0])], [(0, shape[0])]
            torch.set_num_threads(1)
            alone = weighted(x), *grouped(x, each), *grouped(x, together)
            for number in (2, 3, 7):
                torch.set_num_threads(number)
                found = weighted(x), *grouped(x, each), *grouped(x, together)
                for ours, theirs in zip(found, alone, strict=True):
                    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)  # blocks depend on threads
            torch.testing.assert_close(alone[0].double(), expected_of(x), rtol=2e-6, atol=2e-6)
    finally:
        torch.set_num_threads(before)


@needs_kernel
@both_orders
@pytest.mark.parametrize("shape", [(3, 35, 141, 143), (3, 102, 102, 69)])
def test_results_that_no_cache_holds(shape: tuple[int, ...], memory_format: torch.memory_format) -> None:
    """Large ones, in rows that begin and end within a line of memory."""
    x = randn(*shape).contiguous(memory_format=memory_format)
    y, bounds = weighted(x), [(0, 2), (2, 3)]
    assert y is not None
    torch.testing.assert_close(y.double(), expected_of(x), rtol=2e-6, atol=2e-6)
    ours = grouped(x, bounds)
    for start, stop in bounds:
        own = x[start:stop].double().requires_grad_()
        expected = torch.nn.functional.batch_norm(own, None, None, None, None, True, 0.0, 1e-5)
        (gradient,) = torch.autograd.grad(expected, own, ours[0][start:stop].double().sin())
        torch.testing.assert_close(ours[0][start:stop].double(), expected, rtol=2e-6, atol=2e-6)
        torch.testing.assert_close(ours[1][start:stop].double(), gradient, rtol=1e-5, atol=1e-5)


@needs_kernel
@both_orders
@pytest.mark.parametrize("side", [6, 14, 28, 71, 114])
def test_squares_do_not_cancel_where_the_first_values_are_unlike_the_rest(
    side: int, memory_format: torch.memory_format
) -> None:
    """As those of a border. Moments are taken about the mean of what comes first."""
    x = randn(2, 20, side, side)
    x[:, :, : max(1, side // 7)] += 1000
    x = x.contiguous(memory_format=memory_format)
    ones = torch.ones(20)
    y = native.example_weighted(x, 0 * ones, ones, None, None, ones, 1e-5)
    assert y is not None
    expected = torch.nn.functional.instance_norm(x.double(), eps=1e-5)
    torch.testing.assert_close(y.double(), expected, rtol=2e-6, atol=2e-6)
    alike, _ = grouped(x, [(0, 1), (1, 2)])
    torch.testing.assert_close(alike.double(), expected, rtol=2e-6, atol=2e-6)


@needs_kernel
@both_orders
def test_memory_that_starts_anywhere(memory_format: torch.memory_format) -> None:
    for start in range(1, 17):
        x = randn(2 * 6 * 5 * 7 + start)[start:].view(2, 6, 5, 7)
        if memory_format is torch.channels_last:
            x = randn(2 * 6 * 5 * 7 + start)[start:].view(2, 5, 7, 6).permute(0, 3, 1, 2)
        y = weighted(x)
        assert y is not None
        torch.testing.assert_close(y.double(), expected_of(x), rtol=2e-6, atol=2e-6)


@needs_kernel
def test_nothing_is_left_to_torch() -> None:
    for shape in ((0, 4, 3, 3), (2, 0, 3, 3), (2, 4, 0, 3)):
        assert weighted(torch.empty(shape)) is None
        assert not native.takes_groups(torch.empty(shape), None, None)


def _in_child(queue: multiprocessing.SimpleQueue[bytes]) -> None:
    torch.set_num_threads(1)
    x = randn(4, 20, 40, 41)
    y = weighted(x)
    assert y is not None
    queue.put(y.numpy().tobytes())


@needs_kernel
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_computes_the_same() -> None:
    """As worker processes of data loaders are: after the parent has used its threads."""
    x = randn(4, 20, 40, 41)
    y = weighted(x)
    assert y is not None
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    answer = queue.get()
    child.join(60)
    assert child.exitcode == 0
    torch.testing.assert_close(torch.frombuffer(bytearray(answer), dtype=torch.float32).view(y.shape), y)


# ---- under sanitizers ----

PLUGIN = '''
"""The kernels' library is the sanitized one."""
import os
from pathlib import Path

from surgeon.core import versions

versions.kernels_file = lambda: Path(os.environ["SANITIZED_KERNELS"])
'''
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g"]
RUN_SANITIZED = [
    "tests/unit/test_kernels.py",
    "tests/unit/test_activations.py",
    "tests/unit/test_statistics.py",
    "tests/unit/test_scaling.py",
    "tests/unit/test_halves.py",
    "tests/unit/test_selfnorm_kernel.py",
    "tests/unit/test_corruption_kernels.py",
    "tests/unit/augment/test_mixes.py",
    "tests/unit/test_data_png.py",
]


def compiled(folder: Path, flags: list[str]) -> Path:
    """A library with sanitizers, as far as this machine has them."""
    compiler = shutil.which("gcc") or pytest.skip("there is no gcc")
    library = folder / "sanitized.so"
    command = [compiler, "-shared", "-fPIC", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", *SANITIZE, *flags]
    done = subprocess.run([*command, *map(str, SOURCES), "-o", str(library)], capture_output=True, text=True)
    if done.returncode and ("asan" in done.stderr or "sanitize" in done.stderr):
        pytest.skip(f"the compiler has no sanitizers: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return library


def runtime_of_sanitizer() -> str:
    """What has to be loaded before Python: with C++'s, without which torch's exceptions end the process."""
    names = ("libasan.so", "libstdc++.so")
    found = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        for name in names
    ]
    return " ".join(found) if all(map(os.path.isabs, found)) else pytest.skip("gcc's libasan is not installed")


def sanitized(folder: Path, flags: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    library = compiled(folder, flags)
    (folder / "with_sanitized_kernels.py").write_text(PLUGIN)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "LD_PRELOAD": runtime_of_sanitizer(),
        "SANITIZED_KERNELS": str(library),
        # Python and torch keep what they allocate; a sanitizer that ends the process says 66.
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=66",
        "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=66",
        "OMP_NUM_THREADS": "2",
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="libasan is preloaded as on Linux")
@pytest.mark.parametrize(
    "flags",
    [["-O1"], ["-O2", "-march=native"], ["-O1", "-D__builtin_cpu_supports(name)=0"]],
    ids=["plain", "vectors", "an older processor"],
)
def test_kernels_touch_no_memory_that_is_not_theirs(tmp_path: Path, flags: list[str]) -> None:
    arguments = ["-m", "pytest", "-q", "-p", "with_sanitized_kernels", "-p", "no:cacheprovider", "-m", "not long"]
    done = sanitized(tmp_path, flags, *arguments, *RUN_SANITIZED)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="libasan is preloaded as on Linux")
def test_the_sanitizers_would_notice(tmp_path: Path) -> None:
    """A kernel that is told of more positions than there are."""
    script = """
import with_sanitized_kernels, torch
from surgeon.layers import native
ones = torch.ones(3)
x, y = torch.ones(2, 3, 7, 7), torch.ones(2, 3, 7, 7)
place = [t.data_ptr() for t in (x, y)]
job = native._ExampleWeighted(*place, 2, 3, 4900, *[ones.data_ptr()] * 5, 1e-5, -1.0, 0.0, 0, 0.0)
native._library().example_weighted_rows(job, 1)
"""
    done = sanitized(tmp_path, ["-O1"], "-c", script)
    assert done.returncode == 66
    assert "AddressSanitizer" in done.stderr
