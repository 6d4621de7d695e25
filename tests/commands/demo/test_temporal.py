"""The page of a reader of timelines: equal to `predict`, with the points of the answer on the curve."""

import json

import pytest

from commands.answers.interface import Question, UploadedFile, UserInputError
from tests.support.demo import served
from tests.support.families.tiny_temporal import TINY_TEMPORAL


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a run, and its answers."""
    from commands.cli.main import main

    folder = tmp_path_factory.mktemp("timelines")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(["fit", *TINY_TEMPORAL, "--trainer.max_epochs", "1", "--run_name", "a"])
        yield folder, served.loaded("a")


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
    records = [json.loads(line) for line in (folder / "runs/a/predictions.jsonl").read_text().splitlines()]
    for record, example in zip(records, examples, strict=True):
        question = Question({"question": record["question"]}, {"timeline": example.values["timeline"]})
        blocks = served.answered(demo, question)
        assert blocks["answer"].text == record["answer"] and len(blocks["curve"].lines) == 1


def test_the_points_of_an_answer_are_marked(run):
    _, demo = run
    kinds = [sample.facts.task.value for sample in demo._examples]
    place = kinds.index("bottleneck")
    sample, question = demo._examples[place], demo.examples()[place].values["question"]
    channel, marks = demo._marks(question, sample.answer, sample.capacities)
    assert channel == sample.facts.channel and [tuple(mark) for mark in marks] == [
        (sample.facts.time, sample.facts.value)
    ]
    assert demo._marks("what is this?", sample.answer, sample.capacities) == ("", [])


@pytest.mark.parametrize(
    "content, message",
    [(b"", "empty file"), (b"time_ms,other\n0,1\n100,2\n", "other"), (b"\xff\xfe\x00", "b.csv")],
)
def test_wrong_files_are_refused(run, content, message):
    question = Question({"question": "?"}, {"timeline": [UploadedFile("b.csv", content)]})
    with pytest.raises(UserInputError, match=message) as error:
        served.answered(run[1], question)
    assert "/tmp" not in str(error.value) and "questions.jsonl" not in str(error.value)
