"""Triton's kernels are compiled for GPUs that need not be there: the interpreter takes what the compiler refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILE = """
import sys
import torch
from torch import nn
import surgeon
from surgeon.layers import triton as kernels
from surgeon.layers.native import Activation, Noise

layer = surgeon.convert(nn.BatchNorm2d(4), "example-weighted:alpha=0.3", "ghost:size=2")
layer(torch.ones(4, 4, 3, 3))
layer.eval()(torch.ones(4, 4, 3, 3))
assert "surgeon.layers.triton.tiles" not in sys.modules  # on the CPU nobody needs them

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from surgeon.layers.triton import ghost, gradients, running, tiles, weighting

target = GPUTarget("cuda", int(sys.argv[1]), 32)
driver.set_active(type("Absent", (), {
    "get_current_device": lambda _: 0, "get_current_stream": lambda *_: 0, "get_current_target": lambda _: target,
})())
done = set()

def compiled(kernel, programs, values, *tensors, **arguments):
    program = kernel.warmup(*tensors, **arguments, grid=(programs,), num_warps=tiles.warps(values))
    assert program.asm["ptx"], kernel
    assert program.asm["cubin"], kernel
    assert program.metadata.shared < 48_000, kernel
    done.add(kernel.__name__)

for module in (ghost, gradients, running, weighting):
    module.launch = compiled

def every_kernel(dtype, columns, activation, noise):
    order = torch.channels_last if columns else torch.contiguous_format
    vectors = [torch.empty(48) for _ in range(5)]
    for sizes in ((3, 48, 7, 7), (1, 48, 192, 192)):  # at once, and in chunks
        x = torch.empty(sizes, dtype=dtype).contiguous(memory_format=order)
        y = kernels.example_weighted(x, *vectors, 1e-5, noise=noise, activation=Activation(activation, 0.1))
        assert y is not None, kernels.failure()
    x, bounds = torch.empty(5, 48, 28, 28, dtype=dtype).contiguous(memory_format=order), [(0, 2), (2, 4), (4, 5)]
    groups = kernels.ghost_forward(x, vectors[0], vectors[1], bounds, 1e-5, 16 if columns else 48)
    assert groups is not None, kernels.failure()
    assert kernels.ghost_backward(x, x, vectors[0], bounds, *groups[3:]) is not None, kernels.failure()
    assert kernels.updated_running(*groups[1:3], bounds, *vectors[2:4], 0.1) is not None, kernels.failure()
"""
FEW = """
every_kernel(torch.bfloat16, False, 6, Noise(2.0, 0.5))
"""
ALL = """
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for columns in (False, True):
        every_kernel(dtype, columns, 0, None)
for activation in range(1, 8):
    every_kernel(torch.float32, activation % 2 == 0, activation, Noise(2.0, 0.5))
tiles.LARGE = 0
every_kernel(torch.float32, False, 0, Noise(2.0, 0.5))
every_kernel(torch.float32, True, 0, None)
"""
CHECK = """
assert len(done) == 9, done
"""


def compile_for(capability: int, what: str, folder: Path) -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder), "TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", COMPILE + what + CHECK, str(capability)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_kernel_compiles(tmp_path: Path) -> None:
    """For an A100, to the machine code that its driver loads."""
    compile_for(80, FEW, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("capability", [75, 80, 90, 100])
def test_every_kernel_compiles_in_every_form(capability: int, tmp_path: Path) -> None:
    compile_for(capability, ALL, tmp_path)
