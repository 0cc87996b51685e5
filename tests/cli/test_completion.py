"""Shell completion: installed by Typer, with names, without importing torch."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from surgeon.cli import completion
from surgeon.data.presets import PRESETS
from surgeon.metrics import metrics
from surgeon.results import Target
from surgeon.views import views

# What the `surgeon` command runs, under its own name, which is what completion goes by.
SURGEON = "import sys; sys.argv[0] = 'surgeon'; from surgeon.cli.app import main; main()"
AND_TORCH = """
import sys
sys.argv[0] = 'surgeon'
from surgeon.cli.app import app
try:
    app()
finally:
    sys.stderr.write(str(bool({"torch", "timm", "numpy", "huggingface_hub"} & set(sys.modules))))
"""


def complete(line: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = shlex.split(line)
    words = [*words, ""] if line.endswith(" ") else words
    environment = os.environ | {
        "_SURGEON_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    told = subprocess.run(
        [sys.executable, "-c", AND_TORCH], env=environment, capture_output=True, text=True, check=False
    )
    assert told.stderr == "False", told.stderr
    return told.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("surgeon do", ["doctor"]),
        ("surgeon convert digits", ["digits-resnet8"]),
        ("surgeon convert resnet18 --bn gh", ["ghost"]),
        ("surgeon finetune resnet18 --insert self", ["selfnorm"]),
        ("surgeon finetune resnet18 --augment vh-m", ["vh-mixup"]),
        ("surgeon eval digits-resnet8 --tta ten", ["ten-crop"]),
        ("surgeon sweep digits-resnet8 --metric cross", ["cross-entropy"]),
        ("surgeon export out --to t", ["timm", "torch-export"]),
        ("surgeon eval digits-resnet8 --data ci", ["cifar10", "cifar100"]),
    ],
)
def test_bash_is_offered_names(line: str, offered: list[str]) -> None:
    assert complete(line) == offered


def test_the_names_that_are_read_from_files_are_those_of_the_registries() -> None:
    assert completion.views("") == list(views)
    assert completion.metrics("") == list(metrics)
    assert completion.data("") == ["digits", *PRESETS]
    assert completion.targets("") == list(Target)


def test_names_of_every_kind() -> None:
    assert "torchvision:resnet50" in completion.models("torchvision:resnet")
    assert "flowers102" in completion.recipes("fl")
    assert completion.norms("example") == ["example-weighted"]
    assert completion.inserts("moex") == ["moex"]
    assert "cutmix" in completion.augments("cut")
    assert completion.models("no-such-thing") == []


def test_the_script_for_bash() -> None:
    told = subprocess.run(
        [sys.executable, "-c", SURGEON],
        env=os.environ | {"_SURGEON_COMPLETE": "source_bash"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "_SURGEON_COMPLETE=complete_bash" in told.stdout
    assert "complete -o default -F" in told.stdout


def test_completion_is_installed_for_bash(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", SURGEON, "--install-completion", "bash"],
        env=os.environ | {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "surgeon" in (tmp_path / ".bashrc").read_text()
