"""Tests reports: statistics are correct, and content is displayed unchanged, even if it is hostile."""

import json
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datamodules.multimodal.reports.html_report import MetricRow
from datamodules.multimodal.reports.word_diff import word_differences
from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.channels import KEYS, Format
from datamodules.temporal.reports.data_summary import choose_examples, summarise
from datamodules.temporal.reports.html_report import write_data_report, write_prediction_report
from datamodules.temporal.reports.leak_check import check_leaks
from datamodules.temporal.reports.sample_records import answer_metrics, answer_record, question_record
from datamodules.temporal.reports.sample_view import Mark, MarkKind, SampleView
from datamodules.temporal.synthetic.samples import SyntheticTimelines
from tests.support.outputs.browser import with_browser
from tests.support.outputs.report_page import ATTACK, CARDS, STATUS, choose
from tests.support.temporal.report_records import shown

# -- texts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truth", "answer", "missing", "wrong"),
    [
        ("cpu is rising.", "cpu is rising.", [], []),
        ("from 42% to 4%.", "from 42% to 14%.", ["4"], ["14"]),
        ("at 1.5s it is 3.25 GB", "at 1.6s it is 3.25 GB", ["1.5"], ["1.6"]),
        ("a b c", "", ["a b c"], []),
        ("", "a b", [], ["a b"]),
        ("a  b", "a b", [], []),
        ("now, it is -3", "later, it is 3", ["now", "-"], ["later"]),
    ],
)
def test_differences_are_marked_by_whole_words(truth, answer, missing, wrong):
    ours, theirs = word_differences(truth, answer)
    assert [text for text, differs in ours if differs] == missing
    assert [text for text, differs in theirs if differs] == wrong


@settings(max_examples=60, deadline=None)
@given(st.text(), st.text())
@example("  two  spaces\n", "1.2.3 x_y é 漢字 <b>")
@example(ATTACK, "at 1.5s")
def test_parts_joined_are_the_text(first, second):
    parts = word_differences(first, second)
    assert ["".join(piece for piece, _ in side) for side in parts] == [first, second]
    assert all(not differs for side in word_differences(first, first) for _, differs in side)


# -- records --------------------------------------------------------------------------------------------------------


def test_curves_are_in_physical_units_with_null_where_missing():
    first, second = shown().as_record()["curves"]
    assert first == {"channel": "cpu_cores", "unit": "cores", "capacity": 64.0, "values": [32.0, 16.0, 48.0, 64.0]}
    assert second["values"] == [8.0, None, 24.0, 32.0]


@pytest.mark.parametrize("format", list(Format))
def test_marks_of_a_sample_lie_on_its_curve(format):
    """A true point lies on the curve, except for the means of a trend."""
    synthesis = SyntheticTimelines(seed=3, format=format)
    points = 0
    for index in range(200):
        sample = synthesis.sample(Split.TEST, 0, index)
        record = question_record(index, sample, synthesis.notation)
        assert record.template, (record.question, record.truth)
        assert record.truth_template, (record.question, record.truth)
        assert record.reads_back
        column = record.channels.index(record.asked_channel)
        physical = sample.values[:, column] * sample.capacities[column]
        for mark in record.marks:
            assert mark.channel == record.asked_channel
            if record.task == "trend" or mark.time_s is None or mark.value is None:
                continue
            step = round(mark.time_s * 1000 / sample.step_ms)
            assert sample.present[step, column]
            assert mark.value == pytest.approx(physical[step], abs=1e-4 * sample.capacities[column])
            points += mark.kind == MarkKind.TRUE
    assert points > 100


def test_answers_are_marked_and_graded():
    """The reference is right; a wrong number is marked at the answered position, in the channel's unit."""
    synthesis = SyntheticTimelines(seed=4, task_mix={"bottleneck": 1})
    samples = [synthesis.sample(Split.TEST, 0, index) for index in range(20)]
    for index, sample in enumerate(samples):
        record = answer_record(index, sample, synthesis.notation, sample.answer, "")
        true, predicted = ([mark for mark in record.marks if mark.kind == kind] for kind in list(MarkKind)[1:])
        assert record.errors == ()
        assert record.blind_errors
        assert len(true) == 1
        assert [mark[1:] for mark in true] == [mark[1:] for mark in predicted]
        assert all(reached == possible for reached, possible in record.outcomes.values())

    sample = samples[0]
    capacity = sample.capacities[KEYS.index(sample.facts.channel)]
    name = sample.answer.split()[0]
    wrong = answer_record(0, sample, synthesis.notation, f"{name} is lowest with 250% at step 9000.", "")
    assert wrong.errors == ("value", "time")
    (mark,) = (mark for mark in wrong.marks if mark.kind == MarkKind.PREDICTED)
    assert (mark.value, mark.time_s) == (pytest.approx(2.5 * capacity), pytest.approx(900.0))


def test_metrics_are_of_all_and_of_each_task():
    synthesis = SyntheticTimelines(seed=5)
    samples = [synthesis.sample(Split.TEST, 0, index) for index in range(60)]
    # Every second is answered; the blind answers are all the same.
    output = [(sample.answer if index % 2 else "", "now.") for index, sample in enumerate(samples)]
    metrics = {(metric.task, metric.name): metric for metric in answer_metrics(samples, output, synthesis.notation)}
    assert metrics["all", "exact"] == MetricRow("all", "exact", 0.5, 0.0, 1.0)
    assert {task for task, _ in metrics} == {"all", "trend", "bottleneck", "feasibility", "readout"}
    trends = [index % 2 for index, sample in enumerate(samples) if sample.facts.task == "trend"]
    assert metrics["trend", "class right"].model == pytest.approx(np.mean(trends))
    assert all(metric.rules == 1.0 for metric in metrics.values())


# -- metrics --------------------------------------------------------------------------------------------------------


def test_summary_counts_what_is_there():
    samples = [
        shown(0, truth_class="rising", template="a"),
        shown(1, truth_class="stable", template="a", question="longer question?"),
        shown(2, task="readout", template="b", truth_template="c", reads_back=False),
    ]
    summary = summarise(samples, count_tokens=lambda text: len(text.split()))
    assert summary["tasks"] == {"trend": 2, "readout": 1}
    assert summary["classes"] == {"trend": {"rising": 1, "stable": 1}}
    assert summary["templates"] == {"question": {"trend: a": 2, "readout: b": 1}, "answer": {"readout: c": 1}}
    assert list(summary["violations"].values()) == [0, 1]
    assert summary["steps"] == {"min": 4, "median": 4, "mean": 4, "max": 4}
    assert summary["seconds"]["max"] == 0.4
    assert summary["missing"] == {"measurements": 3 / 24, "series": 1.0}
    assert summary["texts"]["question, characters"] == {"min": 13, "median": 13, "mean": 14, "max": 16}
    assert summary["texts"]["question, tokens"]["max"] == 3
    cpu, memory = summary["channels"]
    assert cpu["values"] == {"min": 16, "median": 40, "mean": 40, "max": 64}
    assert (cpu["measurements"], cpu["full"], cpu["empty"], cpu["missing"], cpu["outside"]) == (12, 0.25, 0, 0, 0)
    # The missing measurement's 0 is none.
    assert (memory["measurements"], memory["empty"], memory["missing"]) == (9, 0, 0.25)
    assert sum(memory["histogram"]) == 9


def test_values_that_no_machine_has_are_counted():
    values = np.array([[1.5, 0.1], [-0.1, np.nan], [np.nan, 0.3], [1.0, 0.4]])
    cpu, memory = summarise([shown(values=values)])["channels"]
    assert (cpu["outside"], memory["outside"]) == (3, 0)


def test_nothing_to_report_is_a_report():
    assert summarise([])["samples"] == 0
    nothing = summarise([shown(present=np.zeros((4, 2), np.bool_))])
    assert nothing["channels"][0]["values"]["max"] is None


def test_examples_come_from_every_task_and_class():
    classes = ["rising"] * 50 + ["stable"] * 2 + ["falling"]
    samples = [shown(number, truth_class=name) for number, name in enumerate(classes)]
    chosen = choose_examples(samples, 7)
    assert [sample.sample for sample in chosen] == [0, 1, 2, 3, 50, 51, 52]


def leaky(requirement_tells: bool) -> list[SampleView]:
    random = np.random.Generator(np.random.Philox(key=5))
    samples = []
    for number in range(1200):
        verdict = ("now", "later", "never")[number % 3]
        share = (number % 3 + random.random()) / 3 if requirement_tells else random.random()
        # The value alone is no clue, but its share of the capacity is.
        capacity = float(random.choice([8, 16, 64, 128]))
        amounts = {"channel": "cpu", "requirement": share * capacity, "share": share, "capacity": capacity}
        samples.append(shown(number, task="feasibility", truth_class=verdict, asked=amounts))
    return samples


def test_a_question_that_gives_its_class_away_is_found():
    (leak,) = check_leaks(leaky(True))
    assert leak.suspicious
    assert leak.guess > 0.8
    assert "share" in leak.clue
    (none,) = check_leaks(leaky(False))
    assert not none.suspicious
    assert none.guess < 0.45


def test_a_wording_that_gives_its_class_away_is_found():
    samples = [sample._replace(question=f"{sample.truth_class} {i}?") for i, sample in enumerate(leaky(False))]
    (leak,) = check_leaks(samples)
    assert leak.suspicious
    assert leak.clue == "wording"
    assert leak.guess == 1.0


def test_our_questions_give_nothing_away():
    synthesis = SyntheticTimelines(seed=11, task_mix={"trend": 1, "feasibility": 1})
    records = [
        question_record(index, synthesis.sample(Split.TRAIN, 0, index), synthesis.notation) for index in range(1000)
    ]
    leaks = check_leaks(records)
    assert {leak.task for leak in leaks} == {"trend", "feasibility"}
    assert [leak for leak in leaks if leak.suspicious] == []


# -- files ----------------------------------------------------------------------------------------------------------


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
    page = write_prediction_report(tmp_path / "new", answers(10), metrics, {"run": "a </script> b"})
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
    write_prediction_report(tmp_path, answers(1), [])
    before = (tmp_path / "prediction_report.html").read_bytes()
    path = write_prediction_report(tmp_path, answers(2), [], timelines=timelines)
    assert path == tmp_path / f"{stem}.html"
    assert path.with_name(f"{stem}.json").is_file()
    assert timelines is None or (tmp_path / "prediction_report.html").read_bytes() == before


def test_the_page_states_which_answers_it_counts_as_right(tmp_path):
    text = write_prediction_report(tmp_path, answers(1), []).read_text(encoding="utf-8")
    assert "every value within 5 % of the capacity and every time within one step" in text
    assert "every value is right to the last digit" in text


def test_half_a_character_does_not_stop_a_report(tmp_path):
    page = write_prediction_report(tmp_path, [shown(answer="broken \ud83d")], [])
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


# -- in a browser ---------------------------------------------------------------------------------------------------


@with_browser
def test_answers_can_be_found_among_two_thousand(page, tmp_path):
    path = write_prediction_report(
        tmp_path, answers(2000), [MetricRow("all", "value", 0.75, 0.24, 1.0)], {"run": "mine"}
    )
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
    path = write_prediction_report(tmp_path, answers(45), [])
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
    path = write_prediction_report(tmp_path, answers(1), [])
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
    page.resize(width, 800, dark)
    page.open(path.as_uri())
    assert len(page.run(CARDS)) == 24
    assert page.run("document.documentElement.scrollWidth") == width
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (not dark)
    assert page.complaints == []
