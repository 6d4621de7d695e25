"""A question file of another form, encoding or length is read whole, or refused in one message."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.document_qa.questions.question_file import read_question_file
from tests.support.document_qa.question_files import ROUND_1, ROUND_2, read_question_lines, write_question_lines


def test_absent_empty_and_binary_files_are_refused(tmp_path):
    path = tmp_path / "questions.jsonl"
    with pytest.raises(FileNotFoundError, match="the question file does not exist"):
        read_question_file(path)
    with pytest.raises(ValueError, match="found no question"):
        read_question_file(write_question_lines(path, ""))
    path.write_bytes(b"\xff{}")
    with pytest.raises(
        ValueError, match="questions.jsonl, line 1: found the byte 0xff, which is not UTF-8, at position 0"
    ):
        read_question_file(path)
    with pytest.raises(ValueError, match="found a JSON list without doc_id"):
        read_question_file(write_question_lines(path, json.dumps([ROUND_1])))


def test_a_byte_order_mark_and_other_line_ends_are_accepted(tmp_path):
    lines = "\r\n".join(json.dumps(record) for record in (ROUND_1, ROUND_2))
    (tmp_path / "questions.jsonl").write_text("\ufeff" + lines + "\r\n", encoding="utf-8", newline="")
    assert len(read_question_file(tmp_path / "questions.jsonl").questions) == 2
    odd = {**ROUND_2, "question": "a\u2028b"}  # a line separator, which JSON allows in a text
    assert read_question_lines(tmp_path, odd)[0].question == "a\u2028b"


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (json.dumps(ROUND_2).encode() + b'\n{"id": "\xe9"}', ", line 2: found the byte 0xe9, which is not UTF-8"),
        (b"\x1f\x8b\x08rest", ": found gzip, expected an object per line"),
        (b"id,question,document\n1,why?,a.pdf\n", ", line 1: invalid JSON .* in 'id,question,document'; expected"),
        (b'{"id": 1, "id": 2}', ", line 1: invalid JSON .found the key 'id' twice, with 1 and 2"),
        (b'[\n{"id": 1},\n{"id": 2}\n', ", line 4: invalid JSON .*expected an object per line, or the JSON of MP-Doc"),
        (b'[{"doc_id": NaN}]', ", line 1: invalid JSON .found NaN"),
        (b'{\n "data": [\n  {"a": 1},\n  {"a": }\n ]\n}', ", line 4: invalid JSON"),
        (
            b'{"id": 1, "question": "' + b"x" * 200_000 + b'", "document": "a"}',
            ", line 1: question: found 200,000 char",
        ),
        (b'{"id": 1, "question": "?", "document": "../' + b"x" * 90_000 + b'"}', ", line 1: document: found '../xxx"),
        (b'{"id": 1, "question": "?", "document": "a", "options": ' + b"[" * 900 + b"]" * 900 + b"}", "64 levels"),
        (b'{"id": ' + b"9" * 5000 + b"}", ", line 1: invalid JSON .found an integer of 5,000 digits"),
    ],
)
def test_files_of_another_form_are_refused_in_one_message(tmp_path, data, messages):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=messages) as error:
        read_question_file(path)
    assert str(error.value).startswith(str(path))
    assert str(error.value).count("\n") < 3
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize("format", ["mp_docvqa", "mmlongbench"])
def test_a_cut_file_of_a_published_format_is_named_with_what_is_wrong(tmp_path, format):
    path = tmp_path / "val.json"
    path.write_text('{"data": [{"questionId": 1}')
    with pytest.raises(ValueError, match="val.json: expected the JSON of M.*; found invalid JSON: Expecting"):
        read_question_file(path, format)


def test_a_large_file_is_read_as_lines_without_parsing_it_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("datamodules.document_qa.questions.question_file.LARGEST_VALUE", 10)
    assert len(read_question_lines(tmp_path, ROUND_1, ROUND_2)) == 2
    path = tmp_path / "val.json"
    path.write_text(json.dumps({"data": []}))
    with pytest.raises(
        ValueError, match="val.json: expected the JSON of MP-DocVQA.*found invalid JSON: more than 10 b"
    ):
        read_question_file(path, "mp_docvqa")


GOOD = "\n".join(json.dumps({**ROUND_1, "id": number}) for number in range(4)).encode()


@given(st.integers(0, len(GOOD)), st.integers(0, 4), st.binary(max_size=4))
@settings(max_examples=50, deadline=None)
def test_any_edit_of_the_file_keeps_every_question_or_gives_one_message(tmp_path_factory, at, removed, inserted):
    path, data = tmp_path_factory.getbasetemp() / "edited.jsonl", GOOD[:at] + inserted + GOOD[at + removed :]
    path.write_bytes(data)
    try:
        file = read_question_file(path)
    except ValueError as error:
        assert str(error).startswith(str(path))
        assert str(error).count("\n") < 3
        return
    assert len(file.questions) == sum(bool(line.strip()) for line in data.splitlines())


@pytest.mark.parametrize("content", [b"", b"\n", b"\n \r\n\t\n\n", b"\xef\xbb\xbf\n\n\n"])
def test_a_file_of_blank_lines_has_no_questions(tmp_path, content):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="questions.jsonl: found no questions$"):
        read_question_file(path)
