"""Tests the page of a reader of timelines: equal to `predict`, with the points of the answer on the curve."""

import json

import pytest

from commands.answers.answer_service import UploadedFile, UserInputError, UserQuestion
from commands.answers.families.timelines import _chart
from tests.support.demo import demo_server, page_driver
from tests.support.families.tiny_temporal import TINY_TEMPORAL
from tests.support.outputs import browser
from tests.support.outputs.jsonl import read_jsonl


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a run, and its answers."""
    folder = tmp_path_factory.mktemp("timelines")
    with demo_server.trained(folder, *TINY_TEMPORAL, "--trainer.max_epochs", "1") as demo:
        yield folder, demo


def test_the_answer_is_that_of_predict(run, monkeypatch):
    from commands.cli.main import main

    folder, demo = run
    monkeypatch.chdir(folder)
    examples = demo.examples()
    assert len(examples) >= 3
    with (folder / "questions.jsonl").open("w") as file:
        for number, example in enumerate(examples):
            (folder / f"{number}.csv").write_bytes(example.values["timeline"][0].content)
            file.write(json.dumps({"question": example.values["question"], "csv": f"{number}.csv"}) + "\n")
    main(["predict", "--run_name", "a", "--data.init_args.questions", "questions.jsonl"])
    records = read_jsonl(folder / "runs/a/predictions.jsonl")
    for record, example in zip(records, examples, strict=True):
        question = UserQuestion({"question": record["question"]}, {"timeline": example.values["timeline"]})
        blocks = demo_server.answered(demo, question)
        assert blocks["answer"].text == record["answer"]
        assert len(blocks["curve"].lines) == 1


def test_the_points_of_an_answer_are_marked(run):
    _, demo = run
    kinds = [sample.facts.task.value for sample in demo._examples]
    index = kinds.index("bottleneck")
    sample, question = demo._examples[index], demo.examples()[index].values["question"]
    steps = len(sample.values)
    channel, marks = demo._marks(question, sample.answer, sample.capacities, steps)
    assert channel == sample.facts.channel
    assert [tuple(mark) for mark in marks] == [(sample.facts.time, sample.facts.value)]
    assert demo._marks("what is this?", sample.answer, sample.capacities, steps) == ("", [])


def test_a_trend_is_marked_at_both_ends(run):
    _, demo = run
    channel, marks = demo._marks("trend of cpu?", "cpu is increasing from 52% to 61%.", (1.0,) * 4, 20)
    assert channel == "cpu_cores"
    assert [tuple(mark) for mark in marks] == [(0, 52), (19, 61)]


def test_a_step_after_the_end_is_reported_and_not_drawn(run):
    _, demo = run
    source, capacities = demo._read_series(UploadedFile("a.csv", b"time_ms,cpu_cores\n0,1\n100,2\n200,3\n"), "?")
    channel, marks = demo._marks("cpu at step 2, step 3?", "cpu at step 2 is 52%, at step 3 is 50%.", capacities, 3)
    drawn = _chart("curve", "", source, channel, marks)
    assert [mark.step for mark in drawn.marks] == [2]
    assert drawn.note.endswith("over 3 steps. The answer names step 3, after the last one, 2.")


@pytest.mark.parametrize(
    "content, message",
    [(b"", "empty file"), (b"time_ms,other\n0,1\n100,2\n", "other"), (b"\xff\xfe\x00", "b.csv")],
)
def test_wrong_files_are_refused(run, content, message):
    question = UserQuestion({"question": "?"}, {"timeline": [UploadedFile("b.csv", content)]})
    with pytest.raises(UserInputError, match=message) as error:
        demo_server.answered(run[1], question)
    assert "/tmp" not in str(error.value)
    assert "questions.jsonl" not in str(error.value)


@pytest.mark.slow
def test_an_export_answers_as_its_checkpoint(run, monkeypatch):
    demo_server.check_export(*run, monkeypatch)


@pytest.mark.slow
@browser.with_browser
def test_a_visitor_draws_a_curve(run, tmp_path, monkeypatch):
    """With the mouse, a finger and the keyboard; the answer is that to the file that the page made of it."""
    _, demo = run
    sent, accept = [], demo.accept
    monkeypatch.setattr(demo, "accept", lambda field, file: sent.append(file) or accept(field, file))
    question, sketch = demo.examples()[0].values["question"], demo.fields[0].sketch
    with demo_server.served(demo) as address, browser.Browser(tmp_path) as page:
        page.open(address)
        page.run("document.querySelector('.ways button').click()")
        edges = "(({left, top, width, height}) => [left, top, width, height])"
        left, top, width, height = page.run(f"{edges}(document.querySelector('svg.sketch').getBoundingClientRect())")

        def at(across, up):  # shares of the axes
            return left + width * (62 + 522 * across) / 600, top + height * (204 - 194 * up) / 236

        page.mouse("mousePressed", *at(0, 0.25))
        page.mouse("mouseDragged", *at(0.5, 0.75))
        page.mouse("mouseReleased", *at(0.5, 0.75))
        page.touch([at(0.75, 0.5), at(1, 0.5)])
        page.run("document.querySelector('svg.sketch').focus()")
        for key in ("Home", "ArrowUp", "PageUp", "ArrowRight", "Delete"):
            page.press(key)
        page.run(f"document.querySelector('textarea').value = {json.dumps(question)}")
        page_driver.ask(page)  # at once: it waits until the curve is sent
        header, *rows = sent[-1].content.decode().splitlines()
        values = [row.split(",")[1] for row in rows]
        shares = [float(value) / sketch.curves[0].top if value else None for value in values]
        assert header == f"time_ms,{sketch.curves[0].name}"
        assert len(rows) == sketch.points
        assert shares[0] == pytest.approx(0.5, abs=0.02), "the keyboard's"
        assert shares[1] is None, "the keyboard's"
        middle = (sketch.points - 1) // 4
        across = middle / (sketch.points - 1)
        assert shares[middle] == pytest.approx(0.25 + across, abs=0.04), "between two positions of the mouse"
        assert shares[-1] == pytest.approx(0.5, abs=0.02), "the finger's"
        assert None in shares[sketch.points // 2 :], "the finger's"
        blocks = demo_server.answered(demo, UserQuestion({"question": question}, {"timeline": [sent[-1]]}))
        assert page.run("document.querySelector('[data-key=answer] p').textContent") == blocks["answer"].text
        assert page.run("document.querySelectorAll('[data-key=curve] path').length") == 1
        page_driver.check_quality(page, address)
        page.run("document.querySelector('.way button').click()")
        page_driver.ask(page)
        assert "no file is given" in page.run("document.querySelector('.state.error').innerText")


@pytest.mark.slow
@browser.with_browser
def test_a_visitor_drops_a_timeline(run, tmp_path):
    _, demo = run
    example = demo.examples()[0].values
    with demo_server.served(demo) as address, browser.Browser(tmp_path) as page:
        page.open(address)
        page_driver.drop(page, "timeline", "torn.csv", b"time_ms,other\n0,1\n100,2\n")
        page_driver.wait(page, "document.querySelector('.state.error')?.innerText.includes('other')")
        page_driver.drop(page, "timeline", "a.csv", example["timeline"][0].content)
        page_driver.wait(page, "document.querySelector('.files li svg, .given svg')")
        page.run(f"document.querySelector('textarea').value = {json.dumps(example['question'])}")
        page_driver.check_two_visitors(page)
        blocks = demo_server.answered(
            demo, UserQuestion({"question": example["question"]}, {"timeline": example["timeline"]})
        )
        assert page.run("document.querySelector('[data-key=answer] p').textContent") == blocks["answer"].text
        page_driver.check_quality(page, address)
