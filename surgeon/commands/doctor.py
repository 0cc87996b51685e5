"""Is this environment fit for work? Versions, devices, kernels, caches, the hub, and one prediction.

Nothing heavy is imported before its check: what is broken here is a finding, not an error.
"""

from __future__ import annotations

import os
import platform
import shutil
import warnings
from collections.abc import Callable, Iterator
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from surgeon.commands.listing import REGISTRIES
from surgeon.core.errors import PluginWarning, count, listing
from surgeon.core.versions import DISTRIBUTION, VERSION, kernels_file, version_of

if TYPE_CHECKING:
    from packaging.requirements import Requirement

NEEDED_SPACE = 10**9
FOR_DEVELOPMENT = ("docs", "dev")  # extras of this list are not for users
LIBRARIES = ("torch", "torchvision", "timm", "huggingface_hub", "datasets", "accelerate")


class Severity(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"


class Finding(BaseModel):
    """One thing that was looked at, and what to do about it."""

    model_config = ConfigDict(frozen=True)

    name: str
    state: Severity = Severity.OK
    value: str
    advice: str = ""


class Health(BaseModel):
    """All that was found; healthy if nothing that is needed is broken."""

    model_config = ConfigDict(frozen=True)

    healthy: bool
    findings: tuple[Finding, ...]


def examine() -> Health:
    """Look at everything; a look that fails is a finding too."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _versions, _requirements, _extras, _imports, _plugins, _devices, _kernels, _gpu_kernels, _memory, _cache,
        _hub, _prediction,
    )  # fmt: skip
    findings = [finding for look in looks for finding in _carefully(look)]
    return Health(healthy=all(f.state is not Severity.BROKEN for f in findings), findings=tuple(findings))


def _carefully(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from look()
    except Exception as error:  # a broken installation raises anything
        yield Finding(
            name=look.__name__.strip("_"),
            state=Severity.BROKEN,
            value=_explain(error),
            advice="Install surgeon again in a fresh environment.",
        )


def _explain(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), 'no message')}"


def _versions() -> Iterator[Finding]:
    yield Finding(name="surgeon", value=VERSION)
    yield Finding(name="python", value=f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for library in LIBRARIES:
        if (version := version_of(library)) is not None:
            yield Finding(name=library, value=version)


def _requirements() -> Iterator[Finding]:
    try:
        missing = [problem for need in _needs("") if (problem := _unmet(need))]
    except PackageNotFoundError:
        advice = "Install it with pip, so that its requirements are known."
        yield Finding(name="requirements", state=Severity.NOTE, value=f"{DISTRIBUTION} is not installed", advice=advice)
        return
    if missing:
        advice = f"Run: pip install {' '.join(repr(str(need)) for need in _needs('') if _unmet(need))}"
        yield Finding(name="requirements", state=Severity.BROKEN, value=listing(missing), advice=advice)
    else:
        yield Finding(name="requirements", value="all there")


def _extras() -> Iterator[Finding]:
    try:
        extras = metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    except PackageNotFoundError:
        return
    extras = [extra for extra in extras if extra not in FOR_DEVELOPMENT]
    there = [extra for extra in extras if not any(map(_unmet, _needs(extra)))]
    others = [extra for extra in extras if extra not in there]
    advice = f"To add them: pip install '{DISTRIBUTION}[{','.join(others)}]'" if others else ""
    value = f"{listing(there) or 'none'} installed" + (f"; without {listing(others)}" if others else "")
    yield Finding(name="extras", value=value, advice=advice)


def _plugins() -> Iterator[Finding]:
    """Packages that add rewrites, inserts, metrics and so on through entry points."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # told here
        found = [plugin for kind in REGISTRIES.values() for plugin in kind.registry.plugins]
    for package, version in dict.fromkeys((plugin.package, plugin.version) for plugin in found):
        theirs = [plugin for plugin in found if plugin.package == package]
        added = [f"{registry.kind} {name}" for plugin in theirs for registry, name in plugin.added]
        problems = dict.fromkeys(f"{plugin.module}: {plugin.problem}" for plugin in theirs if plugin.problem)
        value = f"{package} {version}: {'; '.join(problems) or listing(added, limit=20) or 'adds nothing'}"
        if problems:
            advice = f"It is left out: update it, or run pip uninstall {package}"
            yield Finding(name="plugin", state=Severity.NOTE, value=value, advice=advice)
        else:
            yield Finding(name="plugin", value=value)


def _needs(extra: str) -> list[Requirement]:
    """What surgeon requires, or what one of its extras adds to that."""
    from packaging.requirements import Requirement

    needs = map(Requirement, requires(DISTRIBUTION) or ())
    if not extra:
        return [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return [
        n for n in needs if n.marker and n.marker.evaluate({"extra": extra}) and not n.marker.evaluate({"extra": ""})
    ]


def _unmet(need: Requirement) -> str:
    """What is wrong with a requirement, or nothing."""
    version = version_of(need.name)
    if version is None:
        return f"{need.name} is not installed"
    return (
        "" if need.specifier.contains(version, prereleases=True) else f"{need.name} {version} is not {need.specifier}"
    )


def _imports() -> Iterator[Finding]:
    """torch and torchvision that do not belong together fail only when they are imported."""
    try:
        import timm  # noqa: F401
        import torch
        from torchvision.ops import nms

        nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except Exception as error:
        advice = "Install torch and torchvision again, together: pip install --force-reinstall torch torchvision"
        yield Finding(name="imports", state=Severity.BROKEN, value=_explain(error), advice=advice)
    else:
        yield Finding(name="imports", value="torch, torchvision and timm work together")


def _devices() -> Iterator[Finding]:
    import torch

    from surgeon.core.devices import pick_device

    gpus = [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    others = ["mps"] if torch.backends.mps.is_available() else []
    yield Finding(name="devices", value=f"{', '.join([*gpus, *others, 'cpu'])}; by default {pick_device()}")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding(name="threads", value=f"{torch.get_num_threads()} of torch, {usable} usable processors")


def _kernels() -> Iterator[Finding]:
    """Compiled kernels are compared with torch; without them everything works, some of it slower."""
    import torch
    from torch.nn.functional import batch_norm

    from surgeon.layers import native

    if kernels_file() is None:
        advice = "For speed, install surgeon again where there is a C compiler."
        yield Finding(name="compiled kernels", state=Severity.NOTE, value="not installed", advice=advice)
        return
    x = torch.arange(48, dtype=torch.float32).sin().reshape(4, 3, 2, 2)
    answer = native.ghost_forward(x, None, None, [(0, 4)], 1e-5) if native.available() else None
    if answer is None:
        advice = "They were built for other versions: install surgeon again."
        yield Finding(name="compiled kernels", state=Severity.NOTE, value="installed but not usable", advice=advice)
    elif torch.allclose(answer[0], batch_norm(x, None, None, training=True), atol=1e-5):
        yield Finding(name="compiled kernels", value="installed and usable")
    else:
        advice = "Remove surgeon/layers/native/_kernels* from the installation, and please report it."
        yield Finding(name="compiled kernels", state=Severity.BROKEN, value="they give wrong results", advice=advice)


def _gpu_kernels(device: str = "cuda") -> Iterator[Finding]:
    """Triton's are compiled when a GPU first needs them; without them everything works, some of it slower."""
    import torch
    from torch.nn.functional import batch_norm

    from surgeon.layers import triton

    if not torch.cuda.is_available():
        value = f"{'installed' if triton.installed() else 'not installed'}; there is no GPU that needs them"
        yield Finding(name="Triton kernels", value=value)
        return
    if not triton.installed():
        advice = "For speed on the GPU, install Triton: pip install triton"
        yield Finding(name="Triton kernels", state=Severity.NOTE, value="not installed", advice=advice)
        return
    x = torch.arange(48, dtype=torch.float32).sin().reshape(4, 3, 2, 2)
    answer = triton.ghost_forward(x.to(device), None, None, [(0, 4)], 1e-5)
    if answer is None:
        advice = "Triton needs a C compiler and a GPU that it knows. Without its kernels, torch computes the same."
        value = f"not usable: {triton.failure().partition(chr(10))[0]}"
        yield Finding(name="Triton kernels", state=Severity.NOTE, value=value, advice=advice)
    elif torch.allclose(answer.y.cpu(), batch_norm(x, None, None, training=True), atol=1e-5):
        yield Finding(name="Triton kernels", value="installed and usable")
    else:
        advice = "Uninstall Triton (pip uninstall triton), and please report it."
        yield Finding(name="Triton kernels", state=Severity.BROKEN, value="they give wrong results", advice=advice)


def _memory() -> Iterator[Finding]:
    try:
        page, total = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return
    free = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else None
    unused = "" if free is None else f", {_size(free * page)} of it unused"
    yield Finding(name="memory", value=f"{_size(total * page)}{unused}")


def _cache() -> Iterator[Finding]:
    from huggingface_hub import constants

    place = Path(constants.HF_HUB_CACHE)
    yield Finding(name="hub cache", value=f"{place}: {_size(_taken(place))} of downloads")
    disk = next(parent for parent in (place, *place.absolute().parents) if parent.exists())
    free = shutil.disk_usage(disk).free
    if not os.access(disk, os.W_OK):
        advice = "Let HF_HOME name a folder that you can write to."
        yield Finding(name="disk", state=Severity.NOTE, value=f"{disk} is not writable", advice=advice)
    elif free < NEEDED_SPACE:
        advice = "Downloads may fail: make room, or let HF_HOME name a folder on another disk."
        yield Finding(name="disk", state=Severity.NOTE, value=f"only {_size(free)} free for the cache", advice=advice)
    else:
        yield Finding(name="disk", value=f"{_size(free)} free for the cache")


def _taken(folder: Path) -> int:
    """Bytes in all files; links to them do not count again."""
    files = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_size for file in files if not file.is_symlink())


def _size(number: int) -> str:
    value, units = float(number), iter(("bytes", "kB", "MB", "GB"))
    unit = next(units)
    while value >= 1000 and (larger := next(units, None)):
        value, unit = value / 1000, larger
    return f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:,.1f} {unit}"


def _hub() -> Iterator[Finding]:
    from surgeon.models.hub import Reach, reach_of_hub

    reach = reach_of_hub()
    if reach in (Reach.PROXY, Reach.RESOLVED):
        yield Finding(name="hub", value=reach.value)
        return
    advice = "Cached and local weights can be used; downloads and `surgeon push` cannot."
    yield Finding(name="hub", state=Severity.NOTE, value=reach.value, advice=advice)


def _prediction() -> Iterator[Finding]:
    """One image of the bundled data through the bundled network."""
    import torch

    from surgeon.checkpoint import open_model
    from surgeon.data.digits import load_digits

    images, labels = load_digits("test")
    with torch.inference_mode():
        predicted = int(open_model("digits-resnet8").model(images[:1]).argmax())
    expected = int(labels[0])
    if predicted == expected:
        yield Finding(name="self-test", value=f"the bundled network recognises a {expected}")
    else:
        advice = "The installation is damaged: install surgeon again."
        value = f"the bundled network takes a {expected} for a {predicted}"
        yield Finding(name="self-test", state=Severity.BROKEN, value=value, advice=advice)


def summary(health: Health) -> str:
    """What is broken, in a sentence."""
    broken = [finding for finding in health.findings if finding.state is Severity.BROKEN]
    what = listing(f"{finding.name} ({finding.value})" for finding in broken)
    return f"{count(len(broken), 'thing')} that surgeon needs {'is' if len(broken) == 1 else 'are'} broken: {what}."
