"""Tests chats with images in Parquet: formats, row groups, null values, and corrupt files."""

import json
import multiprocessing
import os
import pickle
import shutil

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from datamodules.multimodal.parquet_footer_check import FooterCheck
from datamodules.vision_language.files import parquet_rewrite, parquet_row_groups, parquet_rows
from datamodules.vision_language.files.lru_cache import SizedLRUCache
from datamodules.vision_language.files.parquet_chats import ParquetChats, prepare_parquet
from datamodules.vision_language.files.parquet_columns import find_columns
from datamodules.vision_language.files.parquet_row_groups import read_footer
from datamodules.vision_language.files.parquet_rows import parquet_files
from engine.data.errors import BadSampleError
from engine.io.atomic_file import temp_path
from tests.conftest import REPOSITORY
from tests.support.data_files.vision_language_files import (
    Sample,
    coloured,
    encoded,
    png,
    write_finevision_parquet,
    write_minimind_parquet,
)

SEVERAL = Sample(
    [("user", "<image>\n<image>\nSame?"), ("assistant", "No."), ("user", "Sure?"), ("assistant", "Yes.")],
    [png((255, 0, 0)), png((0, 255, 0))],
)
TEXT = Sample([("user", "Sag hallo."), ("assistant", "Hallo.")], [])


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    """An empty memory, as of a process that has just begun."""
    tables = SizedLRUCache(parquet_row_groups.CACHE_BYTES, lambda table: table.nbytes)
    monkeypatch.setattr(parquet_row_groups, "tables", tables)
    monkeypatch.setattr(parquet_row_groups, "_files", SizedLRUCache(64, lambda file: 1))
    return tables


def as_sample(chat):
    return Sample([(message["role"], message["content"]) for message in chat.messages], list(chat.images))


def same(sample):
    return Sample(list(sample.turns), list(sample.images))


@pytest.mark.parametrize("write", [write_minimind_parquet, write_finevision_parquet])
@pytest.mark.parametrize("others", [[], [SEVERAL]], ids=["one image", "a list of images"])
def test_written_chats_are_read_back(tmp_path, write, others):
    samples = [*map(coloured, range(7)), TEXT, *others]
    path = write(tmp_path / "train.parquet", samples, row_group_size=3)
    chats = ParquetChats(path, tmp_path)
    assert len(chats) == len(samples)
    assert chats.blocks.starts.tolist() == [0, 3, 6]
    for copy in (chats, pickle.loads(pickle.dumps(chats))):
        for row in np.random.default_rng(0).permutation(len(samples)).tolist():
            assert as_sample(copy.read(row)) == same(samples[row])
            assert copy.read(row).name == copy.name(row) == f"{path}, row {row + 1}"
    with pytest.raises(IndexError):
        chats.read(len(samples))


def test_files_of_a_folder_and_of_a_pattern_are_one_source(tmp_path):
    (tmp_path / "b").mkdir()
    write_minimind_parquet(tmp_path / "b/train-1.parquet", [coloured(2), coloured(3)], 1)
    write_minimind_parquet(tmp_path / "a.parquet", [coloured(0), coloured(1)])
    empty = pyarrow.parquet.read_table(tmp_path / "a.parquet").slice(0, 0)
    pyarrow.parquet.write_table(empty, tmp_path / "b/train-0.parquet")
    (tmp_path / ".hidden.parquet").write_text("half of a file")
    (tmp_path / "README.md").write_text("none")
    chats = ParquetChats(tmp_path, tmp_path)
    assert [as_sample(chats.read(row)) for row in range(len(chats))] == [same(coloured(row)) for row in range(4)]
    assert chats.name(1) == f"{tmp_path / 'a.parquet'}, row 2"
    assert chats.name(3) == f"{tmp_path / 'b/train-1.parquet'}, row 2"
    assert chats.blocks.starts.tolist() == [0, 2, 3]
    assert len(ParquetChats(tmp_path / "b" / "train-*.parquet", tmp_path)) == 2
    assert len(parquet_files(str(tmp_path / "**/*-1.parquet"))) == 1
    for nothing in ("absent.parquet", "absent-*.parquet"):
        with pytest.raises(FileNotFoundError, match="absent"):
            ParquetChats(tmp_path / nothing, tmp_path)


def written(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_columns_that_are_not_needed_are_not_read(tmp_path, kept):
    path = written(
        tmp_path / "a.parquet", texts=[[{"user": "a", "assistant": "b"}]] * 2, rest=["x" * 1_000_000, "y" * 1_000_000]
    )
    assert len(as_sample(ParquetChats(path, tmp_path).read(1)).turns) == 2
    assert 0 < kept.used < 1000


def test_images_by_path_and_images_that_are_lists(tmp_path):
    (tmp_path / "red.png").write_bytes(png((255, 0, 0)))
    chat = json.dumps([{"role": "user", "content": "Which?"}])
    for images in (["red.png"], [{"bytes": None, "path": "red.png"}], ["red.png"]):
        path = written(tmp_path / "a.parquet", messages=[chat], images=[images])
        assert ParquetChats(path, tmp_path).read(0).images == [png((255, 0, 0))]
    path = written(tmp_path / "a.parquet", messages=[chat] * 3, image=["../red.png", "absent.png", None])
    chats = ParquetChats(path, tmp_path)
    for row, output in enumerate(["without ..", "No such file"]):
        with pytest.raises(BadSampleError, match=f"a.parquet, row {row + 1}: .*{output}"):
            chats.read(row)
    assert chats.read(2).images == []


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
    path = written(tmp_path / "a.parquet", **columns)
    chats = ParquetChats(path, tmp_path)
    assert [chats.read(row).images for row in range(4)] == expected
    assert [chats.read(row).messages[0]["content"].count("<image>") for row in range(4)] == [1, 1, 1, 2]
    columns["images"] = pyarrow.nulls(4)
    chats = ParquetChats(written(tmp_path / "b.parquet", **columns), tmp_path)
    assert [chats.read(row).images for row in range(4)] == [[blue]] * 3 + [[]]


def test_of_several_files_each_may_have_nulls(tmp_path):
    """If several columns are filled, only the first is read."""
    chat, red, blue = json.dumps([{"role": "user", "content": "Which?"}]), png((255, 0, 0)), png((0, 0, 255))
    written(tmp_path / "a.parquet", messages=[chat], conversations=[chat], images=[red], image=[blue])
    assert find_columns([tmp_path / "a.parquet"]) == (["messages"], ["images"])
    images = pyarrow.array([None], pyarrow.binary())
    written(tmp_path / "b.parquet", messages=[chat], images=images, image=[blue])
    chats = ParquetChats(tmp_path, tmp_path)
    assert [chats.read(row).images for row in range(2)] == [[red], [blue]]
    written(tmp_path / "c.parquet", messages=[chat], images=[red])
    with pytest.raises(ValueError, match="c.parquet: lacks the column image that .*b.parquet has"):
        ParquetChats(tmp_path, tmp_path)


def test_a_file_that_is_written_again_keeps_the_column_that_fills_the_gaps(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 3)
    chat, images = json.dumps([{"role": "user", "content": "Which?"}]), [png((9, row, 0)) for row in range(6)]
    first = [None if row % 2 else image for row, image in enumerate(images)]
    path = written(tmp_path / "a.parquet", messages=[chat] * 6, images=first, image=images)
    prepare_parquet(path, tmp_path)
    chats = ParquetChats(path, tmp_path)
    assert [chats.read(row).images for row in range(6)] == [[image] for image in images]


def test_a_tiny_black_image_is_none_only_where_no_marker_asks_for_it(tmp_path):
    black, large = png((0, 0, 0)), png((0, 0, 0), size=16)
    with_image, plain = ([{"role": "user", "content": text}] for text in ("<image>", "Why?"))
    rows = [(plain, black), (with_image, black), (plain, large), (plain, png((0, 0, 9))), (plain, b"no image")]
    chats = [json.dumps(turns) for turns, _ in rows]
    path = written(tmp_path / "a.parquet", conversations=chats, image_bytes=[image for _, image in rows])
    read = [ParquetChats(path, tmp_path).read(row) for row in range(len(rows))]
    assert [len(chat.images) for chat in read] == [0, 1, 1, 1, 1]
    assert [chat.messages[0]["content"].count("<image>") for chat in read] == [0, 1, 1, 1, 1]


def test_rows_that_are_no_chats_are_named(tmp_path):
    rows = ["[", None, "[]", json.dumps([{"role": "user", "content": "<image><image>"}]), '[{"role": "user"}]']
    path = written(tmp_path / "a.parquet", conversations=rows, image_bytes=[png((1, 2, 3))] * 5)
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
    path = written(tmp_path / "b.parquet", messages=['[{"role": "user", "content": "a"}]'], images=[[b""]])
    with pytest.raises(BadSampleError, match="b.parquet, row 1: an image in the column images is empty"):
        ParquetChats(path, tmp_path).read(0)


def test_a_text_that_is_not_utf_8_is_named(tmp_path):
    broken = pyarrow.array([b"[]", b'[{"role": "user", "content": "\xff"}]']).view(pyarrow.string())
    chats = ParquetChats(written(tmp_path / "a.parquet", messages=broken), tmp_path)
    with pytest.raises(BadSampleError, match="a.parquet, row 2: a text is not UTF-8"):
        chats.read(1)


@pytest.mark.parametrize(
    ("columns", "messages"),
    [
        ({"text": ["a"], "image": [b"a"]}, "expected chats in one of the columns .*; found text, image"),
        ({"texts": [3]}, "the column texts must be JSON text or a list of turns, found int64"),
        ({"messages": [["a"]]}, "the column messages must be .* found list<"),
        ({"messages": ["[]"], "images": [[3]]}, "the column images must hold .*; found list<"),
        ({"messages": ["[]"], "images": [{"data": b"a"}]}, "the column images must hold .*; found struct<data"),
    ],
)
def test_columns_that_cannot_be_used_are_reported_when_the_file_is_opened(tmp_path, columns, messages):
    path = written(tmp_path / "a.parquet", **columns)
    with pytest.raises(ValueError, match=f"a.parquet: .*{messages}"):
        find_columns([path])


def test_files_that_do_not_fit_each_other_are_refused(tmp_path):
    write_minimind_parquet(tmp_path / "a.parquet", [coloured(0)])
    write_finevision_parquet(tmp_path / "b.parquet", [coloured(0)])
    with pytest.raises(ValueError, match="b.parquet: lacks the column conversations, image_bytes that .*a.parquet has"):
        ParquetChats(tmp_path, tmp_path)
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(ValueError, match="b.parquet: not a Parquet file, or a truncated one"):
        ParquetChats(tmp_path, tmp_path)


def test_the_rows_of_a_corrupt_row_group_are_bad_samples_and_the_others_are_read(tmp_path):
    path = write_minimind_parquet(tmp_path / "a.parquet", [coloured(row) for row in range(40)], 20)
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
    path = write_minimind_parquet(tmp_path / "a.parquet", [coloured(row) for row in range(40)], 20)
    chats = pickle.loads(pickle.dumps(ParquetChats(path, tmp_path)))
    parquet_row_groups._files = SizedLRUCache(64, lambda file: 1)  # a loader that has not opened it yet
    write_minimind_parquet(path, [coloured(row) for row in range(50)], 20)
    with pytest.raises(OSError, match="a.parquet, row group 1: cannot be read: the file was modified"):
        chats.read(23)
    assert as_sample(ParquetChats(path, tmp_path).read(23)) == same(coloured(23))


# -- row groups that are too large -------------------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A file that is too large to be read in parts, as sizes go in this test."""
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 30)
    monkeypatch.setattr(parquet_rewrite, "GROUP_SIZE", 2000)
    samples = [*map(coloured, range(75)), TEXT, SEVERAL]
    return write_minimind_parquet(tmp_path / "large.parquet", samples), samples


def test_a_file_with_large_row_groups_is_written_again_once(tmp_path, large):
    path, samples = large
    root = tmp_path / "root"
    output = "large.parquet: row groups of up to 77 rows .*train.py prepare"
    with pytest.raises(ValueError, match=output) as refused:
        ParquetChats(path, root)
    (again,) = prepare_parquet(path, root)
    assert str(again) in str(refused.value)
    assert prepare_parquet(path, root) == []
    chats = ParquetChats(path, root)
    assert [as_sample(chats.read(row)) for row in range(77)] == [same(sample) for sample in samples]
    assert chats.name(76) == f"{path}, row 77"
    assert np.diff(chats.blocks.starts, append=77).max() <= 64
    assert len(chats.blocks.starts) > 1
    assert not list(root.rglob("*.new"))


def test_rewritten_files_below_the_folder_are_not_read_again(tmp_path, large, caplog):
    """The default of `root` lies in data/, and so may the data."""
    _, samples = large
    assert len(prepare_parquet(tmp_path, tmp_path)) == 1
    assert prepare_parquet(tmp_path, tmp_path) == []
    assert len(ParquetChats(tmp_path, tmp_path)) == len(samples)
    assert len(ParquetChats(tmp_path / "**/*.parquet", tmp_path)) == len(samples)
    assert "not read" not in caplog.text


def test_rows_that_are_large_are_few_in_a_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 30)
    monkeypatch.setattr(parquet_rewrite, "GROUP_SIZE", 10_000)
    large = Sample(coloured(0).turns, [encoded(noise())])  # 3 kB
    (again,) = prepare_parquet(write_minimind_parquet(tmp_path / "a.parquet", [large] * 40), tmp_path / "root")
    footer = read_footer(again)
    assert max(footer.row_group(group).num_rows for group in range(footer.num_row_groups)) in range(3, 7)
    assert [as_sample(ParquetChats(again, tmp_path).read(row)) for row in (0, 39)] == [same(large)] * 2


def test_another_file_of_the_same_name_is_not_taken_for_the_first(tmp_path, large):
    path, samples = large
    prepare_parquet(path, tmp_path)
    write_minimind_parquet(path, samples[::-1])
    with pytest.raises(ValueError, match="train.py prepare"):
        ParquetChats(path, tmp_path)
    assert len(prepare_parquet(path, tmp_path)) == 1
    assert as_sample(ParquetChats(path, tmp_path).read(76)) == same(samples[0])


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
    prepare_parquet(paths[0], tmp_path / "root")
    with pytest.raises(ValueError, match="train.py prepare"):
        ParquetChats(paths[1], tmp_path / "root")
    shutil.copy2(paths[1], paths[0])
    with pytest.raises(ValueError, match="train.py prepare"):
        ParquetChats(paths[0], tmp_path / "root")
    prepare_parquet(paths[1], tmp_path / "root")
    assert ParquetChats(paths[1], tmp_path / "root").read(0).messages[1]["content"] == "2"


def test_a_flipped_bit_in_a_rewritten_file_is_named(tmp_path, large):
    path, _ = large
    (again,) = prepare_parquet(path, tmp_path)
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
    (name,) = prepare_parquet(path, tmp_path / "root")
    left = temp_path(name)
    left = folder / left.name.replace(f".{os.getpid()}.", f".{writer.pid}.")
    name.rename(left)
    assert prepare_parquet(path, tmp_path / "root") == [name]
    assert not left.exists()
    assert len(ParquetChats(path, tmp_path / "root")) == len(samples)


def test_a_disk_that_is_full_leaves_nothing(tmp_path, large, monkeypatch):
    path, _ = large

    def full(source, target, columns):
        target.write(b"PAR1")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet_rewrite, "_copy", full)
    with pytest.raises(OSError, match="No space left"):
        prepare_parquet(path, tmp_path / "root")
    left = {file.name for file in (tmp_path / "root/parquet").iterdir() if file.suffix != ".lock"}
    assert left == {".gitignore"}


def _prepare(path, root, barrier, done):
    parquet_rewrite.MAX_ROWS, parquet_rewrite.GROUP_SIZE = 30, 2000
    barrier.wait(60)
    done.put(len(prepare_parquet(path, root)))


@pytest.mark.slow
def test_of_several_processes_one_writes(tmp_path, large):
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


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_no_more_is_kept_than_the_budget():
    cache = SizedLRUCache(10, len)
    for size in (4, 4, 3, 11, 2):
        cache.get(size, lambda: "x" * size)  # noqa: B023
        assert cache.used <= max(10, size)
    assert cache.misses == 4  # the second 4 was there
    assert cache.get(2, lambda: pytest.fail("it is there")) == "xx"


def _read(chats, row):
    return as_sample(chats.read(row))


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_other_processes_read_what_this_one_opened(tmp_path, start):
    path = write_minimind_parquet(tmp_path / "a.parquet", [coloured(row) for row in range(20)], 5)
    chats = ParquetChats(path, tmp_path)
    assert _read(chats, 3) == same(coloured(3))
    with multiprocessing.get_context(start).Pool(2) as pool:
        found = pool.starmap_async(_read, [(chats, row) for row in range(20)]).get(timeout=90)
    assert found == [same(coloured(row)) for row in range(20)]


def test_sizes_are_those_of_what_is_kept(tmp_path, kept):
    """With dictionary encoding a file with a repeated image is small, but its rows in memory are not."""
    sample = Sample(coloured(0).turns, [encoded(noise())])
    path = write_minimind_parquet(tmp_path / "a.parquet", [sample] * 100, 50)
    chats = ParquetChats(path, tmp_path)
    footer = read_footer(path)
    assert sum(footer.row_group(0).column(leaf).total_uncompressed_size for leaf in range(2)) < kept.used / 10
    assert chats.blocks.sizes[0] == kept.used
    assert chats.blocks.window == parquet_rows.WINDOW


def noise():
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    return Image.fromarray(pixels)


# -- files of other content --------------------------------------------------------------------------------------------


def test_other_files_of_a_folder_are_named(tmp_path, caplog):
    write_minimind_parquet(tmp_path / "a.parquet", [coloured(0)])
    for name in ("README.md", "b.parquet.gz", ".hidden", ".cache/c.metadata", ".cache/d.parquet", "images/1.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert len(ParquetChats(tmp_path, tmp_path / "root")) == 1
    assert "2 files are not read, as they do not end in .parquet: README.md, b.parquet.gz" in caplog.text


def test_null_rows_and_other_types_are_bad_samples(tmp_path):
    turn = {"role": "user", "content": "Why?"}
    path = written(
        tmp_path / "a.parquet",
        conversations=[json.dumps([turn]), None, "null", json.dumps({"role": "user"}), json.dumps([turn])],
        images=[[], [], [], [], [{"bytes": None}]],
    )
    chats = ParquetChats(path, tmp_path)
    assert chats.read(0).images == []
    for row, output in ((1, "found null"), (2, "found null"), (3, "must be a list"), (4, "is empty")):
        with pytest.raises(BadSampleError, match=f"a.parquet, row {row + 1}: .*{output}"):
            chats.read(row)


def test_a_footer_that_ends_the_process_that_reads_it_is_refused(tmp_path):
    """The child reads the file, because pyarrow itself would end this process."""
    case = REPOSITORY / "tests/fuzz/cases/chats_parquet/histogram-of-levels@finevision.parquet"
    corrupt, whole = tmp_path / "b.parquet", write_minimind_parquet(tmp_path / "a.parquet", [coloured(0)])
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
        prepare_parquet(tmp_path, tmp_path)


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


def write_parts(folder, **columns):
    folder.mkdir()
    for name, table in columns.items():
        pyarrow.parquet.write_table(pyarrow.table(table), folder / f"{name}.parquet")
    return folder


CHAT = json.dumps([{"role": "user", "content": "What?"}, {"role": "assistant", "content": "A dog."}])


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


def test_a_folder_of_parts_may_have_the_suffix_of_a_file(tmp_path):
    write_parts(tmp_path / "table.parquet", a={"messages": [CHAT]}, b={"messages": [CHAT]})
    assert len(parquet_files(tmp_path)) == len(parquet_files(tmp_path / "*.parquet" / "*")) == 2
    with pytest.raises(FileNotFoundError, match="not a file, a folder or a matching pattern"):
        parquet_files(tmp_path / "*.parquet")


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


def test_a_turn_without_a_text_is_not_dropped(tmp_path):
    path = tmp_path / "a.parquet"
    turns = [{"user": "What?", "assistant": None}, {"user": None, "assistant": None}]
    pyarrow.parquet.write_table(pyarrow.table({"texts": [turns]}), path)
    with pytest.raises(BadSampleError, match=r"row 1: turn 2: found .*null.*, expected a text of the user"):
        ParquetChats(path, tmp_path).read(0)
