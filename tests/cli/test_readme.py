"""The commands and programs of the README and of every page of the documentation run as they are written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from surgeon.augment.base import augments
from surgeon.cli.app import app
from surgeon.inserts import inserts
from surgeon.losses.base import losses
from surgeon.norms import norms
from surgeon.training.recipe import load_recipe
from tests.cli.running import done

PROJECT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(page.relative_to(PROJECT)) for page in (PROJECT / "docs").rglob("*.md"))]
EXTENDING = "docs/extending.md"
NEEDS_NETWORK = "needs the network"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (PROJECT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    """Those that need no network, in order."""
    lines = [line for block in blocks(page, "bash") for line in block.splitlines() if line.strip()]
    return [line for line in lines if NEEDS_NETWORK not in line]


def unexecuted(page: str) -> list[list[str]]:
    """Arguments of the commands that need a network, data of one's own, hours or several processes.

    Lines with brackets show what may be left out: nobody types them.
    """
    lines = [line for language in ("bash", "text") for block in blocks(page, language) for line in block.splitlines()]
    found = [re.search(r"(?:^|-m |; do )surgeon (\S.*)", line) for line in lines if line not in commands(page)]
    return [shlex.split(one[1].split(";")[0], comments=True) for one in found if one and " [" not in one[1]]


UNEXECUTED = [(page, arguments) for page in PAGES for arguments in unexecuted(page)]


def shown(page: str) -> list[str]:
    """Lines of output that the page shows, each whole or the beginning of one."""
    lines = [line for block in blocks(page, "text") if " install " not in block for line in block.splitlines()]
    return [line for line in lines if not line.startswith(("surgeon ", "python "))]


def without_numbers(text: str) -> str:
    """The last digits depend on the processor."""
    return re.sub(r"[-+]?\d+(?:\.\d+)?(?:e-\d+)?", "#", text)


@pytest.mark.parametrize("page", filter(commands, PAGES))
def test_every_offline_command_of_a_page_in_order(page: str) -> None:
    said = ""
    for command in commands(page):
        program, *arguments = shlex.split(command, comments=True)
        assert program == "surgeon"
        said += done(*arguments).stderr
    if page == "README.md":
        assert [line for line in shown(page) if without_numbers(line) not in without_numbers(said)] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_command_after_the_installation_is_found_in_the_same_shell(page: str, tmp_path: Path) -> None:
    """A shell without any environment; only what pip would download is left out."""
    (installation,) = (block for block in blocks(page, "text") if "pip install" in block)
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / "python3").write_text(
        f'#!/bin/sh\n"{sys.executable}" "$@" --without-pip && cp "{stubs}/pip-of-the-environment" .venv/bin/pip\n'
    )
    (stubs / "pip-of-the-environment").write_text(f'#!/bin/sh\ncp "{stubs}/installed" "$(dirname "$0")/surgeon"\n')
    (stubs / "installed").write_text('#!/bin/sh\necho "ran $*"\n')
    for stub in stubs.iterdir():
        stub.chmod(0o755)
    typed = f"{installation}{commands(page)[0]}\n"
    finished = subprocess.run(
        ["sh", "-e"],
        input=typed, cwd=tmp_path, capture_output=True, text=True, check=False, env={"PATH": f"{stubs}:/usr/bin:/bin"},
    )  # fmt: skip
    assert finished.stdout == "ran demo\n", finished.stderr


@pytest.mark.parametrize(
    "arguments", [one for _, one in UNEXECUTED], ids=[f"{page} {' '.join(one)}"[:100] for page, one in UNEXECUTED]
)
def test_a_command_that_cannot_be_run_here_is_one_all_the_same(arguments: list[str]) -> None:
    """It names a command, and options and recipes that there are."""
    group = typer.main.get_command(app)
    with group.make_context("surgeon", list(arguments)) as context:
        command = group.get_command(context, arguments[0])  # type: ignore[attr-defined]
        assert command is not None
        parsed = command.make_context(arguments[0], arguments[1:], parent=context).params
    recipe = parsed.get("recipe")
    if recipe and not recipe.endswith(".yaml"):
        load_recipe(recipe, {})


@pytest.mark.parametrize("page", [page for page in PAGES if page != EXTENDING and blocks(page, "python")])
def test_the_programs_of_a_page_in_order(page: str) -> None:
    names = {"__name__": "__main__"}
    for program in blocks(page, "python"):
        exec(compile(program, "program", "exec"), names)


def test_the_page_on_augmentation_names_every_one() -> None:
    table = (PROJECT / "docs/augment.md").read_text("utf-8").partition("## What there is")[2].partition("## ")[0]
    assert [name for name in augments if f"`{name}`" not in table] == []


def test_the_page_on_losses_has_a_section_for_every_term() -> None:
    page = (PROJECT / "docs/losses.md").read_text("utf-8")
    assert [name for name in losses if f"\n### {name}\n" not in page] == []


def test_every_rewrite_and_insert_has_a_page_with_its_options() -> None:
    for kind, names in (("norms", norms), ("inserts", inserts)):
        for name in names:
            assert f"<!-- table: {kind} {name} -->" in (PROJECT / f"docs/methods/{name}.md").read_text("utf-8")


def test_everything_that_can_be_added_in_one_file(tmp_path: Path) -> None:
    """In a process of their own: what they register would stay in this one."""
    for name, program in zip(
        ("clipped", "scaled_noise", "dimmed", "halves", "sure_mistakes", "darker", "negative", "largest_logit"),
        blocks(EXTENDING, "python"),
        strict=True,
    ):
        (tmp_path / f"{name}.py").write_text(program)
    use = """
import clipped, darker, dimmed, halves, largest_logit, negative, scaled_noise, sure_mistakes, torch, surgeon
from PIL import Image
from surgeon.augment.pipeline import build_augmentation
from surgeon.models.origin import Preprocessing
network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
print(surgeon.convert(network, "clipped", limit=1.0))
print(surgeon.convert(network, "scaled-noise:site=1", inputs=(torch.randn(2, 3, 8, 8),)))
(dim,) = build_augmentation(["dimmed:least=0.2"], Preprocessing(input_size=(1, 8, 8), mean=(0.5,), std=(0.5,))).image
assert dim(Image.new("L", (8, 8), 200)).getpixel((0, 0)) < 200
images, targets = surgeon.mixer("halves", classes=2)(torch.eye(2)[:, None, :, None], torch.tensor([0, 1]), None)
assert images[:, 0, :, 0].tolist() == [[1, 1], [0, 0]] and targets.tolist() == [[0.5, 0.5]] * 2
logits = torch.tensor([[9.0, 0, 0], [0, 9.0, 0], [0.1, 0, 0]])
network = torch.nn.Identity()
assert surgeon.evaluate(network, [(logits, torch.tensor([0, 0, 1]))]).value("sure-mistakes") == 1 / 3
from surgeon.views import views_for
views = views_for("darker:steps=3", Preprocessing(input_size=(1, 8, 8), mean=(0.5,), std=(0.5,)))
assert views.count == 4
assert [round(float(view.mean()), 3) for view in views.of(torch.ones(2, 1, 8, 8))] == [1.0, 0.9, 0.8, 0.7]
from surgeon.conditions.base import ask
(under,) = ask(["negative:share=0.5"])
assert under.apply(torch.rand(2, 1, 8, 8), torch.tensor([0, 1]), torch.tensor([0, 1])).eq(0.5).all()
criterion = surgeon.loss("largest-logit:weight=0.5")
assert str(criterion) == "cross-entropy + largest-logit:weight=0.5"
plain = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 0, 1]))
torch.testing.assert_close(criterion(logits, torch.tensor([0, 0, 1])), plain + 0.5 * (9 + 9 + 0.1) / 3)
"""
    finished = subprocess.run([sys.executable, "-c", use], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_the_rewrite_of_the_page_keeps_every_promise_of_a_rewrite(tmp_path: Path) -> None:
    """The contract tests find it without an edit, in a process that has imported it."""
    (tmp_path / "clipped.py").write_text(blocks(EXTENDING, "python")[0])
    contract = [sys.executable, "-m", "pytest", "-q", "-p", "clipped", "-p", "no:cacheprovider", "-n", "0"]
    chosen = ["-k", "clipped", "-m", "not long", "tests/contract/test_norm_contract.py"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    finished = subprocess.run([*contract, *chosen], cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout
    assert int(re.search(r"(\d+) passed", finished.stdout)[1]) > 60
