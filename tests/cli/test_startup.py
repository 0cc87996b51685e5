"""What needs no torch imports nothing heavy, so that it answers at once (benchmarks/startup.py measures that)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import surgeon
from surgeon.cli.app import COMMANDS
from surgeon.cli.host import expand_home
from tests.cli.running import done, invoke

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
    ["ls", "conditions"],
    ["ls", "datasets"],
    ["ls", "recipes"],
    ["ls", "models"],
    ["ls", "models", "resnet*"],
    *([name, "--help"] for name in COMMANDS),
    *(["study", name, "--help"] for name in ("run", "show", "plan")),
]
MISTYPED = [
    ["ls", "models", "qqqq"],
    ["ls", "metrcs"],
    ["sweep", "digits-resnet8", "--data", "digits", "--metric", "acuracy"],
    ["sweep", "digits-resnet8", "--data", "digits", "--sweep", "example-weighted.alfa=0,1"],
    ["ensemble", "digits-resnet8", "digits-resnet8", "--data", "digits", "--metric", "acuracy"],
    ["inspect", "resnet5O"],
    ["convert", "resnet18", "--bn", "gost"],
    ["convert", "resnet18", "--bn", "ghost:sise=4"],
    ["convert", "resnet18", "--insert", "crosnorm"],
    ["convert", "resnet18", "--bn", "pono-moex:lamda=1"],
    ["convert", "resnet5O", "--bn", "ghost"],
    ["preview", "vh-mixupp", "--data", "digits"],
    ["preview", "mixup:alfa=1", "--data", "digits"],
    ["preview", "gaussian-nose", "--data", "digits"],
    ["preview", "fog:severity=6", "--data", "digits"],
    ["affinity", "digits-resnet8", "--data", "digits", "--augment", "cutot"],
    ["ensemble", "resnet18", "resnet5O", "--data", "digits"],
    ["finetune", "resnet18", "--data", "digits", "-o", "x", "--bn", "gost"],
    ["finetune", "resnet18", "--data", "digits", "-o", "x", "--tta", "flipp"],
    ["finetune", "resnet18", "--data", "digits", "-o", "x", "--augment", "cutot", "--dry-run"],
    ["recipe", "check", "flwers102"],
    ["study", "nowhere.yaml", "-o", "x"],
]


def test_answers_without_importing_anything_heavy() -> None:
    given = json.dumps(LIGHT + MISTYPED)
    finished = subprocess.run([sys.executable, "-c", IMPORTED, given], capture_output=True, text=True, check=True)
    told = json.loads(finished.stderr.splitlines()[-1])
    assert told == [[arguments, 0, []] for arguments in LIGHT] + [[arguments, 2, []] for arguments in MISTYPED]


def test_the_overview_imports_nothing_that_only_some_commands_need() -> None:
    """It imports the module of every command, so that each of them decides how long the overview takes."""
    program = "import sys, surgeon.cli.app as cli\ntry: cli.app(['--help'])\nexcept SystemExit: pass\n"
    program += "print({'pydantic', 'yaml', 'rich.progress', 'urllib.request'} & set(sys.modules), file=sys.stderr)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stderr.strip() == "set()"


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


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("width", [80, 120])
def test_help_shows_values_but_no_types_and_fits_the_terminal(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = done(name, "--help").stdout
    assert not re.search(r"<(bool|str|int|float|path)>|\{(\w+)\}", text)
    assert max(map(len, text.splitlines()[1:])) <= width


@pytest.mark.parametrize("name", ["eval", "sweep", "finetune", "recalibrate", "robustness"])
def test_options_that_commands_share_stand_in_the_same_panels(name: str) -> None:
    text = done(name, "--help").stdout
    for panel, option in (
        ("Images", "--limit"),
        ("Preprocessing", "--input-size"),
        ("Network and weights", "--weights"),
    ):
        assert option in text.partition(f"─ {panel} ─")[2].partition("╰─")[0]


def test_the_overview_shows_the_first_paragraph_of_each_command() -> None:
    text = done("--help").stdout
    assert "Compare networks on the same images" in text
    assert "imagenet-c:PATH" not in text
    assert "imagenet-c:PATH" in done("robustness", "--help").stdout


def test_wrong_usage_shows_how_the_command_is_used() -> None:
    assert re.search(r"Usage: \S+ convert MODEL \[OPTIONS\]", invoke("convert").stderr)


def test_the_home_folder_is_meant_where_the_shell_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `-o '~/x'` would make a folder called ~, which somebody will remove with all that is theirs."""
    monkeypatch.setenv("HOME", "/home/me")
    given = ["~/a b", "--output=~/x", "-o", "~", "a~/b", "--rename", "x=~/y", "~other/x", "--set=lr=~/1"]
    expected = [
        "/home/me/a b",
        "--output=/home/me/x",
        "-o",
        "~",
        "a~/b",
        "--rename",
        "x=~/y",
        "~other/x",
        "--set=lr=~/1",
    ]
    assert expand_home(given) == expected


# Presses Ctrl-C when the command line imports the first package that is not its own.
INTERRUPTED = """
import signal, sys
class Pressing:
    def find_spec(self, name, *_):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Pressing())
if sys.argv[1] == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv[1:] = ["--version"]
from surgeon.cli.start import main
main()
"""


def test_ctrl_c_before_the_command_has_begun_leaves_no_traceback() -> None:
    pressed = subprocess.run([sys.executable, "-c", INTERRUPTED, "heeded"], capture_output=True, text=True)
    assert (pressed.returncode, pressed.stdout) == (130, "")
    assert pressed.stderr == "Interrupted; nothing was left half-written.\n"
    behind = subprocess.run([sys.executable, "-c", INTERRUPTED, "ignored"], capture_output=True, text=True)
    assert (behind.returncode, behind.stderr) == (0, "")
