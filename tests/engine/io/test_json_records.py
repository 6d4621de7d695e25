"""Tests that ambiguous and invalid JSON records are refused with a message."""

import gzip
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.multimodal.predict_questions import read_questions
from engine.io import json_records
from engine.io.json_records import describe_names, describe_value, iterate_lines, parse_json

MAX_DEPTH = json_records.MAX_DEPTH


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "found the key 'a' twice, with 1 and 3; expected each key once"),
        ('{"b": [{"a": "x", "a": "x"}]}', "found the key 'a' twice, with 'x' and 'x'"),
        ("[NaN]", "found NaN, which JSON does not have"),
        ('{"a": -Infinity}', "found -Infinity, which JSON does not have"),
        ("1e999", "found the number 1e999, which is beyond the range of a float"),
        ("1" * 301, "found an integer of 301 digits, expected at most 300"),
        ("-" + "1" * 100_000, "found an integer of 100,001 digits"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "found more than 64 levels of lists and objects"),
        ('{"a": ' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "found more than 64 levels"),
        ("[" * 100_000, "expected at most 64 levels of lists and objects"),
        ('{"a": 1} {"a": 2}', "Extra data"),
        (b'{"a": "\xe9"}', "found the byte 0xe9, which is not UTF-8, at position 7"),
        (b'{"a": "\0"}', "control character"),
        ('{"a": ["\\uD83d"]}', "half of a surrogate pair; expected whole characters"),
    ],
)
def test_ambiguous_json_is_refused(text, messages):
    with pytest.raises(ValueError, match=messages) as error:
        parse_json(text)
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)


def test_valid_json_is_read():
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(parse_json(text)) == text
    flat = {"a": [[1, 2.5e300, -3, None, True, "é["]] * 100, "b": {"c": {}}}
    assert parse_json(json.dumps(flat)) == flat
    assert parse_json('"\\ud83d\\ude00"') == "😀"
    assert parse_json(b"\xef\xbb\xbf{}") == {}
    assert parse_json("1" * 300) == int("1" * 300)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=12), st.integers(0, 60), st.integers(0, 12))
def test_any_edit_is_read_as_python_reads_it_or_refused(inserted, at, removed):
    good = b'{"question": "why?", "values": {"gpu_sm": [80, 7.5e1, null]}, "id": 3}'
    data = good[:at] + inserted + good[at + removed :]
    try:
        found = parse_json(data)
    except ValueError:
        return
    assert found == json.loads(data.decode("utf-8-sig"))


def lines(path, data):
    path.write_bytes(data)
    return list(iterate_lines(path, "an object per line"))


def test_lines_have_their_numbers_whatever_ends_them(tmp_path):
    expected = [(1, b"a"), (3, b"b c")]
    for end in (b"\n", b"\r\n", b"\r"):
        assert lines(tmp_path / "a", b"a" + end + b" \t" + end + b"b c") == expected
        assert lines(tmp_path / "a", b"\xef\xbb\xbfa" + end + end + b"b c" + end) == expected
    assert lines(tmp_path / "a", "a\u2028b\x85".encode()) == [(1, "a\u2028b\x85".encode())]
    assert lines(tmp_path / "a", b"") == []


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (gzip.compress(b"{}", mtime=0), "a: found gzip, expected an object per line; decompress"),
        ("{}".encode("utf-16"), "a: found UTF-16, expected an object per line"),
        (b"PAR1....PAR1", "a: found Parquet"),
    ],
)
def test_other_files_are_named_by_their_format(tmp_path, data, messages):
    with pytest.raises(ValueError, match=messages):
        lines(tmp_path / "a", data)


def test_a_line_is_never_read_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(json_records, "MAX_LINE_BYTES", 1000)
    assert lines(tmp_path / "a", b"x" * 999 + b"\n" + b"y") == [(1, b"x" * 999), (2, b"y")]
    with (tmp_path / "a").open("wb") as file:
        file.write(b"{}\n")
        file.truncate(2**30)  # a sparse gibibyte without a line end
    with pytest.raises(ValueError, match="a, line 2: found more than 1,000 bytes without a line end; .* at most 1,000"):
        list(iterate_lines(tmp_path / "a", "an object per line"))


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            '[\n{"question": "?"}\n]',
            "line 1: found list, expected an object with a question; write one object per line",
        ),
        ("question,image\nwhy?,a.png\n", "line 1: not JSON .*: 'question,image'"),
        ('{"question": "?", "question": "!"}', r"line 1: not JSON \(found the key 'question' twice, with '\?' and '!'"),
        ('{"question": "?"}\n{"question": NaN}', "line 2: not JSON .found NaN"),
        ('{"question": "?"}{"question": "!"}', "line 1: not JSON .Extra data"),
        ('{"question": "?"}\n{"questio', "line 2: not JSON"),
        ('{"question": "?", "a\\nb\\nc\\nd": 1}', r"line 1: found 'a\\nb\\nc\\nd', expected question"),
        (json.dumps({"question": "?", "x" * 10**6: 1}), "line 1: found xxx"),
        (json.dumps({"question": ["x" * 10**6]}), "line 1: question is .'xxx"),
    ],
)
def test_questions_of_another_form_are_refused_with_their_line(tmp_path, text, messages):
    path = tmp_path / "questions.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"questions.jsonl, {messages}") as error:
        list(read_questions(path, {"question"}))
    assert str(error.value).count("\n") < 3
    assert len(str(error.value)) < 1000


def test_words_of_a_file_are_short_and_printable_in_messages():
    assert describe_names(["b", "a"]) == "b, a"
    assert describe_names(["\x1b[2J"]) == repr("\x1b[2J")
    assert len(describe_names(["x" * 1000])) < 130
    assert len(describe_value(["x" * 1000])) < 130


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a pipe"])
def test_what_is_no_file_is_named_and_not_waited_for(tmp_path, kind):
    path = tmp_path / "a.jsonl"
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(tmp_path / "pipe" if "link" in kind else path)
    if "link" in kind:
        path.symlink_to(tmp_path / "pipe")
    found = "a folder" if kind == "folder" else "a pipe or a device"
    with pytest.raises(ValueError, match=f"a.jsonl: found {found}, expected a file: an object per line"):
        list(iterate_lines(path, "an object per line"))
    with pytest.raises(FileNotFoundError):
        list(iterate_lines(tmp_path / "missing.jsonl", "an object per line"))
