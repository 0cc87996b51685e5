"""Packages of others: what they add is as good as ours, and what is wrong with them is their matter alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from surgeon.checkpoint import open_model
from surgeon.core.errors import SurgeonError
from surgeon.surgery.apply import apply_plan
from surgeon.surgery.plan import ResolvedPlan
from tests.cli.running import Outcome, invoke, operations, refusal, run
from tests.cli.test_completion import SURGEON

SOURCE = Path(__file__).parents[1] / "plugin" / "their_surgeon.py"
GROUPS = ("surgeon.norms", "surgeon.inserts", "surgeon.augment")
Surgeon = partial[Outcome]


def install(folder: Path, name: str, source: str, groups: tuple[str, ...] = GROUPS) -> Surgeon:
    """A distribution as pip leaves it: a module, and entry points that name it. Gives surgeon where that is."""
    module = name.replace("-", "_")
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(source, "utf-8")
    information = folder / f"{module}-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (information / "entry_points.txt").write_text("".join(f"[{group}]\ntheirs = {module}\n\n" for group in groups))
    paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return partial(run, PYTHONPATH=paths)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Surgeon:
    """surgeon with the package of others."""
    return install(tmp_path_factory.mktemp("packages"), "their-surgeon", SOURCE.read_text("utf-8"))


def done(outcome: Outcome) -> Outcome:
    assert outcome.code == 0, outcome.stderr
    assert "Warning" not in outcome.stderr
    return outcome


@pytest.fixture(scope="module")
def converted(theirs: Surgeon, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with their rewrite and their insert."""
    folder = tmp_path_factory.mktemp("converted") / "net"
    units = ["--bn", "their-rising:top=0.5", "--insert", "their-drop"]
    done(theirs("convert", "digits-resnet8", *units, "-o", folder))
    return folder


@pytest.mark.parametrize(
    ("kind", "name"), [("norms", "their-rising"), ("inserts", "their-drop"), ("augments", "their-halves")]
)
def test_what_they_add_is_listed(kind: str, name: str, theirs: Surgeon) -> None:
    listed = json.loads(done(theirs("ls", kind, "--json")).stdout)
    assert name in [one["name"] for one in listed]
    assert len(listed) > 1


def test_a_checkpoint_with_their_rewrites_trains_with_their_mix(theirs: Surgeon, converted: Path, here: Path) -> None:
    assert operations(converted)["bn1"]["their-rising"] == {"top": 0.5}
    trained = theirs(
        "finetune", converted, "--data", "digits", "--augment", "their-halves", "--epochs", "1", "-o", "run", "--json"
    )
    assert json.loads(done(trained).stdout)["recipe"]["augment"] == ["their-halves"]
    assert "their-rising" in (here / "run" / "checkpoint" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    "command",
    ["eval NET --data digits", "inspect NET", "card NET", "export NET --to torch-export -o f.pt2"],
)
def test_their_checkpoint_without_their_package(command: str, converted: Path) -> None:
    said = refusal(*command.replace("NET", str(converted)).split())
    assert said.startswith("The rewrite 'their-rising' of this network is not installed here.")
    assert "Install the package" in said


def test_their_checkpoint_cannot_be_verified_without_their_package(converted: Path) -> None:
    outcome = invoke("verify", converted)
    assert outcome.code == 3
    assert "The rewrite 'their-rising' of this network is not installed here." in outcome.stderr


def test_their_insert_without_their_package(converted: Path) -> None:
    record = json.loads((converted / "surgery.json").read_text())
    plan = ResolvedPlan.model_validate(record["plan"] | {"operations": []})
    with pytest.raises(SurgeonError, match="The insert 'their-drop' of this network is not installed here"):
        apply_plan(open_model("digits-resnet8").model, plan)


def test_their_mix_can_be_looked_at(theirs: Surgeon, here: Path) -> None:
    done(theirs("preview", "their-halves", "--data", "digits", "-o", "theirs.png"))
    assert (here / "theirs.png").stat().st_size > 1000


def test_the_doctor_lists_them(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    install(packages, "their-surgeon", SOURCE.read_text("utf-8"))
    groups = ("surgeon.norms", "surgeon.augment")
    outcome = install(packages, "sick-package", "import a_module_that_is_not_there\n", groups)("doctor", "--json")
    found = [finding for finding in json.loads(outcome.stdout)["findings"] if finding["name"] == "plugin"]
    assert {finding["value"]: finding["state"] for finding in found} == {
        "their-surgeon 1.2: rewrite their-rising, insert their-drop and augment their-halves": "ok",
        "sick-package 1.2: sick_package: ModuleNotFoundError: No module named 'a_module_that_is_not_there'.": "note",
    }
    assert outcome.code == 0
    assert outcome.stderr == ""


BROKEN = {
    "import": ("import a_module_that_is_not_there\n", "No module named 'a_module_that_is_not_there'"),
    "syntax": ("def x(:\n", "SyntaxError"),
    "taken": (
        "from surgeon.norms import norms\nnorms.register('ghost')(norms['split'])\n",
        "The rewrite 'ghost' is registered twice.",
    ),
    "exit": ("import sys\nsys.exit(0)\n", "it calls sys.exit when it is imported."),
    "base exception": ("raise BaseException('no')\n", "BaseException: no."),
    "half": (
        "from surgeon.norms import norms\n"
        "from dataclasses import replace\n"
        "norms.register('theirs')(replace(norms['split'], name='theirs'))\nraise SystemExit\n",
        "it calls sys.exit",
    ),
    "object": (
        "from surgeon.norms import norms\nnorms.register('theirs')(42)\n",
        "The rewrite 'theirs' is a int, not a NormVariant",
    ),
    "no name": ("from surgeon.norms import norms\nnorms.register(7)(norms['split'])\n", "not a NormVariant"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_package_is_left_out(fault: str, tmp_path: Path) -> None:
    source, reason = BROKEN[fault]
    outcome = install(tmp_path / "packages", "sick-package", source)("ls", "norms", "--json")
    assert outcome.code == 0
    names = [norm["name"] for norm in json.loads(outcome.stdout)]
    assert "ghost" in names
    assert "theirs" not in names
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(
        "Warning: The module 'sick_package' (surgeon.norms) of the package sick-package 1.2 was left"
    )
    assert reason in line


def test_a_package_that_exits_does_not_end_commands(tmp_path: Path, here: Path) -> None:
    surgeon = install(tmp_path / "packages", "sick-package", BROKEN["exit"][0])
    outcome = surgeon("convert", "digits-resnet8", "--bn", "ghost", "-o", "out")
    assert outcome.code == 0
    assert (here / "out" / "surgery.json").is_file()
    assert "sick-package 1.2 was left out" in outcome.stderr
    found = json.loads(surgeon("doctor", "--json").stdout)["findings"]
    (told,) = (finding for finding in found if finding["name"] == "plugin")
    assert told["state"] == "note"
    assert "it calls sys.exit" in told["value"]


def test_a_rewrite_that_exits_is_a_failure(tmp_path: Path) -> None:
    """Of a package that is there on import and ends the program when it is used."""
    source = SOURCE.read_text("utf-8") + (
        "\nimport dataclasses, sys\nfrom surgeon.norms import norms\n"
        "norms.register('their-end')("
        "dataclasses.replace(norms['example-weighted'], name='their-end', install=lambda *_: sys.exit(0)))\n"
    )
    ending = install(tmp_path / "packages", "their-surgeon", source)
    outcome = ending("convert", "digits-resnet8", "--bn", "their-end", "-o", "out")
    assert outcome.code == 1
    assert "Unexpected SystemExit" in outcome.stderr


def test_a_package_without_readable_entry_points_does_not_hide_others(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    install(packages, "sick-package", "")
    (packages / "sick_package-1.2.dist-info" / "entry_points.txt").write_text("[surgeon.norms]\nnonsense\n")
    outcome = install(packages, "their-surgeon", SOURCE.read_text("utf-8"))("ls", "norms", "--json")
    assert outcome.code == 0
    assert "their-rising" in [norm["name"] for norm in json.loads(outcome.stdout)]
    assert "entry points of the package sick-package cannot be read and were left out" in outcome.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"]])
def test_help_does_not_care_about_broken_packages(arguments: list[str], tmp_path: Path) -> None:
    helped = install(tmp_path / "packages", "sick-package", BROKEN["import"][0])(*arguments)
    assert helped.code == 0
    assert "Traceback" not in helped.stderr


def test_completion_does_not_care_either(tmp_path: Path) -> None:
    surgeon = install(tmp_path / "packages", "sick-package", BROKEN["import"][0])
    asked = {"_SURGEON_COMPLETE": "complete_bash", "COMP_WORDS": "surgeon convert x --bn gho", "COMP_CWORD": "4"}
    told = subprocess.run(
        [sys.executable, "-c", SURGEON], env=os.environ | surgeon.keywords | asked, capture_output=True, text=True
    )
    assert (told.stdout.strip(), told.stderr) == ("ghost", "")
