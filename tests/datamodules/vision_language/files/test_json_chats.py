"""Chats with images in JSON and JSON lines are read in every published form of turns and of images."""

import json
import pickle

import pytest

from datamodules.vision_language.files import json_index
from datamodules.vision_language.files.json_chats import JsonChats
from engine.data.errors import BadSampleError
from tests.support.data_files.vision_language_files import (
    VARIED_SAMPLES,
    Sample,
    as_sample,
    png,
    write_jsonl,
    write_llava,
)


@pytest.mark.parametrize(("write", "lines"), [(write_llava, False), (write_jsonl, True)])
@pytest.mark.parametrize("chunk", [7, 4 * 2**20])
def test_written_chats_are_read_back(tmp_path, monkeypatch, write, lines, chunk):
    monkeypatch.setattr(json_index, "_CHUNK", chunk)
    chats = JsonChats(write(tmp_path / "chats", VARIED_SAMPLES), lines)
    assert len(chats) == len(VARIED_SAMPLES)
    assert chats.blocks is None
    for copy in (chats, pickle.loads(pickle.dumps(chats))):
        assert [as_sample(copy.read(row)) for row in (2, 0, 3, 1)] == [VARIED_SAMPLES[row] for row in (2, 0, 3, 1)]
    for row in range(len(chats)):
        expected = f"line {row + 1}" if lines else f"record {row}"
        assert chats.name(row) == chats.read(row).name == f"{tmp_path / 'chats'}, {expected}"


def test_images_are_read_from_the_stated_folder(tmp_path):
    write_llava(tmp_path / "chats.json", VARIED_SAMPLES, tmp_path / "elsewhere")
    assert JsonChats(tmp_path / "chats.json", False, tmp_path / "elsewhere").read(0).images == VARIED_SAMPLES[0].images
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


def test_a_link_in_the_folder_is_followed(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "large.png").write_bytes(png((1, 2, 3)))
    (tmp_path / "images/a.png").symlink_to(tmp_path / "large.png")
    (tmp_path / "chats.jsonl").write_text(
        json.dumps({"messages": [{"role": "user", "content": "<image>"}], "image": "a.png"})
    )
    assert JsonChats(tmp_path / "chats.jsonl", True, tmp_path / "images").read(0).images == [png((1, 2, 3))]
