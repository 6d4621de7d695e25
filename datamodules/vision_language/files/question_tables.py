"""Reads tables of questions about images: Parquet, TSV and CSV files, as public benchmarks are published."""

import base64
import csv
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from datamodules.vision_language.chat_file import ChatFile, ImageChat
from datamodules.vision_language.files.chat_formats import insert_image_markers
from datamodules.vision_language.files.image_folder import ImageFolder
from datamodules.vision_language.files.parquet_row_groups import read_schema
from datamodules.vision_language.files.parquet_rows import ParquetRows
from datamodules.vision_language.files.question_fields import (
    FIELDS,
    IMAGE_FIELDS,
    OPTION_FIELDS,
    is_missing,
    parse_image_question,
)
from engine.data.errors import BadSampleError
from engine.io.csv_error import describe_csv_error, field_limit
from engine.io.json_records import check_regular_file, check_text_file, describe_names, describe_undecodable, parse_json
from engine.io.unterminated_line import warn_if_unterminated

LONGEST = 64 * 2**20
"""Maximum length of a row in bytes, with its images in base64."""

TEXT_DELIMITERS = {".tsv": "\t", ".csv": ","}
"""Cell delimiters of text tables, by the suffix of the file."""

_INDEX = "index"  # column that other rows name in place of repeating an image, in MMBench


class QuestionParquet(ParquetRows):
    """A ChatFile of Parquet files with a question in each row.

    Args:
        path: a file, a folder, or a pattern; see ParquetRows.
        root: folder where `prepare` writes files whose row groups are too large.
        images: base folder of images that are named by path instead of being in the file.

    Raises:
        ValueError, OSError: see ParquetRows.
    """

    def __init__(self, path: str | Path, root: str | Path, images: str | Path | None = None) -> None:
        super().__init__(path, root, images, question_columns)

    @override
    def convert(self, name: str, fields: dict[str, Any]) -> ImageChat:
        return _chat(name, fields, self.row_images(name, fields, IMAGE_FIELDS))


def question_columns(paths: Sequence[Path]) -> list[str]:
    """Return the columns of questions that all files have.

    Raises:
        ValueError: a file has no column `question`, or other columns of FIELDS than the first file.
    """
    first: list[str] = []
    for path in paths:
        names = read_schema(path)[1].names
        columns = [field for field in FIELDS if field in names]
        if "question" not in columns:
            raise ValueError(f"{path}: found the columns {describe_names(names)}, expected a column question")
        if path == paths[0]:
            first = columns
        if columns != first:
            raise ValueError(
                f"{path}: found the columns {describe_names(columns)}, expected those of {paths[0]}: "
                f"{describe_names(first)}"
            )
    return first


class QuestionText(ChatFile):
    """A ChatFile of a TSV or CSV file with a question in each row.

    An image is base64, a path in the folder of images, or, as in MMBench, the `index` of another row with the image.

    Args:
        path: the file; its suffix states the delimiter.
        images: base folder of the paths of images; None for the folder of the file.

    Raises:
        ValueError: the file is not a table with a column `question`; the message names the line.
        OSError: the file or the folder cannot be read.
    """

    blocks = None

    def __init__(self, path: str | Path, images: str | Path | None = None) -> None:
        self.path = Path(path)
        self._delimiter = TEXT_DELIMITERS[self.path.suffix.lower()]
        self._images = ImageFolder(self.path.parent if images is None else images)
        self._index_rows()

    def _index_rows(self) -> None:
        """Read the file once; keep the extents of its rows, and the rows by the `index` that others name."""
        check_regular_file(self.path, "a table of questions in UTF-8")
        starts: list[int] = []
        numbers: list[int] = []
        self._header: list[str] = []
        self._by_index: dict[str, int] = {}
        for start, number, cells in self._records():
            if not self._header:
                self._header = self._checked_header(cells)
            elif len(cells) != len(self._header):
                raise ValueError(f"{self.path}, line {number}: found {len(cells)} cells, expected {len(self._header)}")
            else:
                if _INDEX in self._header:
                    self._by_index.setdefault(cells[self._header.index(_INDEX)].strip(), len(starts))
                starts.append(start)
                numbers.append(number)
        if not self._header:
            raise ValueError(f"{self.path}: found no rows, expected a header and questions")
        self._starts, self._numbers = np.array(starts, np.int64), np.array(numbers, np.int64)

    def _checked_header(self, cells: list[str]) -> list[str]:
        header = [cell.strip() for cell in cells]
        if "question" not in header or len(set(header)) < len(header):
            raise ValueError(
                f"{self.path}, line 1: found the columns {describe_names(header)}, expected question and others of "
                f"{describe_names(FIELDS)}, each once"
            )
        return header

    def _records(self) -> Iterator[tuple[int, int, list[str]]]:
        """Yield (offset in bytes, line number, cells) of each row that is not blank."""
        checksum, offset, at, number = 0, 0, 0, 1

        def lines() -> Iterator[str]:
            nonlocal checksum, offset
            with self.path.open("rb") as file:
                while line := file.readline(LONGEST + 1):
                    if not offset:
                        check_text_file(line, self.path, "a table of questions in UTF-8")
                    if offset - at + len(line) > LONGEST:
                        raise ValueError(f"{self.path}, line {number}: the row has more than {LONGEST:,} bytes")
                    checksum, offset = zlib.crc32(line, checksum), offset + len(line)
                    yield self._decode_line(line, number)

        with field_limit(LONGEST):
            reader = csv.reader(lines(), delimiter=self._delimiter, strict=True)
            try:
                for cells in reader:
                    if any(cell.strip() for cell in cells):
                        yield at, number, cells
                    at, number = offset, reader.line_num + 1
            except csv.Error as error:
                raise ValueError(f"{self.path}, line {number}: found {describe_csv_error(error)}") from error
        warn_if_unterminated(self.path)
        self.identity = f"{checksum:08x}"

    def _decode_line(self, data: bytes, number: int) -> str:
        try:
            text = data.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.path}, line {number}: {describe_undecodable(error)}") from error
        if "\0" in text:
            raise ValueError(f"{self.path}, line {number}: found a NUL byte, expected text")
        return text

    @override
    def __len__(self) -> int:
        return len(self._starts)

    @override
    def name(self, row: int) -> str:
        return f"{self.path}, line {self._numbers[row]}"

    @override
    def read(self, row: int) -> ImageChat:
        name, fields = self.name(row), self._fields(row)
        for field in (*OPTION_FIELDS, "answers"):
            if not is_missing(text := fields.get(field, "").strip()):
                fields[field] = _split_cell(name, field, text)
        column = next((field for field in IMAGE_FIELDS if fields.get(field, "").strip()), None)
        images = [] if column is None else [self._image(name, fields[column].strip())]
        return _chat(name, fields, images)

    def _fields(self, row: int) -> dict[str, Any]:
        with self.path.open("rb") as file, field_limit(LONGEST):
            file.seek(int(self._starts[row]))
            lines = (
                self._decode_line(line, int(self._numbers[row])) for line in iter(lambda: file.readline(LONGEST), b"")
            )
            try:
                cells = next(csv.reader(lines, delimiter=self._delimiter, strict=True), [])
            except (csv.Error, ValueError) as error:
                raise OSError(f"{self.path}: was modified since the run began: {error}") from error
        if len(cells) != len(self._header):
            raise OSError(f"{self.path}: was modified since the run began")
        return dict(zip(self._header, cells, strict=True))

    def _image(self, name: str, cell: str) -> bytes:
        if cell.isdecimal():
            other = self._by_index.get(cell)
            if other is None:
                raise BadSampleError(f"{name}: image: no row has the {_INDEX} {cell[:20]}, which it names")
            column = next((field for field in IMAGE_FIELDS if field in self._header), "")
            cell = self._fields(other)[column].strip()
            if not cell or cell.isdecimal():
                raise BadSampleError(f"{name}: image: the row with the {_INDEX} that it names has none itself")
        if "." in cell:  # base64 has none
            return self._images.read(name, cell)
        try:
            return base64.b64decode(cell, validate=True)
        except ValueError as error:
            raise BadSampleError(f"{name}: image: found {cell[:20]!r}, expected base64 or a path") from error


def _chat(name: str, fields: dict[str, Any], images: list[bytes]) -> ImageChat:
    question = parse_image_question(name, fields)
    messages = insert_image_markers(name, question.messages, len(images))
    return ImageChat(name, messages, images, question.reference)


def _split_cell(name: str, field: str, text: str) -> list[Any]:
    """Return the texts of a cell: a JSON list, or texts between `|`."""
    if not text.startswith("["):
        return [option.strip() for option in text.split("|")]
    try:
        options = parse_json(text)
    except ValueError as error:
        raise BadSampleError(f"{name}: {field}: not JSON: {error}") from error
    assert isinstance(options, list)  # JSON that begins with a bracket
    return options
