"""A program that imports surgeon and calls it finds its process as it was: filters, environment, switches, heap."""

import subprocess
import sys

LOOK = """
import gc, logging, os, warnings, ctypes, random
from pathlib import Path
calls = []
class Library(ctypes.CDLL):
    def __getattr__(self, name):
        calls.append(name)
        return super().__getattr__(name)
ctypes.CDLL = Library
import datasets, huggingface_hub, matplotlib.backends.backend_agg, numpy as np
import scipy.interpolate, scipy.optimize, scipy.special
import PIL.Image, timm, torch, torchvision

def state():
    return {
        "filters": list(warnings.filters), "shown by": warnings.showwarning, "environment": dict(os.environ),
        "hub": huggingface_hub.constants.HF_HUB_OFFLINE, "datasets": datasets.config.HF_HUB_OFFLINE,
        "threads": torch.get_num_threads(), "garbage": gc.get_threshold(), "logging": logging.root.manager.disable,
        "default type": torch.get_default_dtype(), "gradients": torch.is_grad_enabled(),
        "torch's numbers": torch.random.get_rng_state().tolist(), "random": random.getstate(),
        "numpy's numbers": np.random.get_state()[1].tolist(),
    }

before = state()
import importlib.util, pkgutil
import surgeon
for module in pkgutil.walk_packages(surgeon.__path__, "surgeon."):
    if module.name.startswith("surgeon.layers.triton.") and importlib.util.find_spec("triton") is None:
        continue
    if not module.name.startswith(("surgeon.__main__", "surgeon.cli", "surgeon.layers.native._kernels")):
        importlib.import_module(module.name)
"""
CALL = """
def same(now):
    assert not (changed := [name for name in before if before[name] != now[name]]), changed
same(state())
model = surgeon.load(Path(surgeon.__file__).parent / "assets" / "digits-resnet8")
images, labels = torch.zeros(8, 1, 8, 8), torch.arange(8)
model = surgeon.convert(model, "example-weighted")
surgeon.evaluate(model, [(images, labels)])
surgeon.sweep(model, [(images, labels)], alphas=[0, 0.1])
try:
    surgeon.checkpoint.open_model("hf-hub:nobody/nothing")
except surgeon.SurgeonError:
    pass
same(state())
assert "mallopt" not in calls
print("as it was")
"""


def test_the_process_is_as_it_was() -> None:
    run = subprocess.run([sys.executable, "-c", LOOK + CALL], capture_output=True, text=True, check=False)
    assert run.stdout.endswith("as it was\n"), run.stdout + run.stderr
