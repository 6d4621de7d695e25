"""Tests two runs side by side: each answers as alone, and runs of other tasks or data are refused."""

import json
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest

from commands.answers.answer_blocks import Failure, RunBlock, Slider, SliderStop, Text
from commands.answers.answer_service import (
    AnswerService,
    InputField,
    PickedValue,
    Turn,
    UploadedFile,
    UserInputError,
    UserQuestion,
)
from commands.answers.compared_runs import ComparedAnswers, ComparedRun, fingerprint
from commands.cli.configs.compare_option import arguments_of_compared
from commands.cli.trainer import LockstepTrainer
from tests.support.demo import demo_server, page_driver
from tests.support.outputs import browser

TEXT = InputField("text", "text", "Text")


class Echo(AnswerService):
    """Answers with its name and the question; one that reads times knows when."""

    task = "Say something."
    is_conversation = True

    def __init__(self, name, reads_times=False, data="3 (abc)", task=task):
        self.name, self.data, self.task, self.given = name, data, task, []
        self.fields = [TEXT, InputField("items", "pick", "Items", max_count=3, times=reads_times)]
        if reads_times:
            self.fields.append(InputField("at", "time", "When"))
        self.about = [("model", name), ("data", data)]

    def data_identity(self):
        return {"items": self.data}

    def accept(self, field, file):
        self.given.append(file.name)
        yield Text("given", "", f"{self.name} has {file.name}")

    def answer(self, question):
        self.given.append(question)
        if question.text("text") == self.name:
            raise UserInputError(f"{self.name}: not this")
        if "at" in question.texts:
            yield Slider("time", "When", "at", [SliderStop(question.texts["at"], "then")], 0)
        yield Text("answer", "", f"{self.name}: {question.text('text')}", is_answer=True)


def compared(*demos):
    return ComparedAnswers([ComparedRun(demo.name, demo, nullcontext) for demo in demos])


def test_each_run_gets_the_question_of_its_own_page():
    old, new = Echo("old"), Echo("new", reads_times=True)
    demo = compared(old, new)
    assert [field.name for field in demo.fields] == ["text", "items", "at"]
    assert demo.fields[1].times
    assert demo.about == [("old: model", "old"), ("new: model", "new"), ("data", "3 (abc)")]
    question = UserQuestion(
        {"text": "hello", "at": "2024-01-02"},
        {},
        {"items": [PickedValue("a", "2024-01-01")]},
        [Turn("x", "one", ("two",))],
    )
    answers = list(demo.answer(question))
    assert [block.key for block in answers] == ["0 answer", "time", "1 answer"]
    assert answers[0] == RunBlock(0, Text("answer", "", "old: hello", is_answer=True))
    assert old.given == [UserQuestion({"text": "hello"}, {}, {"items": [PickedValue("a")]}, [Turn("x", "one")])]
    assert new.given == [question._replace(turns=[Turn("x", "two")])]
    list(demo.accept(TEXT, UploadedFile("a.png", b"")))
    assert old.given[-1] == new.given[-1] == "a.png", "each run checks the file"


def test_a_run_that_cannot_answer_leaves_the_other():
    demo = compared(Echo("old"), Echo("new"))
    answers = list(demo.answer(UserQuestion({"text": "new"})))
    assert [block.block for block in answers] == [
        Text("answer", "", "old: new", is_answer=True),
        Failure("failure", "new: not this"),
    ]
    with pytest.raises(UserInputError, match="^text: it is empty; write something first$"):
        list(demo.answer(UserQuestion({"text": " "})))


def test_runs_of_other_tasks_and_data_are_refused():
    with pytest.raises(ValueError, match="--compare new: it has another task .* expected two runs of one family"):
        compared(Echo("old"), Echo("new", task="Draw something."))
    with pytest.raises(ValueError, match=r"found other data than old's: items 2 \(x\), expected 3 \(abc\)"):
        compared(Echo("old"), Echo("new", data="2 (x)"))
    assert fingerprint(["a", "b"]) != fingerprint(["ab"])
    assert fingerprint([1, 2]) == fingerprint(["1", "2"])


def test_every_step_of_a_run_is_in_its_own_context():
    entered = []

    @contextmanager
    def context(name):
        entered.append(f"+{name}")
        yield
        entered.append(f"-{name}")

    class Two(Echo):
        def answer(self, question):
            for number in range(2):
                entered.append(f"{self.name}{number}")
                yield Text("answer", "", "")

    demo = ComparedAnswers([ComparedRun(name, Two(name), lambda name=name: context(name)) for name in "ab"])
    for _ in demo.answer(UserQuestion()):
        assert entered[-1].startswith("-"), "between two steps another visitor's question may be answered"
    assert [name for name in entered if name[0] not in "+-"] == ["a0", "a1", "b0", "b1"]
    assert entered[:3] == ["+a", "a0", "-a"]
    assert entered[-3:] == ["-b", "+b", "-b"]


def test_the_second_run_of_a_comparison_gets_its_own_config(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    first = ["demo", "--config", str(tmp_path / "a/config.yaml")]
    second = ["demo", "--config", str(tmp_path / "b/config.yaml")]
    given = [
        "--run_name",
        "a",
        "--compare=b",
        "--port",
        "0",
        "--config=configs/overlays/gpu.yaml",
        "--ckpt_path",
        "last",
        "--auth",
        "x:y",
        "--trainer.accelerator",
        "cpu",
    ]
    shared = ["--config", "configs/overlays/gpu.yaml", "--ckpt_path", "last", "--trainer.accelerator", "cpu"]
    assert arguments_of_compared([*first, *given], "b", tmp_path) == [*second, *shared, "--run_name", "b"]
    with pytest.raises(ValueError, match="--ckpt_path x.ckpt: with --compare, expected best or last"):
        arguments_of_compared([*first, "--ckpt_path=x.ckpt"], "b", tmp_path)
    with pytest.raises(ValueError, match="--config mine.yaml: with --compare, name both runs"):
        arguments_of_compared(["demo", "--config", "mine.yaml"], "b", tmp_path)
    with pytest.raises(FileNotFoundError, match="c is not a run with a config.yaml; existing runs: a, b"):
        arguments_of_compared(first, "c", tmp_path)


def test_a_conversation_has_the_answers_of_both():
    page = demo_server.client(compared(Echo("old"), Echo("new")))
    body = {"values": {"text": "hello"}, "turns": [["x", "one", "two"]]}
    lines = demo_server.lines(page.post("/ask", json=body))
    assert [(line["run"], line["text"]) for line in lines] == [(0, "old: hello"), (1, "new: hello")]
    (refused,) = demo_server.lines(page.post("/ask", json={"values": {}, "turns": [["x", "one", 2]]}))
    assert "cannot be read" in refused["error"]
    (refused,) = demo_server.lines(page.post("/ask", json={"values": {"text": "?"}, "turns": [["x", "one"]]}))
    assert "no answer of each of 2 runs" in refused["error"]


@pytest.mark.slow
@browser.with_browser
def test_a_visitor_compares_two_runs(tmp_path):
    demo = compared(Echo("old"), Echo("new", reads_times=True))
    with demo_server.served(demo, "old and new") as address, browser.Browser(tmp_path) as page:
        page.open(address)
        for text in ("hello", "again", "new", "last"):
            page.run(f"document.querySelector('textarea').value = {json.dumps(text)}")
            page_driver.ask(page)
        cards = page.run("[...document.querySelectorAll('.card')].map((card) => card.innerText)")
        assert "old: hello" in cards[0]
        assert "new: hello" in cards[0]
        assert "old: new" in cards[2]
        assert "new: not this" in cards[2]
        last = demo._runs[0].service.given[-1], demo._runs[1].service.given[-1]
        assert [[turn.answer for turn in answer.turns] for answer in last] == [
            ["old: hello", "old: again", "old: new"],
            ["new: hello", "new: again", ""],
        ]
        names = "[...document.querySelectorAll('.card:last-child .run-name')].filter((name) => name.offsetHeight)"
        assert page.run(f"{names}.map((name) => name.innerText)") == ["old", "new"]
        left, right = page.run(f"{names}.map((name) => name.getBoundingClientRect().left)")
        assert left < right, "side by side"
        page_driver.check_quality(page, address)
        left, right = page.run(f"{names}.map((name) => name.getBoundingClientRect().left)")
        assert left == right, "one below the other in a narrow window"


def test_without_a_loader_of_the_second_run_the_page_is_of_the_first_alone(monkeypatch):
    pages = []
    monkeypatch.setattr("commands.cli.trainer.load_answer_service", lambda *_: "the run")
    monkeypatch.setattr(
        "commands.demo.main.serve", lambda create, context, title, *_: pages.append((create(), context, title))
    )
    plugin = SimpleNamespace(forward_context="the precision")
    trainer = SimpleNamespace(default_root_dir="runs/a", precision_plugin=plugin)
    LockstepTrainer.demo(trainer, None, None, ckpt_path="best.ckpt", compare="b")
    assert pages == [("the run", "the precision", "a")]
