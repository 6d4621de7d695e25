"""A record or a file that holds no chat is refused by its line, with what was found and expected."""

import json
import os

import pytest

from datamodules.vision_language.files.json_chats import JsonChats
from datamodules.vision_language.source_config import SourceSettings
from engine.data.errors import BadSampleError
from tests.support.data_files.vision_language_files import VARIED_SAMPLES, png, write_llava

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


def test_a_folder_that_is_gone_is_no_fault_of_a_row(tmp_path):
    chats = JsonChats(write_llava(tmp_path / "chats.json", VARIED_SAMPLES, tmp_path / "a"), False, tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(NotADirectoryError):
        chats.read(0)


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
