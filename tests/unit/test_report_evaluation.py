"""The report of an evaluation: what lies behind its figures, and a page that says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from surgeon.data.images import ImageSet
from surgeon.measuring.error_analysis import break_down, class_names
from surgeon.metrics import Scores
from surgeon.report.evaluation import evaluation_page, evaluation_picture, in_sentences, worst_first
from surgeon.report.wording import class_name
from tests.unit.evaluation_record import CLASSES, NAMES, Photographs, evaluation, images, labels, scores


def test_classes_and_confusions_are_those_of_the_confusion_matrix() -> None:
    found = scores(1.5).images()
    behind = break_down(found, images(), None)
    matrix = np.zeros((CLASSES, CLASSES), int)
    np.add.at(matrix, (labels().numpy(), found.predicted), 1)
    assert [one.name for one in behind.classes] == list(NAMES)
    assert [one.correct for one in behind.classes] == matrix.diagonal().tolist()
    assert [one.predicted for one in behind.classes] == matrix.sum(0).tolist()
    for pair in behind.confusions:
        row, column = NAMES.index(pair.actual), NAMES.index(pair.predicted)
        assert pair.images == matrix[row, column]
        assert pair.share == pair.images / matrix[row].sum()
    off = matrix[~np.eye(CLASSES, dtype=bool)]
    assert [pair.images for pair in behind.confusions] == sorted(off[off > 0].tolist(), reverse=True)[:20]


def test_the_surest_mistakes_come_first() -> None:
    found = scores(1.5).images()
    behind = break_down(found, images(), None)
    surest = sorted(found.confidence[~found.correct].tolist(), reverse=True)[:20]
    assert [one.confidence for one in behind.mistakes] == surest
    first = behind.mistakes[0]
    number = int(first.image[5:9])
    assert found.confidence[number] == first.confidence
    assert first.actual == NAMES[number % CLASSES]


def test_a_network_without_mistakes_or_numbers() -> None:
    found = Scores()
    logits = 9.0 * torch.nn.functional.one_hot(torch.arange(3), 3)
    found.update(logits, torch.arange(3), torch.arange(3))
    three = ImageSet.over(Photographs(), [0, 1, 2], ("a", "b", "c"), name="x", split="test")
    behind = break_down(found.images(), three, None)
    assert (behind.confusions, behind.mistakes) == ((), ())
    page = evaluation_page(evaluation(breakdown=behind))
    assert 'id="mistakes"' not in page
    broken = Scores()
    broken.update(torch.full((3, 3), torch.nan), torch.arange(3), torch.arange(3))
    assert break_down(broken.images(), three, None).confusions == ()
    assert [one.predicted for one in break_down(broken.images(), three, None).classes] == [0, 0, 0]


@pytest.mark.parametrize(
    ("known", "outputs", "expected"),
    [
        (True, None, ["x", "y", "2", "3"]),
        (True, ("a", "b", "c", "d"), ["x", "y", "c", "d"]),
        (False, ("a", "b", "c", "d"), ["a", "b", "c", "d"]),
        (False, ("of", "another", "network"), ["0", "1", "2", "3"]),
    ],
)
def test_names_of_classes(known: bool, outputs: tuple[str, ...] | None, expected: list[str]) -> None:
    two = ImageSet.over(Photographs(), [0, 1], ("x", "y"), name="x", split="test", names_known=known)
    assert class_names(4, two, outputs) == expected


def test_the_page_shows_what_the_record_has() -> None:
    record = evaluation()
    page = evaluation_page(record)
    embedded = re.search(r'id="result">(.*?)</script>', page, re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1]) == json.loads(record.model_dump_json())
    assert "<b>bird</b>" not in page
    assert record.breakdown is not None
    for bin in record.breakdown.bins:
        assert f'data-value="{bin.accuracy!r}">{bin.accuracy:.2%}</td>' in page
    for one in record.breakdown.classes:
        assert f'data-value="{one.accuracy!r}">{one.accuracy:.2%}</td>' in page
    assert page.count('<g class="column') == 15 + CLASSES
    assert worst_first(record.breakdown.classes)[0].name in in_sentences(record)[3].replace("&amp;", "&")


def test_without_views_there_is_nothing_to_compare() -> None:
    page = evaluation_page(evaluation(tta=None, views=1, against_one_view=None))
    assert "one view" not in page
    assert "views per image" not in page


def test_the_picture(tmp_path: Path) -> None:
    evaluation_picture(evaluation(), tmp_path / "evaluation.png")
    assert Image.open(tmp_path / "evaluation.png").size[0] > 1000


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("n01644900 tailed_frog", "tailed frog"),
        ("n02093428 American_Staffordshire_terrier", "American Staffordshire terrier"),
        ("tench, Tinca tinca", "tench, Tinca tinca"),
        ("great white shark, white shark, man-eater, Carcharodon carcharias", "great white shark"),
        ("art_painting", "art_painting"),
        ("n1", "n1"),
        (", a name that begins with a comma", ", a name that begins with a comma"),
        ("", ""),
    ],
)
def test_classes_are_called_by_their_names(name: str, shown: str) -> None:
    assert class_name(name) == shown


def test_pictures_of_mistakes_stand_before_a_folded_table() -> None:
    record = evaluation()
    plain, page = evaluation_page(record), evaluation_page(record, [b"first", b"", b"third"])
    assert "<details open>" in plain
    assert "<details>" in page
    assert re.findall(r"base64,([\w=+/]*)", page) == ["Zmlyc3Q=", "dGhpcmQ="], "what has no picture is left out"
    assert "base64" not in plain
    mistakes = record.breakdown.mistakes if record.breakdown else ()
    for html in (plain, page):
        table = html[html.index('id="mistakes-table"') :]
        assert table[: table.index("</table>")].count("<tr>") == 1 + len(mistakes)


def test_classes_of_one_image_each_have_no_figures_of_their_own() -> None:
    found = Scores()
    found.update(torch.eye(3).roll(1, 0), torch.arange(3), torch.arange(3))
    three = ImageSet.over(Photographs(), [0, 1, 2], ("a", "b", "c"), name="x", split="test")
    page = evaluation_page(evaluation(breakdown=break_down(found.images(), three, None)))
    assert 'id="mistakes-table"' in page
    assert "Accuracy by class" not in page
    assert 'id="classes-table"' not in page
    assert 'id="confusions-table"' not in page
