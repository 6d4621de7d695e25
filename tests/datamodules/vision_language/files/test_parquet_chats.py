"""Tests chats with images in Parquet: they are read back, and bad rows are named."""

import json
import pickle

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from datamodules.vision_language.files.parquet_chats import ParquetChats
from engine.data.errors import BadSampleError
from tests.support.data_files.parquet_chat_files import SEVERAL, TEXT, plain, write_table
from tests.support.data_files.vision_language_files import (
    as_sample,
    colored,
    png,
    write_finevision_parquet,
    write_minimind_parquet,
)


@pytest.mark.parametrize("write", [write_minimind_parquet, write_finevision_parquet])
@pytest.mark.parametrize("others", [[], [SEVERAL]], ids=["one image", "a list of images"])
def test_written_chats_are_read_back(tmp_path, write, others):
    samples = [*map(colored, range(7)), TEXT, *others]
    path = write(tmp_path / "train.parquet", samples, row_group_size=3)
    chats = ParquetChats(path, tmp_path)
    assert len(chats) == len(samples)
    assert chats.blocks.starts.tolist() == [0, 3, 6]
    for copy in (chats, pickle.loads(pickle.dumps(chats))):
        for row in np.random.default_rng(0).permutation(len(samples)).tolist():
            assert as_sample(copy.read(row)) == plain(samples[row])
            assert copy.read(row).name == copy.name(row) == f"{path}, row {row + 1}"
    with pytest.raises(IndexError):
        chats.read(len(samples))


def test_images_by_path_and_images_that_are_lists(tmp_path):
    (tmp_path / "red.png").write_bytes(png((255, 0, 0)))
    chat = json.dumps([{"role": "user", "content": "Which?"}])
    for images in (["red.png"], [{"bytes": None, "path": "red.png"}], ["red.png"]):
        path = write_table(tmp_path / "a.parquet", messages=[chat], images=[images])
        assert ParquetChats(path, tmp_path).read(0).images == [png((255, 0, 0))]
    path = write_table(tmp_path / "a.parquet", messages=[chat] * 3, image=["../red.png", "absent.png", None])
    chats = ParquetChats(path, tmp_path)
    for row, output in enumerate(["without ..", "No such file"]):
        with pytest.raises(BadSampleError, match=f"a.parquet, row {row + 1}: .*{output}"):
            chats.read(row)
    assert chats.read(2).images == []


def test_a_tiny_black_image_is_none_only_where_no_marker_asks_for_it(tmp_path):
    black, large = png((0, 0, 0)), png((0, 0, 0), size=16)
    with_image, plain = ([{"role": "user", "content": text}] for text in ("<image>", "Why?"))
    rows = [(plain, black), (with_image, black), (plain, large), (plain, png((0, 0, 9))), (plain, b"no image")]
    chats = [json.dumps(turns) for turns, _ in rows]
    path = write_table(tmp_path / "a.parquet", conversations=chats, image_bytes=[image for _, image in rows])
    read = [ParquetChats(path, tmp_path).read(row) for row in range(len(rows))]
    assert [len(chat.images) for chat in read] == [0, 1, 1, 1, 1]
    assert [chat.messages[0]["content"].count("<image>") for chat in read] == [0, 1, 1, 1, 1]


def test_image_parts_of_a_row_without_images_are_read(tmp_path):
    (tmp_path / "a.png").write_bytes(png((255, 0, 0)))
    parts = [{"type": "image", "image": "a.png"}, {"type": "text", "text": "Why?"}]
    turns = [{"role": "user", "content": parts}, {"role": "assistant", "content": "So."}]
    table = pyarrow.table(
        {"messages": [json.dumps(turns)], "images": pyarrow.array([None], pyarrow.list_(pyarrow.string()))}
    )
    pyarrow.parquet.write_table(table, tmp_path / "chats.parquet")
    chat = ParquetChats(tmp_path / "chats.parquet", tmp_path / "prepared", tmp_path).read(0)
    assert chat.images == [png((255, 0, 0))]
    assert chat.messages[0]["content"] == "<image>\nWhy?"


def test_rows_that_are_no_chats_are_named(tmp_path):
    rows = ["[", None, "[]", json.dumps([{"role": "user", "content": "<image><image>"}]), '[{"role": "user"}]']
    path = write_table(tmp_path / "a.parquet", conversations=rows, image_bytes=[png((1, 2, 3))] * 5)
    chats = ParquetChats(path, tmp_path)
    output = [
        "the chat is not JSON",
        "found null",
        "found \\[\\]",
        "found <image> 2 times",
        "the content must be a text",
    ]
    for row, what in enumerate(output):
        with pytest.raises(BadSampleError, match=f"a.parquet, row {row + 1}: .*{what}"):
            chats.read(row)
    path = write_table(tmp_path / "b.parquet", messages=['[{"role": "user", "content": "a"}]'], images=[[b""]])
    with pytest.raises(BadSampleError, match="b.parquet, row 1: an image in the column images is empty"):
        ParquetChats(path, tmp_path).read(0)


def test_null_rows_and_other_types_are_bad_samples(tmp_path):
    turn = {"role": "user", "content": "Why?"}
    path = write_table(
        tmp_path / "a.parquet",
        conversations=[json.dumps([turn]), None, "null", json.dumps({"role": "user"}), json.dumps([turn])],
        images=[[], [], [], [], [{"bytes": None}]],
    )
    chats = ParquetChats(path, tmp_path)
    assert chats.read(0).images == []
    for row, output in ((1, "found null"), (2, "found null"), (3, "must be a list"), (4, "is empty")):
        with pytest.raises(BadSampleError, match=f"a.parquet, row {row + 1}: .*{output}"):
            chats.read(row)


def test_a_turn_without_a_text_is_not_dropped(tmp_path):
    path = tmp_path / "a.parquet"
    turns = [{"user": "What?", "assistant": None}, {"user": None, "assistant": None}]
    pyarrow.parquet.write_table(pyarrow.table({"texts": [turns]}), path)
    with pytest.raises(BadSampleError, match=r"row 1: turn 2: found .*null.*, expected a text of the user"):
        ParquetChats(path, tmp_path).read(0)


def test_a_text_that_is_not_utf_8_is_named(tmp_path):
    broken = pyarrow.array([b"[]", b'[{"role": "user", "content": "\xff"}]']).view(pyarrow.string())
    chats = ParquetChats(write_table(tmp_path / "a.parquet", messages=broken), tmp_path)
    with pytest.raises(BadSampleError, match="a.parquet, row 2: a text is not UTF-8"):
        chats.read(1)
