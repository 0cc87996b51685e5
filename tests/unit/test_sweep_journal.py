"""What was finished stays finished: whatever happens to the file, no record is lost that was written, none invented."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from surgeon.core.errors import ExitCode, SurgeonError
from surgeon.measuring.books import as_record, from_record
from surgeon.measuring.journal import VERSION, Journal
from surgeon.measuring.keeping import Scored
from surgeon.metrics import Scores

IDENTITY = {"model": "abc", "data": ["d1", "d2"], "values": (0.0, 0.1), "temperature": None}
RECORDS: list[dict[str, Any]] = [
    {"phase": "choosing", "end": 4, "bad": [], "scores": {"original": "x" * 50}},
    {"phase": "choosing", "end": 8, "bad": ["ü\n\r\u2028.png"], "scores": {}},
    {"phase": "per-layer", "found": {"alphas": {"bn1": 0.25}, "seconds": 1.5}},
]


def opened(path: Path, overwrite: bool = False, **changes: Any) -> Journal:
    return Journal(path, IDENTITY | changes, overwrite)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with a few records."""
    path = tmp_path / "journal.jsonl"
    journal = opened(path)
    for record in RECORDS:
        journal.append(record)
    return path


def test_a_new_journal_is_empty_and_one_line_long(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal.jsonl")
    assert list(journal.records()) == []
    (line,) = journal.path.read_text("utf-8").splitlines()
    assert json.loads(line.partition(" ")[2])["journal"] == VERSION


def test_records_come_back_in_order(path: Path) -> None:
    before = path.read_bytes()
    assert list(opened(path).records()) == RECORDS
    assert path.read_bytes() == before


def test_a_journal_is_continued_where_it_ended(path: Path) -> None:
    opened(path).append({"phase": "more"})
    assert list(opened(path).records()) == [*RECORDS, {"phase": "more"}]


def test_every_line_is_text_that_other_tools_can_read(path: Path) -> None:
    lines = path.read_bytes().decode("ascii").split("\n")
    assert [json.loads(line[9:]) for line in lines[1:-1]] == RECORDS
    assert lines[-1] == ""


def test_scores_come_back_exactly(tmp_path: Path) -> None:
    scores = Scores()
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    logits[2, 1] = torch.nan
    scores.update(logits, torch.tensor([0, 1, 2, 3, 0]), [3, 1, 4, 10, 5])
    journal = opened(tmp_path / "journal.jsonl")
    journal.append(
        {"phase": "choosing", "end": 1, **as_record(Scored({"original": scores, "alpha 0.1": Scores()}, ["a"]))}
    )
    block = from_record(next(opened(journal.path).records()))
    assert block.bad == ["a"]
    assert block.kept["original"].to_bytes() == scores.to_bytes()
    assert len(block.kept["alpha 0.1"]) == 0


# --- torn and damaged files


def test_a_last_line_torn_at_any_byte_is_dropped_and_the_rest_kept(path: Path) -> None:
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    start = len(whole) - len(last)
    for length in range(start, len(whole)):
        path.write_bytes(whole[:length])
        journal = opened(path)
        assert list(journal.records()) == RECORDS[:-1], length - start
        journal.append({"phase": "again"})
        assert path.read_bytes()[:start] == whole[:start]
        assert list(opened(path).records()) == [*RECORDS[:-1], {"phase": "again"}], length - start


def test_a_torn_header_starts_afresh(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    opened(path)
    header = path.read_bytes()
    for length in range(len(header)):
        path.write_bytes(header[:length])
        assert list(opened(path).records()) == []
        assert path.read_bytes() == header


def test_a_last_line_with_a_hole_is_dropped(path: Path) -> None:
    """A crash of the machine can leave zeros where data was to be."""
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    path.write_bytes(whole[:start] + bytes(len(whole) - start))
    assert list(opened(path).records()) == RECORDS[:-1]
    path.write_bytes(whole[: start + 20] + bytes(4) + whole[start + 24 :])
    assert list(opened(path).records()) == RECORDS[:-1]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_line_before_the_last_is_refused_and_named(path: Path, number: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    middle = bytearray(lines[number - 1])
    middle[len(middle) // 2] ^= 1
    lines[number - 1] = bytes(middle)
    path.write_bytes(b"".join(lines))
    damaged = path.read_bytes()
    with pytest.raises(SurgeonError, match=f"is damaged in line {number}") as caught:
        opened(path)
    assert "--overwrite" in caught.value.hint
    assert path.read_bytes() == damaged


def test_an_empty_file_becomes_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.touch()
    opened(path).append(RECORDS[0])
    assert list(opened(path).records()) == RECORDS[:1]


def test_a_longer_file_that_is_no_journal_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"day": 1}\n{"day": 2}\n')
    with pytest.raises(SurgeonError, match="damaged in line 1"):
        opened(path)
    assert path.read_text() == '{"day": 1}\n{"day": 2}\n'


@pytest.mark.parametrize("text", ['{"day": 1}\n', "Dear diary,", "0" * 200])
def test_a_file_of_one_line_that_is_no_journal_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(text)
    with pytest.raises(SurgeonError, match="journal"):
        opened(path)
    assert path.read_text() == text


def test_only_the_length_of_a_line_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are read one at a time. A sweep must be able to go on from whatever it has written."""
    longest = max(map(len, path.read_bytes().splitlines(keepends=True)))
    assert path.stat().st_size > 2 * longest
    monkeypatch.setattr("surgeon.measuring.journal.MOST_BYTES_PER_LINE", longest)
    assert list(opened(path).records()) == RECORDS
    monkeypatch.setattr("surgeon.measuring.journal.MOST_BYTES_PER_LINE", longest - 1)
    with pytest.raises(SurgeonError, match=f"has a line of more than {longest - 1} bytes"):
        opened(path)


def test_a_journal_of_another_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surgeon.measuring.journal.VERSION", VERSION + 1)
    with pytest.raises(SurgeonError, match="is not a journal that this surgeon can continue"):
        opened(path)


# --- identity


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": "abd"}, "model"),
        ({"data": ["d1", "d3"]}, "data"),
        ({"values": (0.0, 0.2)}, "values"),
        ({"temperature": 1.5}, "temperature"),
        ({"batch size": 3}, "batch size"),
        ({"model": "abd", "values": ()}, "model and values"),
    ],
)
def test_another_sweep_is_refused_by_the_name_of_what_differs(path: Path, changes: dict[str, Any], named: str) -> None:
    before = path.read_bytes()
    with pytest.raises(SurgeonError, match=rf"other settings: {named}\. Choose") as caught:
        opened(path, **changes)
    assert caught.value.exit_code == ExitCode.USAGE
    assert str(path.parent) in caught.value.message
    assert path.read_bytes() == before


def test_overwriting_starts_afresh_whatever_was_there(path: Path) -> None:
    for content in (path.read_bytes(), b"damaged\nlines\n", b"\xff" * 1000, b""):
        path.write_bytes(content)
        journal = opened(path, overwrite=True, model="other")
        assert list(journal.records()) == []
        journal.append(RECORDS[0])
        assert list(opened(path, model="other").records()) == RECORDS[:1]


# --- disks

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail(*_: object) -> None:
    raise FULL


class HalfWriting:
    """A file on a disk that is full after so many bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self.file, self.room = file, room

    def __enter__(self) -> HalfWriting:
        self.file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.file.__exit__(*error)

    def write(self, data: bytes) -> None:
        self.file.write(data[: self.room])
        self.file.flush()
        raise FULL

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def refused(journal: Journal) -> SurgeonError:
    """What is told when a further line cannot be written."""
    with pytest.raises(SurgeonError) as caught:
        journal.append({"phase": "more"})
    return caught.value


def assert_tells(error: SurgeonError, path: Path) -> None:
    assert error.exit_code == ExitCode.FAILED
    assert error.message == f"Could not write {path}: No space left on device."
    assert "run the same command" in error.hint


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.open"])
def test_a_full_disk_loses_only_the_line_that_was_to_be_written(step: str, path: Path) -> None:
    before = path.read_bytes()
    journal = opened(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, fail)
        assert_tells(refused(journal), path)
    assert path.read_bytes() == before
    assert list(journal.records()) == RECORDS
    journal.append({"phase": "later"})
    assert list(opened(path).records()) == [*RECORDS, {"phase": "later"}]


def test_a_line_that_was_half_written_is_taken_back(path: Path) -> None:
    before = path.read_bytes()
    plain = Path.open
    for room in (0, 1, 9, 15):
        journal = opened(path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "open", lambda *a, room=room: HalfWriting(plain(*a), room))
            assert_tells(refused(journal), path)
        assert path.read_bytes() == before
        assert list(opened(path).records()) == RECORDS


def test_a_half_written_line_that_cannot_be_taken_back_is_dropped_later(path: Path) -> None:
    before = path.read_bytes()
    plain = Path.open
    journal = opened(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", lambda *a: HalfWriting(plain(*a), 12))
        patch.setattr(os, "truncate", fail)
        refused(journal)
    assert path.read_bytes()[: len(before)] == before
    assert len(path.read_bytes()) == len(before) + 12
    assert list(opened(path).records()) == RECORDS
    journal.append({"phase": "later"})
    assert list(opened(path).records()) == [*RECORDS, {"phase": "later"}]


def test_a_line_is_on_the_disk_before_append_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
    opened(path).append({"phase": "more"})
    assert synced == [path.read_bytes()]
