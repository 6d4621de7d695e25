"""Tests which files of a folder or pattern are read, and in which order."""

import os

import pyarrow
import pyarrow.parquet
import pytest

from datamodules.vision_language.files.parquet_chats import ParquetChats
from datamodules.vision_language.files.parquet_rows import parquet_files
from tests.support.data_files.parquet_chat_files import CHAT, plain, write_parts
from tests.support.data_files.vision_language_files import as_sample, colored, write_minimind_parquet


def test_files_of_a_folder_and_of_a_pattern_are_one_source(tmp_path):
    (tmp_path / "b").mkdir()
    write_minimind_parquet(tmp_path / "b/train-1.parquet", [colored(2), colored(3)], 1)
    write_minimind_parquet(tmp_path / "a.parquet", [colored(0), colored(1)])
    empty = pyarrow.parquet.read_table(tmp_path / "a.parquet").slice(0, 0)
    pyarrow.parquet.write_table(empty, tmp_path / "b/train-0.parquet")
    (tmp_path / ".hidden.parquet").write_text("half of a file")
    (tmp_path / "README.md").write_text("none")
    chats = ParquetChats(tmp_path, tmp_path)
    assert [as_sample(chats.read(row)) for row in range(len(chats))] == [plain(colored(row)) for row in range(4)]
    assert chats.name(1) == f"{tmp_path / 'a.parquet'}, row 2"
    assert chats.name(3) == f"{tmp_path / 'b/train-1.parquet'}, row 2"
    assert chats.blocks.starts.tolist() == [0, 2, 3]
    assert len(ParquetChats(tmp_path / "b" / "train-*.parquet", tmp_path)) == 2
    assert len(parquet_files(str(tmp_path / "**/*-1.parquet"))) == 1
    for nothing in ("absent.parquet", "absent-*.parquet"):
        with pytest.raises(FileNotFoundError, match="absent"):
            ParquetChats(tmp_path / nothing, tmp_path)


def test_other_files_of_a_folder_are_named(tmp_path, caplog):
    write_minimind_parquet(tmp_path / "a.parquet", [colored(0)])
    for name in ("README.md", "b.parquet.gz", ".hidden", ".cache/c.metadata", ".cache/d.parquet", "images/1.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert len(ParquetChats(tmp_path, tmp_path / "root")) == 1
    assert "2 files are not read, as they do not end in .parquet: README.md, b.parquet.gz" in caplog.text


def test_a_folder_of_parts_may_have_the_suffix_of_a_file(tmp_path):
    write_parts(tmp_path / "table.parquet", a={"messages": [CHAT]}, b={"messages": [CHAT]})
    assert len(parquet_files(tmp_path)) == len(parquet_files(tmp_path / "*.parquet" / "*")) == 2
    with pytest.raises(FileNotFoundError, match="not a file, a folder or a matching pattern"):
        parquet_files(tmp_path / "*.parquet")


def test_a_linked_folder_of_parts_is_named_in_place_of_left_out(tmp_path):
    folder = write_parts(tmp_path / "a", a={"messages": [CHAT]})
    (folder / "more").symlink_to(write_parts(tmp_path / "b", b={"messages": [CHAT]}))
    with pytest.raises(FileNotFoundError, match="more: a link to a folder with .parquet files"):
        parquet_files(folder)


@pytest.mark.parametrize("pattern", ["", "*.parquet"])
def test_a_part_that_is_no_file_is_named_and_not_waited_for(tmp_path, pattern):
    folder = write_parts(tmp_path / "a", a={"messages": [CHAT]})
    (folder / "b.parquet").symlink_to(folder / "missing.parquet")
    with pytest.raises(FileNotFoundError, match="b.parquet: a link to a missing file; restore the file"):
        parquet_files(folder / pattern)
    (folder / "b.parquet").unlink()
    os.mkfifo(folder / "b.parquet")
    with pytest.raises(FileNotFoundError, match="b.parquet: not a regular file"):
        parquet_files(folder / pattern)
