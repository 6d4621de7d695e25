"""The index of JSON lists and JSON lines finds each record, and a file that changes during the run ends it."""

import json
import shutil
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.vision_language.files import json_index
from datamodules.vision_language.files.json_chats import JsonChats
from datamodules.vision_language.files.json_index import index_elements, index_lines, read_record
from engine.data.errors import BadSampleError, FileChangedError
from tests.support.data_files.vision_language_files import VARIED_SAMPLES, as_sample, write_jsonl, write_llava


def test_a_file_that_became_shorter_is_no_fault_of_a_row(tmp_path):
    chats = JsonChats(write_llava(tmp_path / "chats.json", VARIED_SAMPLES), False)
    (tmp_path / "chats.json").write_text("[]")
    with pytest.raises(FileChangedError, match="chats.json: the file was changed during the run"):
        chats.read(3)


@pytest.mark.parametrize(("write", "lines"), [(write_llava, False), (write_jsonl, True)])
@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_file_that_was_replaced_ends_the_run_and_is_no_bad_sample(tmp_path, write, lines, is_renamed):
    path = write(tmp_path / "chats", VARIED_SAMPLES)
    chats = JsonChats(path, lines)
    other = write(tmp_path / "other", VARIED_SAMPLES[::-1])
    assert other.stat().st_size == path.stat().st_size  # so that each record is read at some offset
    if is_renamed:
        other.rename(path)
    else:
        path.write_bytes(other.read_bytes())
    for row in range(len(chats)):
        with pytest.raises(FileChangedError, match="chats: the file was changed during the run"):
            chats.read(row)


@pytest.mark.parametrize(("write", "lines"), [(write_llava, False), (write_jsonl, True)])
def test_a_file_that_is_touched_or_copied_is_read_on(tmp_path, write, lines):
    path = write(tmp_path / "chats", VARIED_SAMPLES)
    chats = JsonChats(path, lines)
    path.touch()
    assert as_sample(chats.read(2)) == VARIED_SAMPLES[2]
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").rename(path)
    assert as_sample(chats.read(1)) == VARIED_SAMPLES[1]


def test_lines_may_be_appended_and_an_indexed_line_may_not_change(tmp_path):
    path = write_jsonl(tmp_path / "chats.jsonl", VARIED_SAMPLES)
    chats = JsonChats(path, True)
    with path.open("a") as file:
        file.write('{"messages": []}\n')
    assert [as_sample(chats.read(row)) for row in range(len(VARIED_SAMPLES))] == VARIED_SAMPLES
    assert len(chats) == len(VARIED_SAMPLES)
    # Records of the same length in another order, in a file that has grown already.
    first, second, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([second, first, *others]))
    for row in (0, 1):
        with pytest.raises(FileChangedError, match="changed during the run"):
            chats.read(row)
    assert as_sample(chats.read(2)) == VARIED_SAMPLES[2]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", "expected a list of records.*found the end of the file"),
        ('{"messages": []}', "expected a list of records"),
        ("[", "record 0 is not JSON"),
        ('[{"a": 1}, {"a": ]', "record 1 is not JSON.* at byte 11"),
        ('[{"a": 1} {"a": 2}]', "expected , or \\] after record 0 at byte 10"),
        ('[{"a": 1},', "record 1 is not JSON"),
        ('[{"a": 1}', "expected , or \\] after record 0 at byte 9; found the end of the file"),
        ("[" * 100_000, "record 0 is not JSON"),
        ('[{"a": 1}] [{"a": 2}]', "expected the end of the file after the list of records at byte 11; found"),
        ("[ ]\n[]", "expected the end of the file"),
    ],
)
@pytest.mark.parametrize("chunk", [3, 4 * 2**20])
def test_a_list_that_is_none_is_refused_with_its_position(tmp_path, monkeypatch, text, messages, chunk):
    monkeypatch.setattr(json_index, "_CHUNK", chunk)
    (tmp_path / "chats.json").write_text(text)
    with pytest.raises(ValueError, match=f"chats.json: {messages}"):
        JsonChats(tmp_path / "chats.json", False)


def test_a_record_without_an_end_is_not_read_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(json_index, "_CHUNK", 64)
    monkeypatch.setattr(json_index, "LONGEST", 1000)
    (tmp_path / "chats.json").write_text('["' + "a" * 100_000)
    text = json_index._Text
    most = []
    more = text._read_more
    monkeypatch.setattr(text, "_read_more", lambda self, size: most.append(len(self._text)) or more(self, size))
    with pytest.raises(ValueError, match="record 0 is not JSON, or longer than 1000 bytes"):
        index_elements(tmp_path / "chats.json")
    assert max(most) < 5000


def test_a_line_that_is_too_long_is_named_and_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(json_index, "LONGEST", 1000)
    good = json.dumps({"messages": [{"role": "user", "content": "Why?"}]})
    (tmp_path / "chats.jsonl").write_text(f"{good}\n{' ' * 1000}{good}\n{good}")
    chats = JsonChats(tmp_path / "chats.jsonl", True)
    assert chats.read(0)
    assert chats.read(2)
    with pytest.raises(BadSampleError, match="chats.jsonl, line 2: .* found 1,0.. bytes, expected at most 1,000"):
        chats.read(1)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(values, max_size=8), st.booleans(), st.sampled_from([None, 1, 4]), st.integers(1, 40), st.booleans())
def test_every_element_is_at_its_offset(tmp_path_factory, found, ascii_only, indent, chunk, mark):
    path = tmp_path_factory.mktemp("list") / "list.json"
    text = json.dumps(found, ensure_ascii=ascii_only, indent=indent)
    path.write_bytes(b"\xef\xbb\xbf" * mark + text.encode(errors="surrogatepass") + b"\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_index, "_CHUNK", chunk)
        extents = index_elements(path)
    assert [read_record(path, extents, index) for index in range(len(extents.starts))] == found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([b"", b" ", b"\t\r", b"1", b'{"a": 1}', b" " * 20]), max_size=12), st.integers(1, 40))
def test_every_line_that_is_not_blank_is_found(tmp_path_factory, lines, chunk):
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    path.write_bytes(b"\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_index, "_CHUNK", chunk)
        extents = index_lines(path)
    numbers = np.arange(len(extents.starts)) if extents.numbers is None else extents.numbers
    expected = [number for number, line in enumerate(lines) if line.strip() or len(line) >= 16]
    assert numbers.tolist() == expected
    assert extents.checksums.tolist() == [
        zlib.crc32(path.read_bytes()[start:end]) for start, end in zip(extents.starts, extents.ends, strict=True)
    ]
    actual = [path.read_bytes()[start:end] for start, end in zip(extents.starts, extents.ends, strict=True)]
    assert [line.strip() for line in actual] == [lines[number].strip() for number in expected]
