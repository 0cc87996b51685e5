"""What is rendered from a fine-tuning run's record: a picture and a page, with the record's own numbers."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from PIL import Image

from surgeon.commands.finetune import finishing
from surgeon.core.errors import SurgeonError
from surgeon.metrics import in_order
from surgeon.report import chart
from surgeon.report.training import rows_of, training_page, training_picture
from surgeon.results import FineTuning
from surgeon.training.recipe import Recipe
from tests.unit.test_report_sweep import Page, numbers_in
from tests.unit.training_record import epoch, epochs, in_cycles, not_finite, one_bad_epoch, run, seldom_validated

KEYS = re.compile(r"<code>(.*?)</code>.*?<td[^>]*>(.*?)</td>(?:<td[^>]*>(.*?)</td>)?")
RECORDS = {
    "plain": run(),
    "in cycles": in_cycles(),
    "one epoch": run(1),
    "many epochs": run(200),
    "seldom validated": seldom_validated(),
    "not finite": not_finite(),
    "one bad epoch": one_bad_epoch(),
    "without test images": run(test=None, test_images=0),
    "nothing chosen": run(settings=(), sweeps=(), tta=None, rewrites="", recipe={"sweep": None}),
}


@pytest.fixture(params=RECORDS)
def record(request: pytest.FixtureRequest) -> FineTuning:
    return RECORDS[request.param]


def table(html: str, identifier: str) -> list[str]:
    """The rows of a table's body."""
    part = html[html.index(f'id="{identifier}"') :]
    return part[part.index("<tbody>") : part.index("</tbody>")].split("</tr>")[:-1]


def values(row: str) -> list[float | None]:
    return [float(value) if value else None for value in re.findall(r'data-value="([^"]*)"', row)]


def drawing(html: str, key: str) -> str:
    part = html[html.index(f'id="{key}-heading"') :]
    return part[: part.index("</figure>")]


def drawn(html: str, key: str, number: int) -> dict[float, float]:
    """Epochs and exact values of a chart's line, by its number."""
    part = drawing(html, key).split(f'<g class="series-{number}')[1].split('<g class="series-')[0]
    return {float(x): float(value) for x, value in re.findall(r'data-x="([^"]+)" data-value="([^"]+)"', part)}


def test_the_picture_is_a_png(record: FineTuning, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "curves.png"
    training_picture(record, path)
    with Image.open(path) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert 1200 < picture.width < 3000
        assert 500 < picture.height < 1000
        assert len(set(picture.convert("L").resize((60, 30)).tobytes())) > 10, "it is not blank"


def test_every_number_of_the_page_is_the_records(record: FineTuning) -> None:
    page = Page(training_page(record))
    known = numbers_in(record.model_dump(mode="python"))
    known |= {one.number - (5 - step) / 5 for one in record.epochs for step in range(1, 6)}
    shown = [float(value) for name in ("data-value", "data-x") for value in page.values(name)]
    assert len(shown) > 10
    assert {value for value in shown if math.isfinite(value)} <= known


def test_the_page_embeds_the_record(record: FineTuning) -> None:
    assert json.loads(Page(training_page(record)).record) == json.loads(record.model_dump_json())


def test_every_epoch_is_in_the_table_with_its_figures(record: FineTuning) -> None:
    rows = table(training_page(record), "epochs-table")
    assert len(rows) == len(record.epochs)
    for row, one in zip(rows, record.epochs, strict=True):
        of_classes = [metric for metric in in_order() if not metric.only_masks]
        validation = [one.validation.value(metric.name) if one.validation else None for metric in of_classes]
        rates = [one.backbone_rates[-1], one.head_rates[-1]]
        told = rates[:1] if record is RECORDS["in cycles"] else rates
        expected = [one.number, one.loss, one.accuracy, *validation, *told, one.seconds, one.images_per_second]
        assert values(row) == pytest.approx(expected, nan_ok=True)


def test_one_learning_rate_is_told_once() -> None:
    def headings(record: FineTuning) -> list[str]:
        head = training_page(record).partition('id="epochs-table"')[2].partition("</thead>")[0]
        return re.findall(r">([^<]+)</th>", head)

    assert "backbone and head" in headings(in_cycles())
    assert {"backbone", "head"} <= set(headings(run()))
    only_head = run(epochs=tuple(one.model_copy(update={"backbone_rates": ()}) for one in epochs(3)))
    assert "head" in headings(only_head)
    assert "backbone" not in headings(only_head)
    rows = table(training_page(only_head), "epochs-table")
    assert [values(row)[-3] for row in rows] == [one.head_rates[-1] for one in only_head.epochs]


def test_the_curves_go_through_the_records_values() -> None:
    record = seldom_validated()
    html = training_page(record)
    assert drawn(html, "loss", 1) == {one.number: one.loss for one in record.epochs}
    assert drawn(html, "accuracy", 1) == {one.number: one.accuracy for one in record.epochs}
    for line, field in ((1, "backbone_rates"), (2, "head_rates")):
        steps = {
            one.number - (4 - at) / 5: rate for one in record.epochs for at, rate in enumerate(getattr(one, field))
        }
        assert drawn(html, "rate", line) == pytest.approx(steps)
    looked_at = {one.number: one.validation for one in record.epochs if one.validation}
    assert set(looked_at) == {5, 10}
    assert drawn(html, "loss", 2) == {number: metrics.cross_entropy for number, metrics in looked_at.items()}
    assert drawn(html, "accuracy", 2) == {number: metrics.accuracy for number, metrics in looked_at.items()}


def test_the_sweeps_that_were_made_are_linked() -> None:
    assert Page(training_page(run())).values("href") == ["sweep-alpha/report.html", "sweep-lambda/report.html"]
    assert Page(training_page(run(sweeps=("sweep-alpha",)))).values("href") == ["sweep-alpha/report.html"]
    assert Page(training_page(RECORDS["nothing chosen"])).values("href") == []


def test_commands_look_like_commands() -> None:
    html = training_page(run(settings=("Try `surgeon ls <b>`.",)))
    assert "<p>Try <code>surgeon ls &lt;b&gt;</code>.</p>" in html


def test_both_settings_are_shown_on_both_splits_and_the_test_images_make_the_headline() -> None:
    record = run()
    assert record.test is not None
    html = training_page(record)
    rows = table(html, "metrics-table")
    assert [re.findall(r">([^<]+)</th>", row) for row in rows] == [
        [f"{split}, {setting}"] for split in ("validation", "test") for setting in ("as trained", "as saved")
    ]
    assert [values(row)[:2] for row in rows] == [[one.metrics.images, one.metrics.accuracy] for one in record.figures]
    assert [row for row in rows if 'class="best"' in row] == [rows[3]], "the figures to quote"
    text = Page(html).text
    assert "Test accuracy 91.18% (95%: 89.18% to 93.18%) on 1,797 test images." in text
    assert all(sentence.replace("`", "") in text for sentence in record.settings)


def test_without_test_images_the_validation_images_are_quoted() -> None:
    html = training_page(RECORDS["without test images"])
    assert len(table(html, "metrics-table")) == 2
    assert "Validation accuracy 90.45% (95%: 87.45% to 92.45%) on 500 validation images" in Page(html).text
    assert "no test images" in html
    assert "test-time augmentation" not in html, "nothing was tested with it"


def test_every_key_of_the_recipe_is_in_one_table_those_at_their_defaults_folded_away() -> None:
    record = run(decided={"norm_weight_decay": "a residual network"})
    html = training_page(record)
    changed, usual = (
        {key: (value, reason) for row in table(html, name) for key, value, reason in [KEYS.findall(row)[0]]}
        for name in ("changed-table", "recipe-table")
    )
    assert not changed.keys() & usual.keys()
    assert changed.keys() | usual.keys() == record.recipe.keys()
    assert changed["augment"] == ("crop:padding=4, flip, mixup", "")
    assert changed["norm_weight_decay"] == ("yes", "a residual network")
    assert usual["batch_size"] == usual["insert"] == ("–", "")
    assert float(usual["weight_decay"][0]) == record.recipe["weight_decay"] == Recipe().weight_decay
    assert html.index("<details>") < html.index('id="recipe-table"') < html.index("</details>")
    assert html.index('id="changed-table"') < html.index("<details>")


def test_figures_of_a_network_that_was_saved_as_trained_are_told_once() -> None:
    record = run()
    trained = [one for one in record.figures if one.setting == "as trained"]
    twice = [one.model_copy(update={"setting": name}) for one in trained for name in ("as trained", "as saved")]
    assert [(one.split, one.setting) for one in rows_of(run(figures=twice))] == [
        ("validation", "as trained and saved"),
        ("test", "as trained and saved"),
    ]
    assert rows_of(record) == record.figures, "a chosen alpha makes them two"


def test_images_and_preprocessing_are_said() -> None:
    text = Page(training_page(run())).text
    assert "4,500 training, 500 validation (a tenth of the training images), 1,797 test" in text
    assert "8x8 px, bilinear, crop 1, mean 0.3, std 0.38" in text
    assert "77,850 of 78,042" in text


def test_ends_of_cycles_are_marked() -> None:
    html = training_page(in_cycles())
    for key in ("loss", "accuracy", "rate"):
        assert drawing(html, key).count('<line class="end"') == 3
        assert "end of a cycle: a snapshot" in drawing(html, key)
    marked = [values(row)[0] for row in table(html, "epochs-table") if "◆" in row]
    assert marked == [4, 8, 12]
    assert "◆: a snapshot was taken." in html
    assert not re.search("end of a cycle|◆", training_page(run()))


def test_figures_that_are_not_finite_are_called_so() -> None:
    html = training_page(not_finite())
    assert "not finite" in Page(html).text
    assert "Off the scale: epoch 4. Left out because not finite: epoch 2, 3." in drawing(html, "loss")
    assert "The outputs for 3 images are not numbers and count as wrong." in html


def test_a_chart_without_a_finite_value_is_left_out_and_that_is_said() -> None:
    html = training_page(one_bad_epoch())
    assert "loss-heading" not in html
    assert "Not drawn, because no value is finite: loss." in html


def test_dots_do_not_hide_a_long_line() -> None:
    seldom = tuple(one if one.number == 200 else one.model_copy(update={"validation": None}) for one in epochs(200))
    accuracy = drawing(training_page(run(200, epochs=seldom)), "accuracy")
    assert re.findall(r'<g class="(series-\d(?: dense)?)"', accuracy) == ["series-1 dense", "series-2"]


def test_small_learning_rates_have_short_numbers_at_the_axis() -> None:
    small = tuple(epoch(n, 10, backbone_rates=[n * 1e-6] * 5, head_rates=[n * 1e-6] * 5) for n in range(1, 11))
    rate = drawing(training_page(run(epochs=small)), "rate")
    assert "Learning rate in 10⁻⁵" in rate
    texts = re.findall(r'text-anchor="end">([^<]*)<', rate)
    assert texts == ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]


@pytest.mark.parametrize(
    ("last", "texts"),
    [(1, ["1"]), (3, ["1", "2", "3"]), (10, ["2", "4", "6", "8", "10"]), (200, ["0", "50", "100", "150", "200"])],
)
def test_epochs_are_counted_in_whole_numbers(last: int, texts: list[str]) -> None:
    low, high = chart.padded([1, last], 0.03)
    assert chart.tick_texts(chart.round_numbers(low, high, whole=True)) == texts


def test_charts_hold_only_finite_coordinates(record: FineTuning) -> None:
    for one in re.findall(r"<svg.*?</svg>", training_page(record), re.DOTALL):
        assert not re.search(r'="[^"]*\b(nan|inf)\b', one)


def test_the_page_asks_nobody_for_anything(record: FineTuning) -> None:
    html = training_page(record)
    assert "http://" not in html
    assert "https://" not in html
    page = Page(html)
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "base"}
    assert not page.values("src")
    assert not re.search(r"@import|url\((?!#)", html)


@pytest.mark.parametrize("text", ["<b>x</b>", "</script><script>alert(1)</script>", '"><i>&amp;'])
def test_names_cannot_become_markup(text: str) -> None:
    plain = Page(training_page(run()))
    page = Page(training_page(run(model=text, data=text, settings=[text], recipe={text: text})))
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert not {tag for tag, _ in page.tags} - {tag for tag, _ in plain.tags}
    assert text in page.text
    assert json.loads(page.record)["model"] == text


def test_tables_and_charts_are_accessible() -> None:
    html = training_page(in_cycles())
    page = Page(html)
    assert html.count("<table") == html.count("<caption") == 4
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    identifiers = page.values("id")
    assert len(identifiers) == len(set(identifiers))
    charts = [attributes for tag, attributes in page.tags if tag == "svg" and attributes.get("role") == "img"]
    assert len(charts) == 3
    for one in charts:
        assert set((one["aria-labelledby"] or "").split()) <= set(identifiers)


def test_the_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = run()
    finishing.write_run_report(record, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "report.html", "result.json"}
    stored = (tmp_path / "result.json").read_text(encoding="utf-8")
    assert FineTuning.model_validate_json(stored) == record

    def full(_: FineTuning) -> str:
        raise OSError("No space left on device")

    monkeypatch.setattr(finishing, "training_page", full)
    with pytest.raises(SurgeonError, match="No space left"):
        finishing.write_run_report(run(1), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "report.html", "result.json"}
    assert (tmp_path / "result.json").read_text(encoding="utf-8") == stored


def test_backbone_and_head_that_learn_alike_are_one_curve() -> None:
    rate = drawing(training_page(in_cycles()), "rate")
    assert "backbone and head" in rate
    assert 'class="series-2' not in rate


def test_a_long_run_is_drawn_by_some_of_its_steps_and_by_the_last_of_every_epoch() -> None:
    many = tuple(
        epoch(n, 3, backbone_rates=[1 / (n * 1000 + s) for s in range(1000)], head_rates=()) for n in (1, 2, 3)
    )
    points = drawn(training_page(run(3, epochs=many)), "rate", 1)
    assert 200 < len(points) <= 300
    assert {n: points[n] for n in (1, 2, 3)} == {one.number: one.backbone_rates[-1] for one in many}


@pytest.mark.parametrize(("head_lr", "name"), [(10, "head"), (0.1, "backbone")])
def test_an_older_run_has_one_rate_an_epoch_which_was_the_higher_one(head_lr: float, name: str) -> None:
    older = tuple(epoch(n, 4, backbone_rates=(), head_rates=(), learning_rate=0.1 / n) for n in range(1, 5))
    html = training_page(run(4, epochs=older, recipe={"head_lr": head_lr}, figures=()))
    assert drawn(html, "rate", 1) == {one.number: one.learning_rate for one in older}
    assert f"epoch 4, {name}: 0.025" in html
    assert len(table(html, "metrics-table")) == 2, "what was measured then"
