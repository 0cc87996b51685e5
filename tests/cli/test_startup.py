"""What needs no torch answers at once."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

import surgeon
from surgeon.cli.app import COMMANDS
from tests.cli.running import command, done, invoke

# Runs commands one after the other and says of each its exit code, and which heavy packages have been imported.
IMPORTED = """
import json, sys
from surgeon.cli.app import app
told = []
for arguments in json.loads(sys.argv[1]):
    try:
        app(arguments)
    except SystemExit as end:
        code = end.code
    heavy = {"torch", "timm", "torchvision", "numpy", "matplotlib", "sklearn", "huggingface_hub"} & set(sys.modules)
    told.append([arguments, code, sorted(heavy)])
sys.stderr.write(chr(10) + json.dumps(told))
"""

LIGHT = [
    ["--help"],
    ["--version"],
    ["ls", "norms"],
    ["ls", "inserts"],
    ["ls", "augments"],
    ["ls", "metrics"],
    ["ls", "views"],
    ["ls", "datasets"],
    ["ls", "recipes"],
    ["ls", "models"],
    ["ls", "models", "resnet*"],
    *([name, "--help"] for name in COMMANDS),
]
MISTYPED = [
    ["ls", "models", "qqqq"],
    ["ls", "metrcs"],
    ["sweep", "digits-resnet8", "--data", "digits", "--metric", "acuracy"],
    ["ensemble", "digits-resnet8", "digits-resnet8", "--data", "digits", "--metric", "acuracy"],
    ["inspect", "resnet5O"],
    ["convert", "resnet18", "--bn", "gost"],
    ["convert", "resnet18", "--bn", "ghost:sise=4"],
    ["convert", "resnet18", "--insert", "crosnorm"],
    ["convert", "resnet18", "--bn", "pono-moex:lamda=1"],
    ["convert", "resnet5O", "--bn", "ghost"],
    ["preview", "vh-mixupp", "--data", "digits"],
    ["preview", "mixup:alfa=1", "--data", "digits"],
    ["affinity", "digits-resnet8", "--data", "digits", "--augment", "cutot"],
    ["ensemble", "resnet18", "resnet5O", "--data", "digits"],
    ["finetune", "resnet18", "--data", "digits", "-o", "x", "--bn", "gost"],
    ["finetune", "resnet18", "--data", "digits", "-o", "x", "--tta", "flipp"],
    ["finetune", "resnet18", "--data", "digits", "-o", "x", "--augment", "cutot", "--dry-run"],
    ["recipe", "check", "flwers102"],
]


def test_answers_without_importing_anything_heavy() -> None:
    given = json.dumps(LIGHT + MISTYPED)
    finished = subprocess.run([sys.executable, "-c", IMPORTED, given], capture_output=True, text=True, check=True)
    told = json.loads(finished.stderr.splitlines()[-1])
    assert told == [[arguments, 0, []] for arguments in LIGHT] + [[arguments, 2, []] for arguments in MISTYPED]


def seconds_taken(arguments: list[str]) -> float:
    """By the clock, or on a machine that others keep busy by the processor's own count."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command(*arguments), capture_output=True, check=True)
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = os.getloadavg()[0] > 0.5 * len(os.sched_getaffinity(0))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime if busy else elapsed


@pytest.mark.parametrize("arguments", [["--help"], ["ls", "norms"]], ids=" ".join)
def test_answers_at_once(arguments: list[str]) -> None:
    """The target is half a second (benchmarks/startup.py); here the machine may be slow and busy with other tests."""
    times = []
    while len(times) < 5 and min(times, default=1.0) >= 1:
        times.append(seconds_taken(arguments))
    assert min(times) < 1


def test_help_names_every_command_and_where_to_start() -> None:
    text = done("--help").stdout
    for name in COMMANDS:
        assert f" {name} " in text
    assert "Start with surgeon demo" in text


@pytest.mark.parametrize(
    ("name", "mentions"),
    [
        ("demo", ["--output", "--json"]),
        ("ls", ["norms|inserts|augments", "PATTERN", "--json"]),
        ("inspect", ["MODEL", "--weights", "--no-pretrained", "--num-classes", "--json"]),
        (
            "convert",
            [
                "MODEL",
                "--bn",
                "--insert",
                "--layers",
                "--weights",
                "--no-pretrained",
                "--output",
                "--overwrite",
                "--dry-run",
            ],
        ),
        ("verify", ["CKPT", "--json"]),
        ("preview", ["NAME", "--data", "--count", "--split", "--seed", "--input-size", "--output"]),
        ("affinity", ["MODEL", "--data", "--augment", "--split", "--limit", "--seed", "--json"]),
    ],
)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_a_command_names_its_options(name: str, mentions: list[str], flag: str) -> None:
    text = done(name, flag).stdout
    for mention in mentions:
        assert mention in text


def test_version() -> None:
    assert done("--version").stdout.startswith(f"surgeon {surgeon.__version__}\npython ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["convert", "resnet18"], "--bn"),
        (["convert"], "MODEL"),
        (["operate"], "operate"),
        (["inspect", "resnet18", "--nonsense"], "--nonsense"),
        (["inspect", "resnet18", "--num-classes", "0"], "--num-classes"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], says: str, here: Path) -> None:
    outcome = invoke(*arguments)
    assert outcome.code == 2
    assert says in outcome.stderr
    assert not list(here.iterdir())
