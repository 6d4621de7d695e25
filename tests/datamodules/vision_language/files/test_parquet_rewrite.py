"""Tests that files with large row groups are rewritten once, and that no other file is taken for them."""

import json
import multiprocessing
import os
import shutil

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from datamodules.vision_language.files import parquet_rewrite, parquet_row_groups
from datamodules.vision_language.files.parquet_chats import ParquetChats, chat_columns
from datamodules.vision_language.files.parquet_row_groups import read_footer
from datamodules.vision_language.files.parquet_rows import prepare_rows
from engine.io.atomic_file import temp_path
from tests.support.data_files.parquet_chat_files import noise, plain, write_table
from tests.support.data_files.vision_language_files import (
    Sample,
    as_sample,
    colored,
    encoded,
    png,
    write_minimind_parquet,
)


def test_a_file_that_is_written_again_keeps_the_column_that_fills_the_gaps(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 3)
    chat, images = json.dumps([{"role": "user", "content": "Which?"}]), [png((9, row, 0)) for row in range(6)]
    first = [None if row % 2 else image for row, image in enumerate(images)]
    path = write_table(tmp_path / "a.parquet", messages=[chat] * 6, images=first, image=images)
    prepare_rows(path, tmp_path, chat_columns)
    chats = ParquetChats(path, tmp_path)
    assert [chats.read(row).images for row in range(6)] == [[image] for image in images]


def test_a_file_with_large_row_groups_is_written_again_once(tmp_path, large):
    path, samples = large
    root = tmp_path / "root"
    output = "large.parquet: row groups of up to 77 rows .*train.py prepare"
    with pytest.raises(ValueError, match=output) as refused:
        ParquetChats(path, root)
    (again,) = prepare_rows(path, root, chat_columns)
    assert str(again) in str(refused.value)
    assert prepare_rows(path, root, chat_columns) == []
    chats = ParquetChats(path, root)
    assert [as_sample(chats.read(row)) for row in range(77)] == [plain(sample) for sample in samples]
    assert chats.name(76) == f"{path}, row 77"
    assert np.diff(chats.blocks.starts, append=77).max() <= 64
    assert len(chats.blocks.starts) > 1
    assert not list(root.rglob("*.new"))


def test_rewritten_files_below_the_folder_are_not_read_again(tmp_path, large, caplog):
    """The default of `root` lies in data/, and so may the data."""
    _, samples = large
    assert len(prepare_rows(tmp_path, tmp_path, chat_columns)) == 1
    assert prepare_rows(tmp_path, tmp_path, chat_columns) == []
    assert len(ParquetChats(tmp_path, tmp_path)) == len(samples)
    assert len(ParquetChats(tmp_path / "**/*.parquet", tmp_path)) == len(samples)
    assert "not read" not in caplog.text


def test_rows_that_are_large_are_few_in_a_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 30)
    monkeypatch.setattr(parquet_rewrite, "GROUP_SIZE", 10_000)
    large = Sample(colored(0).turns, [encoded(noise())])  # 3 kB
    (again,) = prepare_rows(
        write_minimind_parquet(tmp_path / "a.parquet", [large] * 40), tmp_path / "root", chat_columns
    )
    footer = read_footer(again)
    assert max(footer.row_group(group).num_rows for group in range(footer.num_row_groups)) in range(3, 7)
    assert [as_sample(ParquetChats(again, tmp_path).read(row)) for row in (0, 39)] == [plain(large)] * 2


def test_another_file_of_the_same_name_is_not_taken_for_the_first(tmp_path, large):
    path, samples = large
    prepare_rows(path, tmp_path, chat_columns)
    write_minimind_parquet(path, samples[::-1])
    with pytest.raises(ValueError, match="train.py prepare"):
        ParquetChats(path, tmp_path)
    assert len(prepare_rows(path, tmp_path, chat_columns)) == 1
    assert as_sample(ParquetChats(path, tmp_path).read(76)) == plain(samples[0])


def test_files_of_one_name_and_footer_are_not_taken_for_each_other(tmp_path, large, monkeypatch):
    """Images of one size, as a camera writes them, give files whose sizes and statistics are the same."""
    paths = []
    for folder, digit in (("one", "1"), ("two", "2")):
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": digit}]
        rows = {"conversations": [json.dumps(turns)] * 40}
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "a.parquet")
        pyarrow.parquet.write_table(pyarrow.table(rows), paths[-1], write_statistics=False, use_dictionary=False)
        os.utime(paths[-1], ns=(1, 1))
    identity = parquet_row_groups.file_identity
    assert identity(paths[0]) == identity(paths[1]), "the footers are equal"
    prepare_rows(paths[0], tmp_path / "root", chat_columns)
    with pytest.raises(ValueError, match="train.py prepare"):
        ParquetChats(paths[1], tmp_path / "root")
    shutil.copy2(paths[1], paths[0])
    with pytest.raises(ValueError, match="train.py prepare"):
        ParquetChats(paths[0], tmp_path / "root")
    prepare_rows(paths[1], tmp_path / "root", chat_columns)
    assert ParquetChats(paths[1], tmp_path / "root").read(0).messages[1]["content"] == "2"


def test_a_flipped_bit_in_a_rewritten_file_is_named(tmp_path, large):
    path, _ = large
    (again,) = prepare_rows(path, tmp_path, chat_columns)
    content = bytearray(again.read_bytes())
    column = read_footer(again).row_group(0).column(0)
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    again.write_bytes(content)
    with pytest.raises(OSError, match=rf"{again.name}, row group 0: is corrupt: .*CRC checksum.*; delete the file"):
        ParquetChats(path, tmp_path).read(0)


def test_files_of_an_interrupted_writer_are_replaced(tmp_path, large):
    path, samples = large
    folder = tmp_path / "root/parquet"
    writer = multiprocessing.get_context("spawn").Process(target=str)
    writer.start()
    writer.join()
    (name,) = prepare_rows(path, tmp_path / "root", chat_columns)
    left = temp_path(name)
    left = folder / left.name.replace(f".{os.getpid()}.", f".{writer.pid}.")
    name.rename(left)
    assert prepare_rows(path, tmp_path / "root", chat_columns) == [name]
    assert not left.exists()
    assert len(ParquetChats(path, tmp_path / "root")) == len(samples)


def test_a_disk_that_is_full_leaves_nothing(tmp_path, large, monkeypatch):
    path, _ = large

    def full(source, target, columns):
        target.write(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet_rewrite, "_copy", full)
    with pytest.raises(OSError, match="No space left"):
        prepare_rows(path, tmp_path / "root", chat_columns)
    left = {file.name for file in (tmp_path / "root/parquet").iterdir() if file.suffix != ".lock"}
    assert left == {".gitignore"}


def _prepare(path, root, barrier, done):
    parquet_rewrite.MAX_ROWS, parquet_rewrite.GROUP_SIZE = 30, 2000
    barrier.wait(60)
    done.put(len(prepare_rows(path, root, chat_columns)))


@pytest.mark.slow
def test_one_of_several_processes_rewrites_the_file(tmp_path, large):
    path, samples = large
    processes = multiprocessing.get_context("spawn")
    barrier, done = processes.Barrier(3), processes.Queue()
    team = [processes.Process(target=_prepare, args=(path, tmp_path, barrier, done)) for _ in range(3)]
    for process in team:
        process.start()
    assert sorted(done.get(timeout=90) for _ in team) == [0, 0, 1]
    for process in team:
        process.join(30)
    assert len(ParquetChats(path, tmp_path)) == len(samples)
