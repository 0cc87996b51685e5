"""How one call travels through the rooms of the package: python docs/figures/journeys.py [--check].

Each command below is really run, and every call from a function of one room to a function of another is noted. The
picture shows the first call of a public function from each room down to each other, in the order in which they happen;
`core`, which all of them call, is left out. The table of rooms comes from the import contract in pyproject.toml and
from each room's docstring. `--check` writes nothing and fails where the committed files are not what would be written.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from html import escape
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "surgeon"
IMAGES = PROJECT / "docs" / "images" / "architecture"
PAGE = PROJECT / "docs" / "architecture.md"

JOURNEYS = {
    "convert": ["convert", "digits-resnet8", "--bn", "example-weighted:alpha=0.1", "-o", "converted"],
    "sweep": ["sweep", "digits-resnet8", "--data", "digits", "--alpha", "0:0.2:3", "--limit", "120", "-o", "swept"],
    "finetune": [
        *("finetune", "digits-resnet8", "--data", "digits", "--bn", "ghost:size=4", "--augment", "mixup"),
        *("--epochs", "1", "-o", "trained"),
    ],
}

COLUMN, ROW, TOP, LEFT = 74, 22, 54, 40
FONT = 'font-family="sans-serif" font-size="11"'
HALO = 'stroke="#ffffff" stroke-width="4" paint-order="stroke"'
INK, SOFT, LINE = "#37474f", "#90a4ae", "#00796b"


class Hop(NamedTuple):
    """A call from one room to another; the function has its class before it."""

    caller: str
    room: str
    function: str


def layers() -> list[list[str]]:
    """The import contract, from the top: rooms of one row do not import each other."""
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [[room.strip().removeprefix("surgeon.") for room in row.split(":")] for row in contracts[0]["layers"]]


ROOMS = [room for row in layers() for room in row if room != "core"]
DEPTH = {room: depth for depth, row in enumerate(layers()) for room in row if room != "core"}


def room_of(code: CodeType) -> str | None:
    """None outside of the rooms."""
    if not code.co_filename.startswith(f"{PACKAGE}{os.sep}"):
        return None
    room = code.co_filename[len(str(PACKAGE)) + 1 :].partition(os.sep)[0]
    return room if room in DEPTH else None


def caller_of(frame: FrameType) -> str | None:
    """The room of the nearest function of ours below this one; torch, pydantic and others may stand between."""
    below = frame.f_back
    while below is not None:
        if (room := room_of(below.f_code)) is not None:
            return room
        below = below.f_back
    return None


@contextmanager
def noting(hops: list[Hop]) -> Iterator[None]:
    """Note the first call from each room down to each other within this block, in this thread."""
    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (room := room_of(frame.f_code)) is None:
            return
        caller, function = caller_of(frame), spoken(frame.f_code)
        if caller is None or function is None or DEPTH[caller] >= DEPTH[room] or (caller, room) in seen:
            return
        seen.add((caller, room))
        hops.append(Hop(caller, room, function))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def spoken(code: CodeType) -> str | None:
    """A method with its class; what a class does on being made or called, as the class alone; None if not public."""
    name = code.co_qualname.removesuffix(".__init__").removesuffix(".__call__")
    return None if any(part.startswith(("_", "<")) for part in name.split(".")) else name


def travel(arguments: list[str]) -> list[Hop]:
    """Run a command in an empty folder and note how it goes through the rooms."""
    from surgeon.cli.app import app

    hops: list[Hop] = []
    said = StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        redirect_stdout(said),
        redirect_stderr(said),
        noting(hops),
    ):
        try:
            app(arguments, standalone_mode=False)
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"surgeon {' '.join(arguments)} failed:\n{said.getvalue()}") from None
    return hops


def import_everything() -> None:
    """Before a journey: what a module does while it is imported is no part of one."""
    import surgeon

    for module in pkgutil.walk_packages(surgeon.__path__, "surgeon."):
        if not module.name.endswith(("__main__", "._kernels")):
            importlib.import_module(module.name)


def drawn(name: str, hops: list[Hop]) -> str:
    """One column for each room that is visited, one arrow for each hop, time runs downwards."""
    rooms = [room for room in ROOMS if any(room in (hop.caller, hop.room) for hop in hops)]
    at = {room: LEFT + COLUMN // 2 + COLUMN * number for number, room in enumerate(rooms)}
    width, height = 2 * LEFT + COLUMN * len(rooms) + 80, TOP + ROW * (len(hops) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT}>',
        f"<title>{escape(f'surgeon {name}: from each room down to each other')}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for room, x in at.items():
        parts.append(f'<text x="{x}" y="24" text-anchor="middle" font-weight="bold" fill="{INK}">{room}</text>')
        parts.append(f'<line x1="{x}" y1="34" x2="{x}" y2="{height - 10}" stroke="{SOFT}" stroke-dasharray="2 3"/>')
    for number, hop in enumerate(hops):
        y, start, end = TOP + ROW * number + 8, at[hop.caller], at[hop.room]
        tip = 5 if end > start else -5
        parts.append(f'<line x1="{start}" y1="{y}" x2="{end}" y2="{y}" stroke="{LINE}"/>')
        parts.append(f'<path d="M{end} {y} l{-tip} -3 v6 z" fill="{LINE}"/>')
        side, x = ("start", end + 5) if end > start else ("end", end - 5)
        parts.append(
            f'<text x="{x}" y="{y + 4}" text-anchor="{side}" fill="{INK}" {HALO}>{escape(hop.function)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def rooms_table() -> str:
    """The rooms in the order of the import contract, with the first paragraph of what they say of themselves."""
    rows = ["| room | what lives there |", "|---|---|"]
    for row in layers():
        for room in row:
            text = (importlib.import_module(f"surgeon.{room}").__doc__ or "").strip().partition("\n\n")
            rows.append(f"| `{room}` | {' '.join(text[0].split())} |")
    return "\n".join(rows)


def with_table(page: str) -> str:
    """The page with the table of rooms between its two marks."""
    before, mark, rest = page.partition("<!-- rooms -->\n")
    _, end, after = rest.partition("<!-- end of rooms -->")
    if not mark or not end:
        sys.exit(f"{PAGE.name} has lost its marks for the table of rooms.")
    return f"{before}{mark}{rooms_table()}\n{end}{after}"


def main(options: list[str]) -> int:
    """Write everything, or check it."""
    import_everything()
    wanted: dict[Path, str] = {PAGE: with_table(PAGE.read_text())}
    wanted |= {IMAGES / f"{name}.svg": drawn(name, travel(arguments)) for name, arguments in JOURNEYS.items()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in options:
        for path in stale:
            print(f"{path.relative_to(PROJECT)} is out of date: run python docs/figures/journeys.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
        print(path.relative_to(PROJECT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
