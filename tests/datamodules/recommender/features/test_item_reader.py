"""Tests tables of items: every row is read, or the file is refused with the line."""

import numpy as np
import polars as pl
import pytest

from datamodules.recommender.features.item_feature_settings import ItemFeatures
from datamodules.recommender.features.item_reader import read_item_table
from datamodules.recommender.reading.errors import InteractionError

COLUMNS = ItemFeatures(categories=["genres", "brand"], numbers=["price", "year"])
CSV = 'item_id,genres,"price",year,brand\n007,Drama|Comedy| Drama,3.5,,Öl\n7,,-2e1,1999,"a, ""b"""\n8,,,,\n'


def read(tmp_path, content, settings=COLUMNS, name="items.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_item_table(path, settings)


@pytest.mark.parametrize("form", ["as it is", "CRLF", "byte-order mark", "semicolons", "tabs", "recbole"])
def test_text_files_of_every_form_have_the_same_items(tmp_path, form):
    content, name = CSV, "items.csv"
    if form == "CRLF":
        content = CSV.replace("\n", "\r\n")
    elif form == "byte-order mark":
        content = "\ufeff" + CSV
    elif form in ("semicolons", "tabs"):
        content = CSV.replace(",", ";" if form == "semicolons" else "\t").replace("a; ", "a, ").replace("a\t ", "a, ")
    elif form == "recbole":
        content = "item_id:token\tgenres:token_seq\tprice:float\tyear:float\tbrand:token\n"
        content += '007\tDrama|Comedy\t3.5\t\tÖl\n7\t\t-2e1\t1999\ta, "b"\n8\t\t\t\t\n'
        name = "shop.item"
    table = read(tmp_path, content, name=name)
    assert table.ids == ["007", "7", "8"], "text, so 007 is not 7"
    assert table.categories == {"genres": [("Comedy", "Drama"), (), ()], "brand": [("Öl",), ('a, "b"',), ()]}
    np.testing.assert_array_equal(table.numbers, [[3.5, np.nan], [-20, 1999], [np.nan, np.nan]])
    assert table.vectors.shape == (3, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        (CSV.splitlines()[0] + "\n", "no row after the header"),
        (CSV.replace("brand", "brnad"), r"no column 'brand' \(data.init_args.item_features\).*did you mean 'brnad'"),
        (CSV.replace("item_id", "ident"), "no item column.*Name it with data.init_args.item_features.item_column"),
        (CSV.replace('"price"', "year"), "line 1: a column name occurs twice"),
        (CSV + "7,,,,\n", "line 5: found the item '7' again, which line 3 has already; expected one row for each item"),
        (CSV + "9,,dear,,\n", "line 5: column 'price': found 'dear', expected a number, or nothing where it is"),
        (CSV + "9,,nan,,\n", "line 5: column 'price': found 'nan', expected a number"),
        (CSV + "9,,1e999,,\n", "line 5: column 'price': found '1e999', expected a number"),
        (CSV + "9,,,\n", "line 5: found 4 fields, expected 5"),
        (CSV + " ,,,,\n", "line 5: column 'item_id': the id is empty"),
        (CSV + "\n", "line 5: the line is empty"),
        (CSV + '9,"Drama,1,2,x\n', "line 5: the quotes of the field .* are not closed"),
        (CSV + "9," + "|".join(map(str, range(65))) + ",,,\n", "line 5: column 'genres': found 65 categories"),
        (CSV[:-1] + "x", "line 4: found .* without a line end"),
        (CSV.encode() + b"9,\xff,,,\n", "line 5: the text is not UTF-8"),
        (CSV.encode().replace(b"brand", b"brand,n\xff"), "line 1: the text is not UTF-8"),
        (b"PAR1" + CSV.encode(), "the file is a Parquet file"),
    ],
)
def test_invalid_text_is_refused(tmp_path, content, message):
    with pytest.raises(InteractionError, match=message) as error:
        read(tmp_path, content)
    assert str(error.value).startswith(str(tmp_path / "items.csv"))
    assert str(error.value).count("\n") < 3


def test_a_line_cut_in_a_column_that_is_not_read(tmp_path):
    table = read(tmp_path, "item_id,price,year,genres,brand,note\n1,2,3,a,b,cut", COLUMNS)
    assert table.ids == ["1"], "as in the reader of interactions"


def test_wrong_settings_of_item_tables_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="found no column; name some with categories, numbers or vector"):
        ItemFeatures()
    with pytest.raises(ValueError, match="found the column 'a' twice"):
        ItemFeatures(categories=["a"], numbers=["a"])
    with pytest.raises(ValueError, match=r"separator: found an empty text"):
        ItemFeatures(categories=["a"], separator="")
    with pytest.raises(FileNotFoundError, match=r"item_features.path: .*none.csv does not exist"):
        read_item_table(tmp_path / "none.csv", COLUMNS)
    with pytest.raises(InteractionError, match="vectors are read from Parquet alone"):
        read(tmp_path, CSV, ItemFeatures(vector="brand"))


# -- Parquet -----------------------------------------------------------------------------------------------------------

OF_PARQUET = ItemFeatures(categories=["genres"], numbers=["price"], vector="text")
GOOD = {
    "item": pl.Series([7, 8, 9]),
    "genres": pl.Series([["b", "a", "b"], None, []], dtype=pl.List(pl.String)),
    "price": pl.Series([1.5, None, float("nan")]),
    "text": pl.Series([[1.0, 2.0], None, [3.0, 4.0]], dtype=pl.List(pl.Float32)),
}


def read_frame(tmp_path, columns):
    pl.DataFrame(columns).write_parquet(tmp_path / "items.parquet")
    return read_item_table(tmp_path / "items.parquet", OF_PARQUET)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"item": pl.Series(["7", "8", "9"])},
        {"item": pl.Series(["7", "8", "9"], dtype=pl.Categorical)},
        {"genres": pl.Series(["b|a|b", None, ""])},
        {"text": pl.Series([[1.0, 2.0], None, [3.0, 4.0]], dtype=pl.Array(pl.Float64, 2))},
        {"text": pl.Series([[1, 2], None, [3, 4]], dtype=pl.List(pl.Int64))},
    ],
)
def test_parquet_columns_become_categories_numbers_and_vectors(tmp_path, columns):
    table = read_frame(tmp_path, GOOD | columns)
    assert table.ids == ["7", "8", "9"]
    assert table.categories == {"genres": [("a", "b"), (), ()]}
    np.testing.assert_array_equal(table.numbers, [[1.5], [np.nan], [np.nan]])
    np.testing.assert_array_equal(table.vectors, np.array([[1, 2], [np.nan, np.nan], [3, 4]], np.float32))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"item": [7, 8, 7]}, "row 3: found the item '7' again, which row 1 has already"),
        ({"item": [7, None, 8]}, "row 2: column 'item': the id is empty"),
        ({"item": [7.5, 8.5, 9.5]}, "column 'item': found type Float64, expected integers or text"),
        ({"price": ["a", "b", "c"]}, "column 'price': found type String, expected numbers"),
        ({"price": [1.0, float("inf"), 2.0]}, "row 2: column 'price': found inf, expected a number, or null"),
        ({"genres": [1.5, 2.5, 3.5]}, "column 'genres': found type Float64, expected text, integers or lists"),
        ({"text": ["a", "b", "c"]}, "column 'text': found type String, expected a list or an array of floats"),
        ({"text": [[1.0, 2.0], [1.0], [3.0, 4.0]]}, "row 2: column 'text': found a vector of 1 numbers, expected 2 as"),
        ({"text": [[1.0, 2.0], None, [3.0, None]]}, "row 3: column 'text': found a vector with an empty, infinite"),
        ({"text": [[1.0, 2.0], None, [3.0, float("inf")]]}, "row 3: .*infinite or undefined number"),
        ({"text": pl.Series([None] * 3, dtype=pl.List(pl.Float32))}, "all rows: column 'text': found no vector"),
        ({"text": [[], None, []]}, "column 'text'"),
    ],
)
def test_invalid_parquet_is_refused(tmp_path, columns, message):
    with pytest.raises(InteractionError, match=message) as error:
        read_frame(tmp_path, GOOD | columns)
    assert str(error.value).startswith(str(tmp_path / "items.parquet"))


def test_braces_in_a_path_are_no_placeholder(tmp_path):
    path = tmp_path / "items{0}{x}.parquet"
    pl.DataFrame({"item": ["a", "b"], "v": [[1.0, 2.0], [1.0]]}).write_parquet(path)
    with pytest.raises(InteractionError) as error:
        read_item_table(path, ItemFeatures(item_column="item", vector="v"))
    assert str(error.value).startswith(f"{path}: row 2: column 'v': found a vector of 1 numbers, expected 2")


def test_a_parquet_file_without_rows_or_not_whole_is_refused(tmp_path):
    with pytest.raises(InteractionError, match="found no row"):
        read_frame(tmp_path, {name: pl.Series(column).clear() for name, column in GOOD.items()})
    content = (tmp_path / "items.parquet").read_bytes()
    (tmp_path / "items.parquet").write_bytes(content[:-10])
    with pytest.raises(InteractionError, match="not a whole Parquet file"):
        read_item_table(tmp_path / "items.parquet", OF_PARQUET)
