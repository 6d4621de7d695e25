"""Reads a table of items: ids, categories, numbers and vectors. Every row is read, or the file is refused."""

import math
from pathlib import Path

import numpy as np

from datamodules.recommender.features.item_feature_settings import ItemFeatures
from datamodules.recommender.features.item_parquet import read_parquet
from datamodules.recommender.features.item_table import ITEM_OPTION, ItemTable, categories_of, duplicate_item_error
from datamodules.recommender.reading.column_choice import choose_item, choose_named
from datamodules.recommender.reading.content_type import detect_binary_format
from datamodules.recommender.reading.csv_records import records
from datamodules.recommender.reading.error_location import NUMBER, RowErrors, last_line_fault
from datamodules.recommender.reading.errors import InteractionError, preview
from datamodules.recommender.reading.file_formats import Layout, read_first_line, separator_of, split_header


def read_item_table(path: Path, settings: ItemFeatures) -> ItemTable:
    """Read the columns of a file that the settings name.

    Raises:
        FileNotFoundError: the file does not exist.
        InteractionError: a column is missing, or a row is invalid: an id that is empty or occurs twice, text in the
            place of a number, vectors of unequal length. The message names file, line (or row), column, the value found
            and the expected value.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{ITEM_OPTION}.path: {path} does not exist; expected a table with a row for each item")
    if path.suffix == ".parquet":
        return read_parquet(path, settings)
    return _read_text(path, settings)


def _read_text(path: Path, settings: ItemFeatures) -> ItemTable:
    layout = _layout(path, settings)
    if settings.vector is not None:
        raise InteractionError(
            f"{path}: column {settings.vector!r} ({ITEM_OPTION}.vector): vectors are read from Parquet alone; write "
            "the table as a .parquet file with a list of floats in this column"
        )
    index_of = {name: layout.columns.index(name) for name in layout.columns}
    columns = choose_named(path, layout.columns, settings.categories + settings.numbers, ITEM_OPTION)
    category_columns, number_columns = columns[: len(settings.categories)], columns[len(settings.categories) :]
    faults, first_of = RowErrors(layout), dict[str, int]()
    ids: list[str] = []
    categories: list[list[tuple[str, ...]]] = [[] for _ in category_columns]
    numbers: list[list[float]] = []
    for record in records(layout):
        if fault := faults.find(record):
            raise InteractionError(f"{path}: line {record.number}: {fault}")
        if record.number == 1:
            continue
        fields = [field.decode() for field in record.fields]
        item = fields[index_of[layout.item]]
        if first_of.setdefault(item, record.number) != record.number:
            raise duplicate_item_error(path, f"line {record.number}", item, f"line {first_of[item]}")
        ids.append(item)
        where = f"{path}: line {record.number}"
        for column, values in zip(category_columns, categories, strict=True):
            cell = fields[index_of[column]]
            values.append(categories_of(cell.split(settings.separator), f"{where}: column {column!r}"))
        numbers.append(
            [
                _parse_feature_number(fields[index_of[column]], f"{where}: column {column!r}")
                for column in number_columns
            ]
        )
    if not ids:
        raise InteractionError(f"{path}: found no row after the header, expected a row for each item")
    if layout.columns[-1] in (layout.item, *columns) and (fault := last_line_fault(layout)):
        raise InteractionError(fault)
    table = np.array(numbers, np.float64).reshape(len(ids), len(number_columns))
    named = dict(zip(settings.categories, categories, strict=True))
    return ItemTable(ids, named, table, np.zeros((len(ids), 0), np.float32))


def _layout(path: Path, settings: ItemFeatures) -> Layout:
    if path.stat().st_size == 0:
        raise InteractionError(f"{path}: the file is empty; expected a table with a header and a row for each item")
    if foreign := detect_binary_format(path):
        raise InteractionError(f"{path}: {foreign}")
    # RecBole's .item files are separated by tabs and have no quotes.
    header, quoted = read_first_line(path), path.suffix != ".item"
    separator = separator_of(header) if quoted else "\t"
    columns = split_header(path, header, separator) if quoted else tuple(header.split("\t"))
    item = choose_item(path, columns, settings.item_column, ITEM_OPTION)
    # A Layout needs a user column, which a table of items lacks; the item stands in for it.
    return Layout(
        kind="table of items",
        path=path,
        user=item,
        item=item,
        time=None,
        columns=columns,
        separator=separator,
        quoted=quoted,
    )


def _parse_feature_number(text: str, where: str) -> float:
    if not text.strip():
        return math.nan
    if not NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise InteractionError(
            f"{where}: found {preview(text)}, expected a number, or nothing where it is missing; a column of text is "
            f"for {ITEM_OPTION}.categories"
        )
    return float(text)
