"""Reads records from files: JSONL, a JSON list, CSV and Parquet, one record in memory at once but for JSON lists."""

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from datamodules.multimodal.parquet_footer_check import FooterCheck
from engine.io.csv_error import describe_csv_error, field_limit
from engine.io.json_records import (
    check_text_file,
    describe_line,
    describe_names,
    describe_undecodable,
    describe_value,
    iterate_lines,
    parse_located_json,
)
from engine.io.unterminated_line import warn_if_unterminated

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet")
"""File formats, by suffix."""

_LARGEST_LIST = 2**28
"""Largest size of a JSON list, in bytes; JSONL and Parquet have no limit."""

_COLUMNS = ("question", "series", "options", "answer", "kind", "key")
_BATCH = 64  # rows of a Parquet file that are decoded at once
_MESSAGE = 300  # characters


def read_records(path: Path, row_bytes: int) -> Iterator[tuple[str, Any]]:
    """Yield (file and line, row or record, value) of each record.

    Args:
        path: the file; its suffix states its format.
        row_bytes: largest size of a line, or of a row.

    Raises:
        ValueError: a line is invalid, or the file has no record; the message names file and line.
        OSError: the file cannot be read.
    """
    readers = {".json": _read_list, ".csv": _read_csv, ".parquet": _read_parquet}
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise ValueError(f"{path}: not found, expected a file of series and questions")
    empty = True
    for record in readers.get(suffix, _read_lines)(path, row_bytes):
        empty = False
        yield record
    if empty:
        raise ValueError(f"{path}: found no record, expected questions and series")


def _read_lines(path: Path, row_bytes: int) -> Iterator[tuple[str, Any]]:
    for number, line in iterate_lines(path, "an object with question and series on each line"):
        where = f"{path}, line {number}"
        _check_row_bytes(where, len(line), row_bytes)
        yield where, parse_located_json(where, line)


def _read_list(path: Path, row_bytes: int) -> Iterator[tuple[str, Any]]:
    size = path.stat().st_size
    if size > _LARGEST_LIST:
        raise ValueError(
            f"{path}: found a JSON list of {size:,} bytes, expected at most {_LARGEST_LIST:,}; write one object "
            "per line (JSONL)"
        )
    # The parser of JSON needs the whole list in memory.
    data = path.read_bytes()
    check_text_file(data, path, "a list of objects with question and series")
    records = parse_located_json(str(path), data)
    if not isinstance(records, list):
        raise ValueError(f"{path}: found {describe_value(records)}, which is not a list of objects")
    for number, record in enumerate(records, 1):
        yield f"{path}, record {number}", record


def _read_csv(path: Path, row_bytes: int) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        check_text_file(file.read(16), path, "a CSV file in UTF-8")
    with field_limit(row_bytes):
        yield from _csv_rows(path, row_bytes)
    warn_if_unterminated(path)


def _csv_rows(path: Path, row_bytes: int) -> Iterator[tuple[str, Any]]:
    reader = csv.reader(_text_lines(path, row_bytes), strict=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            where = f"{path}, line {reader.line_num}"
            if not any(cell.strip() for cell in cells):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                if len(set(header)) < len(header) or not {"question", "series"} <= set(header) <= set(_COLUMNS):
                    raise ValueError(
                        f"{where}: found the columns {describe_names(header)}, expected question, series and some of "
                        f"{', '.join(_COLUMNS[2:])}, each once"
                    )
                continue
            if len(cells) != len(header):
                raise ValueError(f"{where}: found {len(cells)} cells, expected {len(header)}")
            yield where, _record_of_cells(where, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: found {describe_csv_error(error)}") from error


def _text_lines(path: Path, row_bytes: int) -> Iterator[str]:
    with path.open("rb") as file:
        number = 0
        # A line that reaches `row_bytes + 1` is too long, and no more of it is read.
        while line := file.readline(row_bytes + 1):
            number += 1
            where = f"{path}, line {number}"
            _check_row_bytes(where, len(line), row_bytes)
            if b"\0" in line:
                raise ValueError(f"{where}: found a NUL byte in {describe_line(line)}, expected a CSV file in UTF-8")
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{where}: {describe_undecodable(error)}, expected a CSV file in UTF-8") from error


def _record_of_cells(where: str, cells: Mapping[str, str]) -> dict[str, Any]:
    """Return the record of a row: an empty cell is missing, series and options are JSON, or a file and `a|b|c`."""
    record: dict[str, Any] = {key: cell.strip() for key, cell in cells.items() if cell.strip()}
    for key in ("series", "options"):
        cell = record.get(key)
        if cell is not None and cell[0] in "[{":
            record[key] = parse_located_json(f"{where}, {key}", cell)
        elif cell is not None and key == "options":
            record[key] = [option.strip() for option in cell.split("|")]
    return record


def _read_parquet(path: Path, row_bytes: int) -> Iterator[tuple[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    with FooterCheck() as footer:
        footer.check(path)
    try:
        # Threads do not survive a fork, and loader processes may be forked later.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
            number = 0
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).total_byte_size
                rows = max(1, file.metadata.row_group(group).num_rows)
                # By the footer, before anything is decoded; the check below is exact for what was decoded.
                _check_row_bytes(f"{path}, row group {group}", size // rows, row_bytes)
                for batch in file.iter_batches(_BATCH, row_groups=[group], use_threads=False):
                    _check_row_bytes(f"{path}, row {number + 1}", batch.nbytes // max(1, len(batch)), row_bytes)
                    for index in range(len(batch)):
                        number += 1
                        where = f"{path}, row {number}"
                        yield where, _record_of_row(where, _python_values(where, batch.slice(index, 1)))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        why = " ".join(str(error).split())[:_MESSAGE]
        raise ValueError(f"{path}: not a Parquet file, or a corrupt one: {why}") from error


def _record_of_row(where: str, row: Mapping[str, object]) -> dict[str, Any]:
    """Return the record of a row of a Parquet file: null fields are missing, NaN is a gap, a text may hold JSON."""
    record = {key: _to_json(value) for key, value in row.items() if value is not None}
    for key in ("series", "options"):
        value = record.get(key)
        if isinstance(value, str) and value[:1] in ("[", "{"):
            record[key] = parse_located_json(f"{where}, {key}", value)
    return record


def _to_json(value: object) -> Any:
    """Return a value of a row as JSON has it. A struct of the file has all keys, so null ones are missing."""
    if isinstance(value, dict):
        return {key: _to_json(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_to_json(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _python_values(where: str, row: Any) -> dict[str, Any]:
    """Return a row of a table as values of Python, which has no nanoseconds and no year above 9999."""
    try:
        values: dict[str, Any] = row.to_pylist()[0]
        return values
    except (UnicodeDecodeError, OverflowError, ValueError) as error:
        why = " ".join(str(error).split())[:_MESSAGE]
        raise ValueError(f"{where}: a value cannot be read: {why}") from error


def _check_row_bytes(where: str, size: int, row_bytes: int) -> None:
    if size > row_bytes:
        raise ValueError(
            f"{where}: found {'more than ' if size == row_bytes + 1 else ''}{size:,} bytes, expected at most "
            f"{row_bytes:,}; raise limits.row_bytes"
        )
