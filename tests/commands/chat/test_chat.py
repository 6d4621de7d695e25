"""Tests the chat, with a fake model and lines from a pipe."""

import io

import pytest
from rich.console import Console

from commands.answers.answer_blocks import Bar, Bars, Table, Text
from commands.answers.answer_service import AnswerService, FieldChoice, InputField
from commands.chat.chat_session import ChatCommand, parse_command
from commands.chat.main import chat
from tests.support.outputs.jsonl import read_jsonl


class Echo(AnswerService):
    """Answers with everything it is given."""

    fields = [
        InputField("picture", "picture", "Picture", suffixes=(".png",), max_bytes=10),
        InputField("history", "pick", "History", max_count=3, times=True),
        InputField("blind", "choice", "Blind answer", choices=(FieldChoice("no", "no"), FieldChoice("yes", "yes"))),
        InputField("question", "text", "Question"),
    ]
    is_conversation = True
    about = [("model", "echo")]

    def search(self, field, text):
        return [
            FieldChoice(f"id of {name}", name)
            for name in ("Alpha", "Alphabet")
            if name.lower().startswith(text.lower())
        ]

    def answer(self, question):
        for end in (2, 5):  # as tokens come
            yield Text("answer", "", f"{question.text('question')} "[:end] + "." * (end == 5), is_answer=True)
        files = [file.name for file in question.files.get("picture", [])]
        picked = [f"{item.value} at {item.time}" for item in question.picked.get("history", [])]
        yield Table("given", "given", ["what", "number"], [[f"{files} {picked} {question.texts['blind']}", 3.0]])
        yield Text("turns", "", f"turns {[(turn.question, turn.answer) for turn in question.turns]}")
        yield Bars("bars", "classes", [Bar("one", 0.75)])


def printed_by(folder, *lines):
    output = io.StringIO()
    chat(Echo(), folder, io.StringIO("\n".join(lines) + "\n"), Console(file=output, width=200))
    return output.getvalue()


def test_lines_are_answered_and_commands_change_the_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "large.png").write_bytes(b"x" * 11)
    text = printed_by(
        tmp_path,
        "first",
        "/picture a.png",
        "/history alpha @ 2024-01-01; Alphabet",
        "/blind",
        "second",
        "/save out.jsonl",
        "/new",
        "third",
        "/quit",
        "never",
    )
    assert "never" not in text
    assert "[] [] no" in text
    assert "turns []" in text
    assert "['a.png'] ['id of Alpha at 2024-01-01', 'id of Alphabet at '] yes" in text
    assert "turns [('first', 'first.')]" in text
    assert "############" in text
    assert "75.0 %" in text
    assert text.count("turns []") == 2  # the first question, and the one after /new
    answers = read_jsonl(tmp_path / "out.jsonl")
    assert [answer["question"] for answer in answers] == ["first", "second"]
    assert answers[1]["picture"] == ["a.png"]
    assert answers[1]["answer"][0]["text"] == "secon."


@pytest.mark.parametrize(
    "line, message",
    [
        ("/picture a.txt", "expected a file that ends in .png"),
        ("/picture none.png", "No such file"),
        ("/picture large.png", "larger than"),
        ("/picture", "expected the path of a file"),
        ("/history zzz", "found nothing for 'zzz'"),
        ("/blind maybe", "expected one of no, yes"),
        ("/other", "there is no such command"),
        ("/save a.png", "File exists; expected the name of a new file"),
        ("/history a; a; a; a", "found 4 values, expected at most 3"),
        ("/picture ~nobody-of-this-name/a.png", "No such file"),
        ("x" * 5000, "expected at most 4,000"),
    ],
)
def test_after_a_wrong_line_the_chat_continues(tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "large.png").write_bytes(b"x" * 11)
    text = printed_by(tmp_path, line, "still")
    assert message in text
    assert "still." in text


def test_commands_are_distinguished_from_questions(tmp_path):
    (tmp_path / "a.png").touch()
    assert parse_command("/save x y") == ChatCommand("save", "x y")
    assert parse_command("/history " + "x" * 300) == ChatCommand("history", "x" * 300), "too long for a path"
    assert parse_command("what is this?") is None
    assert parse_command(str(tmp_path / "a.png")) is None
    assert all(f"/{name}" in printed_by(tmp_path, "/help") for name in ("picture", "blind", "history", "save", "new"))


def test_a_path_alone_names_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.png", "with space.png", "a.txt"):
        (tmp_path / name).write_bytes(b"x")
    text = printed_by(
        tmp_path, str(tmp_path / "a.png"), "first", f"'{tmp_path}/with space.png'", "second", "a.txt", "none.png"
    )
    assert "['a.png'] [] no" in text
    assert "['with space.png'] [] no" in text
    assert "turns [('first', 'first.'), ('secon" in text, "a path is no question"
    assert "a.txt." in text, "what is no picture is a question"
    assert "none." in text, "what is no picture is a question"


def test_what_a_command_has_set_is_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(b"x")
    printed = printed_by(
        tmp_path, "/picture a.png", "/history alpha @ 2024-01-01; alphabet", "/blind", "/blind", "/new"
    ).splitlines()
    answers = [line for line in printed[2:] if not line.startswith(">")]
    assert answers == [
        "Picture: a.png",
        "History: Alpha @ 2024-01-01; Alphabet",
        "Blind answer: yes",
        "Blind answer: no",
        "the conversation and the input are forgotten",
    ]


def test_the_lines_of_the_help_begin_in_one_column(tmp_path):
    lines = [line for line in printed_by(tmp_path, "/help").splitlines() if line.startswith("  ")]
    assert len(lines) > 6
    assert {line[30] for line in lines} == {" "}
    assert all(line[31] != " " for line in lines)
