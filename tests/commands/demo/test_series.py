"""Tests the page of a reader of series of the user: equal to `predict`, with options and without, from CSV files."""

import io
import json

import pytest
from rich.console import Console

from commands.answers.answer_service import UploadedFile, UserInputError, UserQuestion
from tests.support.demo import demo_server, page_driver
from tests.support.families.tiny_series import write_series_folder
from tests.support.outputs import browser
from tests.support.outputs.jsonl import read_jsonl

CSV = b"time,load (kW),flow (l/s)\n0,1.5,3\n60,2.5,\n120,-4,5\n180,2,5\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a run, and its answers."""
    folder = tmp_path_factory.mktemp("series")
    (folder / "a.csv").write_bytes(CSV)
    (folder / "b.csv").write_bytes(b"level\n3\n4\n5\n")
    with demo_server.trained(folder, *write_series_folder(folder / "data"), "--trainer.max_steps", "2") as demo:
        yield folder, demo


def given(folder, *names):
    return {"series": [UploadedFile(name, (folder / name).read_bytes()) for name in names]}


def test_the_answer_is_that_of_predict(run, monkeypatch):
    from commands.cli.main import main

    folder, demo = run
    monkeypatch.chdir(folder)
    records = [
        {"question": "Which is faster?", "series": [{"file": "a.csv"}, {"file": "b.csv"}], "options": ["load", "flow"]},
        {"question": "What is the last value?", "series": [{"file": "b.csv"}]},
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, records)))
    main(["predict", "--run_name", "a", "--data.init_args.questions", "questions.jsonl"])
    lines = read_jsonl(folder / "runs/a/predictions-questions.jsonl")
    for line, record in zip(lines, records, strict=True):
        texts = {"question": record["question"], "options": "; ".join(record.get("options", []))}
        blocks = demo_server.answered(
            demo, UserQuestion(texts, given(folder, *(series["file"] for series in record["series"])))
        )
        assert blocks["answer"].text == line["answer"]
        assert "blind" in blocks
        assert "chances" not in blocks or blocks["chances"].bars[0].label == line["answer"]
    assert lines[0]["answer"] in ("load", "flow")
    assert blocks["series 0"].note == "3 steps, from 3 to 5."


def test_examples_are_of_the_run_and_can_be_asked(run):
    _, demo = run
    examples = demo.examples()
    assert len(examples) == 4  # a question of each kind
    for example in examples:
        values = example.values
        question = UserQuestion({**values, "series": ""}, {"series": values["series"]})
        assert "answer" in demo_server.answered(demo, question)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("b.csv", b"", "b.csv: found 0 lines"),
        ("b.csv", b"time,load\n0,x\n1,2\n", "b.csv, line 2, load: found 'x'"),
        ("b.csv", b"\xff\xfe\x00", "b.csv"),
    ],
)
def test_wrong_files_are_refused(run, name, content, message):
    with pytest.raises(UserInputError, match=message) as error:
        demo_server.answered(run[1], UserQuestion({"question": "?"}, {"series": [UploadedFile(name, content)]}))
    assert "/tmp" not in str(error.value)


def test_the_chat_reads_series(run):
    from commands.chat.main import chat

    folder, demo = run
    output = io.StringIO()
    lines = f"/series {folder}/a.csv\n/options load; flow\nWhich is faster?\n"
    chat(demo, folder, io.StringIO(lines), Console(file=output, width=200))
    assert "4 steps of 1 min, from -4 to 2.5." in output.getvalue()
    assert "Options" in output.getvalue()


@pytest.mark.slow
def test_an_export_answers_as_its_checkpoint(run, monkeypatch):
    demo_server.check_export(*run, monkeypatch)


@pytest.mark.slow
@browser.with_browser
def test_a_visitor_asks_about_series(run, tmp_path):
    folder, demo = run
    with demo_server.served(demo) as address, browser.Browser(tmp_path) as page:
        page.open(address)
        page_driver.drop(page, "series", "torn.csv", b"time\n")
        page_driver.wait(page, "document.querySelector('.state.error')?.innerText.includes('torn.csv')")
        page_driver.drop(page, "series", "a.csv", CSV)
        page_driver.wait(page, "document.querySelectorAll('.files li svg').length == 2")
        page.run("document.querySelectorAll('textarea')[0].value = 'Which is faster?'")
        page.run("document.querySelectorAll('textarea')[1].value = 'load; flow'")
        page_driver.check_two_visitors(page)
        question = UserQuestion({"question": "Which is faster?", "options": "load; flow"}, given(folder, "a.csv"))
        expected = demo_server.answered(demo, question)["answer"].text
        assert page.run("document.querySelector('[data-key=answer]').innerText") == expected
        page_driver.check_quality(page, address)
