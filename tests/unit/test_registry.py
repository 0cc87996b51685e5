"""Registries: one folder, one name each, and the closest names for a mistyped one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from surgeon.core.errors import PluginWarning, SurgeonError
from surgeon.core.registry import Registry
from surgeon.norms import norms

INIT = """
from surgeon.core.registry import Registry

things = Registry("thing", __name__)
"""
REGISTER = """
from {package} import things

things.register({name!r})({thing!r})
"""

Package = Callable[..., Registry[str]]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Package:
    """Makes a package whose modules register things: `package(module="name")`."""
    name = f"package_{abs(hash(request.node.name))}"
    monkeypatch.syspath_prepend(tmp_path)

    def make(**modules: str) -> Registry[str]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(INIT)
        for module, thing in modules.items():
            text = REGISTER.format(package=name, name=thing, thing=f"the {thing}")
            (tmp_path / name / f"{module}.py").write_text(text)
        return __import__(name).things

    return make


def install(folder: Path, group: str, **entries: str) -> None:
    """An installed distribution with entry points, and the modules that they name."""
    information = folder / "plugin-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    lines = [f"{name} = {module}" for name, module in entries.items()]
    (information / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    for module in entries.values():
        text = REGISTER.format(package=group, name=module.replace("_", "-"), thing=f"the {module}")
        (folder / f"{module}.py").write_text(text)


def test_every_file_of_the_folder_is_found_and_sorted(package: Package) -> None:
    things = package(b="bear", a="zebra", c="ant")
    assert list(things) == ["ant", "bear", "zebra"]
    assert things["bear"] == "the bear"
    assert "ant" in things
    assert "cat" not in things


def test_nothing_is_imported_before_it_is_asked_for(package: Package) -> None:
    things = package(late="late")
    assert f"{things.package}.late" not in sys.modules
    assert "late" in things
    assert f"{things.package}.late" in sys.modules


def test_a_name_is_taken_only_once(package: Package) -> None:
    things = package(one="bear")
    assert "bear" in things
    with pytest.raises(SurgeonError, match="The thing 'bear' is registered twice"):
        things.register("bear")("another")
    assert things["bear"] == "the bear"


def test_two_files_cannot_take_the_same_name(package: Package) -> None:
    with pytest.raises(SurgeonError, match="'bear' is registered twice"):
        list(package(one="bear", two="bear"))


def test_registering_returns_the_thing() -> None:
    things: Registry[object] = Registry("thing", "surgeon.norms")
    thing = object()
    assert things.register("a")(thing) is thing


def test_a_mistyped_name_is_answered_with_the_closest(package: Package) -> None:
    with pytest.raises(SurgeonError) as caught:
        package(a="bear", b="zebra")["baer"]
    assert caught.value.message == "There is no thing 'baer'."
    assert caught.value.hint == "Did you mean bear?"


def test_a_name_like_no_other_is_answered_with_all(package: Package) -> None:
    with pytest.raises(SurgeonError, match="Known: bear and zebra"):
        package(a="bear", b="zebra")["qqqqqq"]


def test_installed_packages_add_things(package: Package, tmp_path: Path) -> None:
    things = package(a="bear")
    install(tmp_path, things.package, anything="foreign_animal")
    assert list(things) == ["bear", "foreign-animal"]
    assert things["foreign-animal"] == "the foreign_animal"


def test_installed_packages_cannot_replace_things(package: Package, tmp_path: Path) -> None:
    things = package(a="bear")
    install(tmp_path, things.package, anything="bear")
    with pytest.warns(PluginWarning, match=r"plugin 1\.0 was left out.*'bear' is registered twice"):
        assert list(things) == ["bear"]
    (plugin,) = things.plugins
    assert (plugin.package, plugin.added, plugin.problem) == ("plugin", [], "The thing 'bear' is registered twice.")


def test_nothing_of_a_package_that_fails_is_left(package: Package, tmp_path: Path) -> None:
    things = package(a="bear")
    install(tmp_path, things.package, first="half_an_animal", second="strange_animal")
    module = tmp_path / "half_an_animal.py"
    module.write_text(module.read_text() + "\nimport a_module_that_is_not_there\n")
    with pytest.warns(PluginWarning, match="The module 'half_an_animal' .* of the package plugin 1.0 was left .*: No"):
        assert list(things) == ["bear", "strange-animal"]
    assert [bool(plugin.problem) for plugin in things.plugins] == [True, False]


def test_a_package_cannot_take_names_before_we_do(package: Package, tmp_path: Path) -> None:
    """A module may register things of several kinds, and the other kinds may not have been asked for yet."""
    others = package(a="bear")
    module = tmp_path / "of_both_kinds.py"
    module.write_text(REGISTER.format(package=others.package, name="bear", thing="not the bear"))
    things: Registry[str] = Registry("thing", "surgeon.inserts")
    install(tmp_path, "surgeon.inserts", anything="of_both_kinds_too")
    module.rename(tmp_path / "of_both_kinds_too.py")
    with pytest.warns(PluginWarning, match="'bear' is registered twice"):
        assert list(things) == []
    assert others["bear"] == "the bear"


def test_entry_points_of_other_groups_are_left_alone(package: Package, tmp_path: Path) -> None:
    things = package(a="bear")
    install(tmp_path, "somebody.else", anything="module_that_fails")
    assert list(things) == ["bear"]


def test_the_rewrites_are_one_file_or_folder_each() -> None:
    folder = Path(sys.modules["surgeon.norms"].__file__ or "").parent
    files = {file.stem for file in folder.iterdir()} - {"__init__", "base", "__pycache__"}
    assert {name.replace("-", "_") for name in norms} == files
