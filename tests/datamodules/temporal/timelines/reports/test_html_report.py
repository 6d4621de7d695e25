"""Tests the files and pages of reports: content is displayed unchanged, even if it is hostile."""

import json
import time

import pytest

from datamodules.multimodal.reports.html_report import MetricRow
from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.channels import Format
from datamodules.temporal.timelines.reports.html_report import write_data_report, write_test_report
from datamodules.temporal.timelines.reports.sample_records import question_record
from datamodules.temporal.timelines.reports.sample_view import Mark, MarkKind, SampleView
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from tests.support.outputs.browser import with_browser
from tests.support.outputs.report_page import ATTACK, CARDS, STATUS, assert_fits, choose
from tests.support.temporal.report_records import shown


def answers(count: int) -> list[SampleView]:
    """Every fourth answer has a wrong value; every hundredth is an injection attempt that cannot be parsed."""
    records = []
    for number in range(count):
        wrong = ("unreadable",) if number % 100 == 9 else ("value",) if number % 4 == 1 else ()
        answer = ATTACK if number % 100 == 9 else "cpu is rising from 50% to 90%." if wrong else shown().truth
        marks = (Mark(MarkKind.TRUE, "cpu_cores", 0.3, 64.0), Mark(MarkKind.PREDICTED, "cpu_cores", 0.3, 57.6))
        records.append(
            shown(
                number,
                task="trend" if number % 2 else "readout",
                question=f"trend of cpu number {number}?",
                marks=marks,
                answer=answer,
                blind="cpu is stable.",
                outcomes={"value": (0.0 if wrong else 1.0, 1.0)},
                errors=wrong,
                blind_errors=("class",),
            )
        )
    return records


def test_files_hold_what_was_given(tmp_path):
    metrics = [MetricRow("all", "value", 0.75, float("nan"), 1.0)]
    page = write_test_report(tmp_path / "new", answers(10), metrics, {"run": "a </script> b"})
    assert page == tmp_path / "new" / "prediction_report.html"
    assert sorted(path.name for path in page.parent.iterdir()) == ["prediction_report.html", "prediction_report.json"]
    content = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert content["records"][9]["answer"] == ATTACK
    assert content["records"][0]["curves"][0]["values"] == [32.0, 16.0, 48.0, 64.0]
    assert content["metrics"][0]["blind"] is None  # JSON has no NaN
    text = page.read_text(encoding="utf-8")
    assert text.count("</script>") == 2
    assert "<img" not in text
    assert "<!--" not in text
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")  # nothing from elsewhere


@pytest.mark.parametrize(
    ("timelines", "stem"),
    [
        (None, "prediction_report"),
        ("data/node.csv", "prediction_report-node"),
        ("data/my nodes/", "prediction_report-my_nodes"),
        ("../...csv", "prediction_report-.."),
        ("n" * 300 + ".csv", "prediction_report-" + "n" * 100),
    ],
)
def test_each_set_of_timelines_has_a_report_of_its_own(tmp_path, timelines, stem):
    write_test_report(tmp_path, answers(1), [])
    before = (tmp_path / "prediction_report.html").read_bytes()
    path = write_test_report(tmp_path, answers(2), [], timelines=timelines)
    assert path == tmp_path / f"{stem}.html"
    assert path.with_name(f"{stem}.json").is_file()
    assert timelines is None or (tmp_path / "prediction_report.html").read_bytes() == before


def test_the_page_states_which_answers_it_counts_as_right(tmp_path):
    text = write_test_report(tmp_path, answers(1), []).read_text(encoding="utf-8")
    assert "every value within 5 % of the capacity and every time within one step" in text
    assert "every value is right to the last digit" in text


def test_half_a_character_does_not_stop_a_report(tmp_path):
    page = write_test_report(tmp_path, [shown(answer="broken \ud83d")], [])
    assert json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["records"][0]["answer"] == "broken ?"


def test_a_full_disk_leaves_the_older_report(tmp_path, monkeypatch):
    page = write_data_report(tmp_path, [shown()], {"split": "old"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr("engine.io.html_page.PAGES", tmp_path / "absent")
    with pytest.raises(OSError):
        write_data_report(tmp_path, [shown()], {"split": "new"})
    monkeypatch.undo()
    written = []

    def refuse_the_second(path, write, check):
        written.append(path)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        return real(path, write, check)

    from datamodules.multimodal.reports.html_report import write_temp as real

    monkeypatch.setattr("datamodules.multimodal.reports.html_report.write_temp", refuse_the_second)
    with pytest.raises(OSError, match="No space"):
        write_data_report(tmp_path, [shown()], {"split": "new"})
    assert len(written) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert page.name in before


@with_browser
def test_answers_can_be_found_among_two_thousand(page, tmp_path):
    path = write_test_report(tmp_path, answers(2000), [MetricRow("all", "value", 0.75, 0.24, 1.0)], {"run": "mine"})
    page.resize(1280, 900)
    start = time.monotonic()
    page.open(path.as_uri())
    assert time.monotonic() - start < 10
    assert page.run(STATUS) == "2000 of 2000 answers: 1500 right, 500 wrong"
    assert "within 5 % of the capacity" in page.run("document.querySelectorAll('p.note')[1].textContent")
    assert len(page.run(CARDS)) == 20
    assert page.run("document.title") == "Prediction report – mine"

    page.run(choose("error", "unreadable"))
    assert page.run(STATUS) == "20 of 2000 answers: 0 right, 20 wrong"
    assert page.run("document.querySelectorAll('.card img, .card script').length") == 0
    assert ATTACK in page.run("document.querySelector('.card').textContent")
    page.run("document.querySelector('form button').click()")
    assert page.run(STATUS).startswith("2000 of 2000")

    page.run(choose("task", "readout"))
    assert page.run(STATUS) == "1000 of 2000 answers: 1000 right, 0 wrong"
    page.run(choose("task", "trend"))
    page.run(choose("result", "wrong"))
    assert page.run(STATUS) == "500 of 2000 answers: 0 right, 500 wrong"
    page.run(choose("text", "CPU 1501?"))
    assert page.run(CARDS) == ["Sample 1501"]
    assert page.run("[...document.querySelectorAll('mark.true')].map((mark) => mark.textContent)") == ["100"]
    assert page.run("[...document.querySelectorAll('mark.predicted')].map((mark) => mark.textContent)") == ["90"]
    page.run(choose("text", "no such words"))
    assert page.run(STATUS).startswith("0 of 2000")
    assert page.run(CARDS) == []

    page.open(path.as_uri() + "#sample-1234")
    assert "Sample 1234" in page.run(CARDS)
    assert page.complaints == []
    assert {address for address in page.requests if "://" in address and not address.startswith("file:")} == set()


@with_browser
def test_keys_turn_pages_and_read_values(page, tmp_path):
    path = write_test_report(tmp_path, answers(45), [])
    page.open(path.as_uri())
    page.run("[...document.querySelectorAll('button')].find((button) => button.textContent === 'Next').focus()")
    page.press("Enter", "\r")
    assert page.run(CARDS)[0] == "Sample 20"
    page.run("document.querySelector('.card input[type=range]').focus()")
    page.press("ArrowRight")
    output = page.run("document.querySelector('.card output').textContent")
    assert output == "Step 1, 0.1 s: cpu_cores 16 cores · gpu_mem_gb missing"
    assert page.complaints == []


@with_browser
def test_curves_have_fixed_axes_and_gaps(page, tmp_path):
    path = write_test_report(tmp_path, answers(1), [])
    page.open(path.as_uri())
    figures = "[...document.querySelectorAll('.card figure')]"
    texts = page.run(f"{figures}.map((f) => [...f.querySelectorAll('text')].map((t) => t.textContent))")
    assert {"0", "32", "64", "0 s", "0.3 s"} <= set(texts[0])
    assert {"0", "40", "80"} <= set(texts[1])
    # One line of four points; a lonely point and a line of two beside the gap.
    count = "['polyline', '.alone', '.gap'].map((name) => f.querySelectorAll(name).length)"
    assert page.run(f"{figures}.map((f) => {count})") == [[1, 0, 0], [1, 1, 1]]
    # The true point is at the end of the curve and at its top, the predicted one a tenth of the height lower.
    true, predicted = page.run(
        "[...document.querySelectorAll('figure .mark')].map((mark) => { const box = mark.getBBox();"
        "return [box.x + box.width / 2, box.y + box.height / 2]; })"
    )
    points = page.run("[...document.querySelector('polyline').points].map((point) => [point.x, point.y])")
    last, first = points[3], points[1]
    assert true == pytest.approx(last, abs=0.1)
    height = (first[1] - last[1]) / 0.75
    assert predicted == pytest.approx([last[0], last[1] + 0.1 * height], abs=0.1)


@with_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_data_report_fits_its_window(page, tmp_path, width, dark):
    synthesis = SyntheticTimelines(format=Format.FULL)
    samples = [
        question_record(index, synthesis.sample(Split.TEST, 0, index), synthesis.notation) for index in range(100)
    ]
    path = write_data_report(tmp_path, samples, {"split": "test"}, count_tokens=len)
    assert_fits(page, path, width, dark)
    assert len(page.run(CARDS)) == 24
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (not dark)
