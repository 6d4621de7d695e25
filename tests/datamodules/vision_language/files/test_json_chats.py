"""Tests chats with images in JSON and JSON lines: formats, invalid records, and the index of a list."""

import json
import os
import pickle
import shutil
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.vision_language.files import json_index
from datamodules.vision_language.files.json_chats import JsonChats
from datamodules.vision_language.files.json_index import index_elements, index_lines, read_record
from datamodules.vision_language.source_config import SourceSettings
from engine.data.errors import BadSampleError, FileChangedError
from tests.support.data_files.vision_language_files import Sample, colored, png, write_jsonl, write_llava

SAMPLES = [
    colored(0),
    Sample([("system", "Sei kurz."), ("user", 'Wie? [,]{"}\\ é 图'), ("assistant", "Schön.")], []),
    Sample(
        [("user", "<image> or <image>?"), ("assistant", "Red."), ("user", "Sure?"), ("assistant", "Yes.")],
        [png((255, 0, 0)), png((0, 255, 0))],
    ),
    Sample([("user", "Say hello.")], []),
]


def as_sample(chat):
    return Sample([(message["role"], message["content"]) for message in chat.messages], chat.images)


@pytest.mark.parametrize(("write", "lines"), [(write_llava, False), (write_jsonl, True)])
@pytest.mark.parametrize("chunk", [7, 4 * 2**20])
def test_written_chats_are_read_back(tmp_path, monkeypatch, write, lines, chunk):
    monkeypatch.setattr(json_index, "_CHUNK", chunk)
    chats = JsonChats(write(tmp_path / "chats", SAMPLES), lines)
    assert len(chats) == len(SAMPLES)
    assert chats.blocks is None
    for copy in (chats, pickle.loads(pickle.dumps(chats))):
        assert [as_sample(copy.read(row)) for row in (2, 0, 3, 1)] == [SAMPLES[row] for row in (2, 0, 3, 1)]
    for row in range(len(chats)):
        expected = f"line {row + 1}" if lines else f"record {row}"
        assert chats.name(row) == chats.read(row).name == f"{tmp_path / 'chats'}, {expected}"


def test_images_are_read_from_the_stated_folder(tmp_path):
    write_llava(tmp_path / "chats.json", SAMPLES, tmp_path / "elsewhere")
    assert JsonChats(tmp_path / "chats.json", False, tmp_path / "elsewhere").read(0).images == SAMPLES[0].images
    with pytest.raises(BadSampleError, match="record 0: the image .*000000-0.png cannot be read: No such file"):
        JsonChats(tmp_path / "chats.json", False).read(0)
    with pytest.raises(NotADirectoryError, match="absent"):
        JsonChats(tmp_path / "chats.json", False, tmp_path / "absent")


@pytest.mark.parametrize(
    "turns",
    [
        {"texts": [{"user": "a", "assistant": "b"}, {"user": "c", "assistant": "d"}]},
        {
            "messages": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
            + [{"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]
        },
        {
            "conversations": [
                {"role": role, "content": [{"type": "text", "text": text}]}
                for role, text in zip(["user", "assistant"] * 2, "abcd", strict=True)
            ]
        },
    ],
)
def test_all_forms_of_turns_are_read_alike(tmp_path, turns):
    (tmp_path / "chats.jsonl").write_text(json.dumps(turns))
    turns = [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")]
    assert as_sample(JsonChats(tmp_path / "chats.jsonl", True).read(0)) == Sample(turns, [])


def test_a_marker_is_put_where_there_is_none(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(png((1, 2, 3)))
    ask = [{"role": "system", "content": "s"}, {"role": "user", "content": "Why?"}]
    in_parts = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Why?"}]}]
    lines = [
        {"messages": ask, "images": ["a.png", "b.png"]},
        {"messages": ask, "images": "a.png"},
        {"messages": ask, "image": [{"path": "b.png"}]},
        {"messages": in_parts, "image": "a.png"},
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, lines)))
    chats = JsonChats(tmp_path / "chats.jsonl", True)
    texts = [chats.read(row).messages[-1]["content"] for row in range(4)]
    assert texts == ["<image>\n<image>\nWhy?", *["<image>\nWhy?"] * 3]
    assert [len(chats.read(row).images) for row in range(4)] == [2, 1, 1, 1]


NAMED = {"type": "image", "image": "a.png"}


def part_record(*parts, **fields):
    return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "Why?"}]}], **fields}


@pytest.mark.parametrize(
    "record",
    [
        part_record(NAMED, {"type": "image_url", "image_url": {"url": "b.png"}}),
        part_record(NAMED, {"type": "image", "path": "b.png"}, images=["a.png", "b.png"]),
        part_record(NAMED, {"type": "image"}, images=["a.png", "b.png"]),
    ],
)
def test_image_parts_may_name_their_images(tmp_path, record):
    images = [png((1, 2, 3)), png((4, 5, 6))]
    for name, data in zip(("a.png", "b.png"), images, strict=True):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "chats.jsonl").write_text(json.dumps(record))
    chat = JsonChats(tmp_path / "chats.jsonl", True).read(0)
    assert chat.images == images
    assert chat.messages[0]["content"] == "<image>\n<image>\nWhy?"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (part_record(NAMED, image="b.png"), 'image part 1 names "a.png", but image 1 of the record is "b.png"'),
        (part_record(NAMED, {"type": "image"}), "image part 2 names no image, but other parts do"),
        (part_record({"type": "image", "image": 7}), "the image must be a path in .*, found 7"),
    ],
)
def test_image_parts_that_contradict_are_refused(tmp_path, record, message):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(png((1, 2, 3)))
    (tmp_path / "chats.jsonl").write_text(json.dumps(record))
    with pytest.raises(BadSampleError, match=message):
        JsonChats(tmp_path / "chats.jsonl", True).read(0)


@pytest.mark.parametrize("nothing", [None, []])
def test_a_field_without_a_value_gives_way_to_the_next(tmp_path, nothing):
    (tmp_path / "a.png").write_bytes(png((1, 2, 3)))
    ask = [{"role": "user", "content": "Why?"}]
    fields = {"messages": nothing, "conversations": ask, "images": nothing, "image": "a.png"}
    (tmp_path / "chats.jsonl").write_text(json.dumps(fields) + "\n" + json.dumps({**fields, "image": nothing}))
    chats = JsonChats(tmp_path / "chats.jsonl", True)
    assert chats.read(0).images == [png((1, 2, 3))]
    assert chats.read(0).messages[0]["content"] == "<image>\nWhy?"
    assert chats.read(1).images == []
    assert chats.read(1).messages == ask


@pytest.mark.parametrize(
    ("field", "is_named"), [("img", True), ("Image", True), ("image_id", True), ("width", False), ("id", False)]
)
def test_a_misspelt_field_of_images_is_named_once(tmp_path, messages, field, is_named):
    """Its chats would train without their images."""
    text = {"messages": [{"role": "user", "content": "a"}], "id": 1}
    records = [text, {**text, field: "a.png"}, {**text, field: "b.png"}]
    (tmp_path / "chats.jsonl").write_text("{\n" + "".join(json.dumps(record) + "\n" for record in records))
    JsonChats(tmp_path / "chats.jsonl", True)
    expected = f"{tmp_path / 'chats.jsonl'}, line 3: the field {field} is not read; did you mean image?"
    assert messages == [expected] * is_named


USER = {"role": "user", "content": "<image>"}


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        ('{"messages": [', "not JSON"),
        ('{"messages": "\udcff"}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "expected an object with one of messages, conversations, texts; found list"),
        ({"chat": [], "id": 1}, "found the keys chat, id"),
        ({"messages": []}, "a list of one turn or more, found \\[\\]"),
        ({"messages": "hello"}, "the chat is not JSON"),
        ({"messages": None}, "one turn or more, found null"),
        ({"messages": [{"role": "robot", "content": ""}]}, 'turn 1: expected .* found {"role": "robot"'),
        ({"messages": [{"from": "human", "content": "a"}]}, "turn 1: the content must be a text, found null"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "turn 1: expected"),
        ({"messages": ["hello"]}, "turn 1: expected"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "a part must be a text or an image"),
        ({"texts": [{"user": None, "assistant": None}]}, "expected a text of the user, the assistant"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "a chat must begin with"),
        ({"messages": [USER, {"role": "assistant", "content": "<image>"}]}, "message 2 .assistant. contains <image>"),
        ({"messages": [USER]}, "found <image> 1 times in the user's text, expected 0"),
        ({"messages": [USER], "image": ["a.png"] * 2}, "1 times .* expected 2 times"),
        ({"messages": [{"role": "system", "content": "a"}], "image": "a.png"}, "0 times .* expected 1 times"),
        ({"messages": [USER], "image": "../a.png"}, "inside .*, without .."),
        ({"messages": [USER], "image": "b/../../a.png"}, "inside .*, without .."),
        ({"messages": [USER], "image": "b\\..\\..\\a.png"}, "inside .*, without .."),
        ({"messages": [USER], "image": "/etc/passwd"}, "inside .*, without .."),
        ({"messages": [USER], "image": "C:\\a.png"}, "inside .*, without .."),
        ({"messages": [USER], "image": "\\\\host\\a.png"}, "inside .*, without .."),
        ({"messages": [USER], "image": "a\0.png"}, "inside .*, without .."),
        ({"messages": [USER], "image": 7}, "must be a path in .*, found 7"),
        ({"messages": [USER], "image": ""}, "must be a path in .*, found ''"),
        ({"messages": [USER], "image": "absent.png"}, "absent.png cannot be read: No such file"),
        ({"messages": [USER], "image": "a.png/b.png"}, "b.png cannot be read: Not a directory"),
        ({"messages": [USER], "image": "."}, "is not a file"),
        ({"messages": [USER], "image": "a" * 5000}, "cannot be read: File name too long"),
        ({"messages": [USER], "image": "\ud800.png"}, "half of a surrogate pair"),
        ({"messages": [{"role": "user", "content": "a\ud83d!"}]}, r"found '.ud83d', half of a surrogate pair"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "\udc00"}]}]}, "half of a surrogate pair"),
    ],
)
def test_a_line_that_is_no_chat_is_named(tmp_path, line, messages):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.png").write_bytes(png((1, 2, 3)))
    (tmp_path / "a.png").write_bytes(png((1, 2, 3)))
    line = line if isinstance(line, str) else json.dumps(line)
    good = json.dumps({"messages": [USER], "image": "a.png"})
    (tmp_path / "chats.jsonl").write_bytes(f"{good}\n\n{line}\n{good}".encode(errors="surrogateescape"))
    chats = JsonChats(tmp_path / "chats.jsonl", True, tmp_path / "images")
    assert len(chats) == 3
    assert chats.read(0).images == chats.read(2).images
    with pytest.raises(BadSampleError, match=f"chats.jsonl, line 3: (?s:.*){messages}"):
        chats.read(1)


def test_a_link_in_the_folder_is_followed(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "large.png").write_bytes(png((1, 2, 3)))
    (tmp_path / "images/a.png").symlink_to(tmp_path / "large.png")
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": [USER], "image": "a.png"}))
    assert JsonChats(tmp_path / "chats.jsonl", True, tmp_path / "images").read(0).images == [png((1, 2, 3))]


def test_a_folder_that_is_gone_is_no_fault_of_a_row(tmp_path):
    chats = JsonChats(write_llava(tmp_path / "chats.json", SAMPLES, tmp_path / "a"), False, tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(NotADirectoryError):
        chats.read(0)


def test_a_file_that_became_shorter_is_no_fault_of_a_row(tmp_path):
    chats = JsonChats(write_llava(tmp_path / "chats.json", SAMPLES), False)
    (tmp_path / "chats.json").write_text("[]")
    with pytest.raises(FileChangedError, match="chats.json: the file was changed during the run"):
        chats.read(3)


@pytest.mark.parametrize(("write", "lines"), [(write_llava, False), (write_jsonl, True)])
@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_file_that_was_replaced_ends_the_run_and_is_no_bad_sample(tmp_path, write, lines, is_renamed):
    path = write(tmp_path / "chats", SAMPLES)
    chats = JsonChats(path, lines)
    other = write(tmp_path / "other", SAMPLES[::-1])
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
    path = write(tmp_path / "chats", SAMPLES)
    chats = JsonChats(path, lines)
    path.touch()
    assert as_sample(chats.read(2)) == SAMPLES[2]
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").rename(path)
    assert as_sample(chats.read(1)) == SAMPLES[1]


def test_lines_may_be_appended_and_an_indexed_line_may_not_change(tmp_path):
    path = write_jsonl(tmp_path / "chats.jsonl", SAMPLES)
    chats = JsonChats(path, True)
    with path.open("a") as file:
        file.write('{"messages": []}\n')
    assert [as_sample(chats.read(row)) for row in range(len(SAMPLES))] == SAMPLES
    assert len(chats) == len(SAMPLES)
    # Records of the same length in another order, in a file that has grown already.
    first, second, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([second, first, *others]))
    for row in (0, 1):
        with pytest.raises(FileChangedError, match="changed during the run"):
            chats.read(row)
    assert as_sample(chats.read(2)) == SAMPLES[2]


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


@pytest.mark.parametrize(
    ("data", "lines", "messages"),
    [
        (
            b'[\n  {"messages": []},\n  {"messages": []}\n]\n',
            True,
            "found a JSON list, expected an object per line; set",
        ),
        (b'[{"messages": []}, {"messages": []}]', True, "found a JSON list, expected an object per line; set"),
        (b"question,image\nwhy?,a.png\n", True, "found 'question,image', expected an object per line"),
        (b'{"messages": []}\n{"messages": []}\n', False, "expected a list of records, which begins with"),
        (b"question,image\nwhy?,a.png\n", False, "expected a list of records, which begins with"),
        (b"\x1f\x8b\x08" + bytes(20), True, "found gzip, expected an object per line"),
        (b"\x1f\x8b\x08" + bytes(20), False, "found gzip, expected a list of records"),
        ('[{"messages": []}]'.encode("utf-16"), False, "found UTF-16"),
    ],
)
def test_a_file_of_another_form_is_refused_when_it_is_opened(tmp_path, data, lines, messages):
    (tmp_path / "chats").write_bytes(data)
    with pytest.raises(ValueError, match=f"chats: {messages}"):
        JsonChats(tmp_path / "chats", lines)


def test_one_bad_line_at_the_beginning_is_one_bad_sample(tmp_path):
    good = json.dumps({"messages": [{"role": "user", "content": "Why?"}]})
    for bad in ('[{"role": "user", "content": "Why?"}]', "7", '{"messages": ['):
        (tmp_path / "chats").write_text(f"{bad}\n{good}\n{good}\n")
        chats = JsonChats(tmp_path / "chats", True)
        with pytest.raises(BadSampleError, match="chats, line 1: "):
            chats.read(0)
        assert len(chats) == 3
        assert chats.read(2)


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        ('{"messages": [], "messages": [1]}', r"found the key 'messages' twice, with \[\] and \[1\]"),
        ('{"messages": [{"role": "user", "content": NaN}]}', "found NaN"),
        ('{"messages": ' + "[" * 500 + "]" * 500 + "}", "more than 64 levels"),
        (
            '{"messages": [{"role": "user", "content": ""}], "image": "a\\nb\\nc\\nd.png"}',
            "the image '.*cannot be read",
        ),
        ('{"' + "x" * 10**5 + '": 1}', "found the keys xxx"),
    ],
)
def test_a_bad_sample_has_one_short_message(tmp_path, line, messages):
    (tmp_path / "chats").write_text(line)
    with pytest.raises(BadSampleError, match=f"chats, line 1: .*{messages}") as error:
        JsonChats(tmp_path / "chats", True).read(0)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.tsv"])
def test_a_source_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name}: found a pipe or a device, expected a file"):
        SourceSettings(str(tmp_path / name)).open(tmp_path)


@pytest.mark.parametrize(("ends", "is_read"), [("\n", True), ("\r\n", True), ("\r", False), ("\r \r", False)])
def test_lines_that_end_otherwise_are_no_single_bad_sample(tmp_path, ends, is_read):
    path = tmp_path / "a.jsonl"
    path.write_bytes(ends.join([json.dumps({"messages": [USER]})] * 3).encode())
    if is_read:
        assert len(JsonChats(path, True)) == 3
        return
    with pytest.raises(ValueError, match="a.jsonl: found lines that end with a carriage return alone, expected") as end:
        JsonChats(path, True)
    assert not isinstance(end.value, BadSampleError)
