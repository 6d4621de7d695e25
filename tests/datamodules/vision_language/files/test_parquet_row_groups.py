"""Tests the cache of row groups, and corrupt or modified row groups and footers."""

import multiprocessing
import pickle
import shutil

import pyarrow
import pyarrow.parquet
import pytest

from datamodules.multimodal.parquet_footer_check import FooterCheck
from datamodules.vision_language.files import parquet_row_groups, parquet_rows
from datamodules.vision_language.files.lru_cache import SizedLRUCache
from datamodules.vision_language.files.parquet_chats import ParquetChats, chat_columns
from datamodules.vision_language.files.parquet_row_groups import read_footer
from datamodules.vision_language.files.parquet_rows import prepare_rows
from engine.data.errors import BadSampleError
from tests.conftest import REPOSITORY
from tests.support.data_files.parquet_chat_files import noise, plain
from tests.support.data_files.vision_language_files import Sample, as_sample, colored, encoded, write_minimind_parquet


def test_sizes_are_those_of_what_is_kept(tmp_path, tables):
    """With dictionary encoding a file with a repeated image is small, but its rows in memory are not."""
    sample = Sample(colored(0).turns, [encoded(noise())])
    path = write_minimind_parquet(tmp_path / "a.parquet", [sample] * 100, 50)
    chats = ParquetChats(path, tmp_path)
    footer = read_footer(path)
    assert sum(footer.row_group(0).column(leaf).total_uncompressed_size for leaf in range(2)) < tables.used / 10
    assert chats.blocks.sizes[0] == tables.used
    assert chats.blocks.window == parquet_rows.WINDOW


def _read(chats, row):
    return as_sample(chats.read(row))


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_other_processes_read_what_this_one_opened(tmp_path, start):
    path = write_minimind_parquet(tmp_path / "a.parquet", [colored(row) for row in range(20)], 5)
    chats = ParquetChats(path, tmp_path)
    assert _read(chats, 3) == plain(colored(3))
    with multiprocessing.get_context(start).Pool(2) as pool:
        found = pool.starmap_async(_read, [(chats, row) for row in range(20)]).get(timeout=90)
    assert found == [plain(colored(row)) for row in range(20)]


def test_the_rows_of_a_corrupt_row_group_are_bad_samples_and_the_others_are_read(tmp_path):
    path = write_minimind_parquet(tmp_path / "a.parquet", [colored(row) for row in range(40)], 20)
    data = bytearray(path.read_bytes())
    column = pyarrow.parquet.read_metadata(path).row_group(1).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 60] = b"\xff" * 60
    path.write_bytes(data)
    chats = ParquetChats(path, tmp_path)
    assert chats.read(3)
    with pytest.raises(BadSampleError, match="a.parquet, row group 1: is corrupt: .*thrift") as error:
        chats.read(23)
    assert "\n" not in str(error.value)


def test_a_file_that_was_written_to_since_it_was_opened_is_not_mixed_with_what_it_was(tmp_path):
    path = write_minimind_parquet(tmp_path / "a.parquet", [colored(row) for row in range(40)], 20)
    chats = pickle.loads(pickle.dumps(ParquetChats(path, tmp_path)))
    parquet_row_groups._files = SizedLRUCache(64, lambda file: 1)  # a loader that has not opened it yet
    write_minimind_parquet(path, [colored(row) for row in range(50)], 20)
    with pytest.raises(OSError, match="a.parquet, row group 1: cannot be read: the file was modified"):
        chats.read(23)
    assert as_sample(ParquetChats(path, tmp_path).read(23)) == plain(colored(23))


def test_a_footer_that_ends_the_process_that_reads_it_is_refused(tmp_path):
    """The child reads the file, because pyarrow itself would end this process."""
    case = REPOSITORY / "tests/fuzz/cases/chats_parquet/histogram-of-levels@finevision.parquet"
    corrupt, whole = tmp_path / "b.parquet", write_minimind_parquet(tmp_path / "a.parquet", [colored(0)])
    shutil.copy(case, corrupt)
    with FooterCheck() as footers:
        footers.check(whole)
        for _ in range(2):  # a new process after one that has ended
            with pytest.raises(ValueError, match=r"b\.parquet: .*corrupt.*Definition level histogram size mismatch"):
                footers.check(corrupt)
        footers.check(whole)
        (tmp_path / "c.parquet").write_text("no Parquet file")
        footers.check(tmp_path / "c.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet: .*corrupt"):
        prepare_rows(tmp_path, tmp_path, chat_columns)
