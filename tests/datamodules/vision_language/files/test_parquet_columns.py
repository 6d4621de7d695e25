"""Tests which columns of Parquet files are read, and the errors of columns that cannot be used."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from datamodules.vision_language.files.parquet_chats import ParquetChats
from datamodules.vision_language.files.parquet_columns import find_columns
from tests.support.data_files.parquet_chat_files import CHAT, write_parts, write_table
from tests.support.data_files.vision_language_files import (
    as_sample,
    colored,
    png,
    write_finevision_parquet,
    write_minimind_parquet,
)


def test_columns_that_are_not_needed_are_not_read(tmp_path, tables):
    path = write_table(
        tmp_path / "a.parquet", texts=[[{"user": "a", "assistant": "b"}]] * 2, rest=["x" * 1_000_000, "y" * 1_000_000]
    )
    assert len(as_sample(ParquetChats(path, tmp_path).read(1)).turns) == 2
    assert 0 < tables.used < 1000


def test_a_column_that_is_null_in_a_row_gives_way_to_the_next(tmp_path):
    red, blue = png((255, 0, 0)), png((0, 0, 255))
    chat = json.dumps([{"role": "user", "content": "Which?"}])
    columns = {
        "messages": [None, chat, None, chat],
        "conversations": [chat, None, chat, None],
        "images": pyarrow.array([None, [red], [], [red, blue]], pyarrow.list_(pyarrow.binary())),
        "image": [blue, blue, blue, None],
    }
    expected = [[blue], [red], [blue], [red, blue]]
    path = write_table(tmp_path / "a.parquet", **columns)
    chats = ParquetChats(path, tmp_path)
    assert [chats.read(row).images for row in range(4)] == expected
    assert [chats.read(row).messages[0]["content"].count("<image>") for row in range(4)] == [1, 1, 1, 2]
    columns["images"] = pyarrow.nulls(4)
    chats = ParquetChats(write_table(tmp_path / "b.parquet", **columns), tmp_path)
    assert [chats.read(row).images for row in range(4)] == [[blue]] * 3 + [[]]


def test_of_several_files_each_may_have_nulls(tmp_path):
    """If several columns are filled, only the first is read."""
    chat, red, blue = json.dumps([{"role": "user", "content": "Which?"}]), png((255, 0, 0)), png((0, 0, 255))
    write_table(tmp_path / "a.parquet", messages=[chat], conversations=[chat], images=[red], image=[blue])
    assert find_columns([tmp_path / "a.parquet"]) == (["messages"], ["images"])
    images = pyarrow.array([None], pyarrow.binary())
    write_table(tmp_path / "b.parquet", messages=[chat], images=images, image=[blue])
    chats = ParquetChats(tmp_path, tmp_path)
    assert [chats.read(row).images for row in range(2)] == [[red], [blue]]
    write_table(tmp_path / "c.parquet", messages=[chat], images=[red])
    with pytest.raises(ValueError, match="c.parquet: lacks the column image that .*b.parquet has"):
        ParquetChats(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("columns", "messages"),
    [
        ({"text": ["a"], "image": [b"a"]}, "expected chats in one of the columns .*; found text, image"),
        ({"texts": [3]}, "the column texts must be JSON text or a list of turns, found int64"),
        ({"messages": [["a"]]}, "the column messages must be .* found list<"),
        ({"messages": ["[]"], "images": [[3]]}, "the column images must hold .*; found list<"),
        ({"messages": ["[]"], "images": [{"data": b"a"}]}, "the column images must hold .*; found struct<data"),
        ({"messages": pyarrow.array([3.5]).dictionary_encode()}, "the column messages must be .* found d"),
    ],
)
def test_columns_that_cannot_be_used_are_reported_when_the_file_is_opened(tmp_path, columns, messages):
    path = write_table(tmp_path / "a.parquet", **columns)
    with pytest.raises(ValueError, match=f"a.parquet: .*{messages}"):
        find_columns([path])


def test_files_that_do_not_fit_each_other_are_refused(tmp_path):
    write_minimind_parquet(tmp_path / "a.parquet", [colored(0)])
    write_finevision_parquet(tmp_path / "b.parquet", [colored(0)])
    with pytest.raises(ValueError, match="b.parquet: lacks the column conversations, image_bytes that .*a.parquet has"):
        ParquetChats(tmp_path, tmp_path)
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(ValueError, match="b.parquet: not a Parquet file, or a truncated one"):
        ParquetChats(tmp_path, tmp_path)


@pytest.mark.parametrize("kind", [pyarrow.null(), pyarrow.int64(), pyarrow.string()])
def test_a_part_without_rows_may_have_columns_of_any_type(tmp_path, kind):
    row = {"messages": [CHAT], "image": [png((255, 0, 0))]}
    folder = write_parts(tmp_path / "a", a=row, b=dict.fromkeys(row, pyarrow.array([], kind)), c=row)
    chats = ParquetChats(folder, tmp_path)
    assert [len(chats.read(row).images) for row in range(len(chats))] == [1, 1]


def test_a_column_of_nulls_and_two_columns_of_a_name_are_named(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"messages": pyarrow.nulls(2), "image": [b"j"] * 2}), path)
    with pytest.raises(ValueError, match=r"a.parquet: expected chats .*; found messages \(only nulls\), image"):
        ParquetChats(path, tmp_path)
    pyarrow.parquet.write_table(pyarrow.table([[CHAT], [CHAT]], names=["messages", "messages"]), path)
    with pytest.raises(ValueError, match="a.parquet: found the column messages twice, expected it once"):
        ParquetChats(path, tmp_path)


@pytest.mark.parametrize(
    ("column", "values", "is_named"),
    [
        ("imgs", ["a.jpg"], True),
        ("picture", [b"j"], True),
        ("photos", [[{"bytes": b"j", "path": None}]], True),
        ("source", ["web"], False),
        ("image", [png((255, 0, 0))], False),
    ],
)
def test_a_column_of_images_under_another_name_is_named(tmp_path, caplog, column, values, is_named):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"messages": [CHAT], column: values}), path)
    assert len(ParquetChats(path, tmp_path)) == 1
    assert (f"the column {column} is not read, so the chats have no images" in caplog.text) == is_named
