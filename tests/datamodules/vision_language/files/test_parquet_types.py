"""Tests that each Parquet type in which a column of chats may be stored is read, also where a file is rewritten."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from datamodules.vision_language.files import parquet_rewrite
from datamodules.vision_language.files.parquet_chats import ParquetChats, chat_columns
from datamodules.vision_language.files.parquet_row_groups import read_footer
from datamodules.vision_language.files.parquet_rows import prepare_rows
from engine.data.errors import BadSampleError
from tests.support.data_files.parquet_chat_files import write_table
from tests.support.data_files.vision_language_files import png

TEXTS = [json.dumps([{"role": "user", "content": f"Question {row}?"}]) for row in range(6)]
PNGS = [png((9, row, 0)).ljust(90) for row in range(6)]
NAMES = [f"{row}.png" for row in range(6)]
TURNS = [json.loads(text) for text in TEXTS]
TURN = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())])
LAYOUTS = {
    "texts by dictionary": (pyarrow.array(TEXTS).dictionary_encode(), PNGS),
    "bytes by dictionary": (TEXTS, pyarrow.array(PNGS).dictionary_encode()),
    "paths by dictionary": (TEXTS, pyarrow.array(NAMES).dictionary_encode()),
    "texts as views": (pyarrow.array(TEXTS, pyarrow.string_view()), PNGS),
    "bytes as views": (TEXTS, pyarrow.array(PNGS, pyarrow.binary_view())),
    "paths as views": (TEXTS, pyarrow.array(NAMES, pyarrow.string_view())),
    "bytes of fixed size": (TEXTS, pyarrow.array(PNGS, pyarrow.binary(len(PNGS[0])))),
    "a list of views": (TEXTS, pyarrow.array([[image] for image in PNGS], pyarrow.list_(pyarrow.binary_view()))),
    "a list as a view": (TEXTS, pyarrow.array([[image] for image in PNGS], pyarrow.list_view(pyarrow.binary()))),
    "a list of fixed size": (TEXTS, pyarrow.array([[image] for image in PNGS], pyarrow.list_(pyarrow.binary(), 1))),
    "turns as a view": (pyarrow.array(TURNS, pyarrow.list_view(TURN)), PNGS),
    "turns of fixed size": (pyarrow.array(TURNS, pyarrow.list_(TURN, 1)), PNGS),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rewritten", [False, True], ids=["direct", "rewritten"])
def test_each_layout_of_texts_bytes_and_lists_is_read(tmp_path, monkeypatch, layout, rewritten):
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 2 if rewritten else 6)
    for name, image in zip(NAMES, PNGS, strict=True):
        (tmp_path / name).write_bytes(image)
    messages, images = LAYOUTS[layout]
    path = write_table(tmp_path / "a.parquet", messages=messages, images=images)
    assert len(prepare_rows(path, tmp_path / "root", chat_columns)) == rewritten
    chats = [ParquetChats(path, tmp_path / "root").read(row) for row in range(6)]
    assert [chat.images for chat in chats] == [[image] for image in PNGS]
    assert [chat.messages[0]["content"] for chat in chats] == [f"<image>\nQuestion {row}?" for row in range(6)]


@pytest.mark.parametrize("nested", [False, True])
def test_a_code_without_a_value_is_a_corrupt_row_group(tmp_path, monkeypatch, nested):
    dictionary = pyarrow.array([b"image 1", b"image 2"])
    codes = pyarrow.DictionaryArray.from_arrays(pyarrow.array([1] * 6, pyarrow.int32()), dictionary)
    images = pyarrow.ListArray.from_arrays(range(7), codes) if nested else codes
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"messages": TEXTS, "images": images})
    pyarrow.parquet.write_table(table, path, compression="none")
    data = path.read_bytes()
    run = bytes([1, 6 << 1, 1])  # width of a code in bits, six times, the code 1
    assert data.count(run) == 1
    path.write_bytes(data.replace(run, bytes([2, 6 << 1, 3])))
    with pytest.raises(BadSampleError, match="a.parquet, row group 0: is corrupt: .*out of bounds"):
        ParquetChats(path, tmp_path)
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 2)
    with pytest.raises(OSError, match=r"a\.parquet: is corrupt: .*out of bounds.*; fetch or write it again$"):
        prepare_rows(path, tmp_path / "root", chat_columns)
    assert not list((tmp_path / "root").rglob("*.parquet"))


def test_a_dictionary_of_large_images_is_rewritten_with_row_groups_of_several_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 100)
    monkeypatch.setattr(parquet_rewrite, "GROUP_SIZE", 20_000)
    images = pyarrow.array([bytes([row]) * 1000 for row in range(200)]).dictionary_encode()
    path = write_table(tmp_path / "a.parquet", messages=TEXTS[:1] * 200, images=images)
    (rewritten,) = prepare_rows(path, tmp_path / "root", chat_columns)
    assert 2 <= read_footer(rewritten).num_row_groups <= 10
    chats = ParquetChats(path, tmp_path / "root")
    assert [chats.read(row).images for row in (0, 99, 199)] == [[bytes([row]) * 1000] for row in (0, 99, 199)]
