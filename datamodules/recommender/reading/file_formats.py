"""Detects the file format of interactions by file name and first line.

====================  ========================================  ===================================
format                file                                      columns
====================  ========================================  ===================================
MovieLens 1M, 10M     `ratings.dat`, separated by `::`          user, item, rating, time; no header
MovieLens 100K        `u.data`, tabs                            user, item, rating, time; no header
MovieLens 20M and on  `ratings.csv`                             userId, movieId, rating, timestamp
RecBole               `NAME.inter`, tabs, `column:type` header  user_id, item_id, timestamp
SASRec, TiSASRec      `.txt`, spaces or tabs between numbers    user, item; or with rating, time
table                 `.csv`, `.tsv`, `.txt` (header), Parquet  well-known or configured names
====================  ========================================  ===================================

A folder is searched in this order, the last two formats together. A Parquet table may have several files, see
`parquet_table`. The ids of MovieLens and of the papers' files are integers; elsewhere an id is any text, and `007` is
not `7`. A file without a column of times has the events of each user in order.
"""

import csv
import re
from pathlib import Path
from typing import NamedTuple

from datamodules.recommender.reading.column_choice import choose_columns, choose_rating, list_names
from datamodules.recommender.reading.content_type import HEAD, detect_binary_format
from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.parquet_table import find_parts, parquet_schema, require_one_schema

_TABLES = (".parquet", ".csv", ".tsv", ".txt")
_RATINGS = ("userId", "movieId", "rating", "timestamp")
_PAPERS = re.compile(r"\d+([ \t])\d+(?:(?:\1[\d.]+)?\1\d+)?", re.ASCII)
_SEARCHED = "ratings.dat, u.data, ratings.csv, one *.inter, one table (" + ", ".join(f"*{end}" for end in _TABLES) + ")"


class Layout(NamedTuple):
    """Layout of a file of interactions."""

    kind: str  # name of the format, for messages
    path: Path
    user: str  # names of the three columns
    item: str
    time: str | None  # None: the rows of a user are in order
    columns: tuple[str, ...]  # all columns of the file, in order
    separator: str  # field separator; empty for Parquet
    header: bool = True
    quoted: bool = False  # whether fields may be in double quotes
    integer_ids: bool = False
    titles: Path | None = None  # separate file with the titles of the items
    rating: str | None = None  # None: ratings are not read
    parts: tuple[Path, ...] = ()  # files of a table that is a folder, in order

    @property
    def files(self) -> tuple[Path, ...]:
        """Files with the interactions, in order."""
        return self.parts or (self.path,)

    @property
    def folder(self) -> Path:
        """Folder with the interactions."""
        return self.path if self.parts else self.path.parent

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(name for name in (self.user, self.item, self.time, self.rating) if name is not None)


def detect_layout(
    source: Path, *, user_column: str | None = None, item_column: str | None = None, time_column: str | None = None
) -> Layout:
    """Detect the format of a file, or of the interactions in a folder.

    In files with a header, columns are selected by name: the given ones, else the first well-known name (`user_id`,
    `item_id`, `timestamp` and similar, case-insensitive). A table without a time column has the events of a user in
    order. If an unknown column has a name (or in Parquet, a type) like a time, `time_column` must name it or be
    `""`.

    Raises:
        FileNotFoundError: `source` does not exist.
        InteractionError: the format is unknown, there are several candidates, the file is empty or not text in UTF-8,
            or a column is missing.
    """
    source = Path(source)
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such file or folder; expected interactions ({_SEARCHED})")
    requested = (user_column, item_column, time_column)
    path, *others = _find(source) if source.is_dir() else (source,)
    if others:
        return _parquet(source, requested, (path, *others))
    if path.stat().st_size == 0:
        raise InteractionError(f"{path}: the file is empty; expected interactions, one per line")
    if path.name.endswith(".parquet"):
        return _parquet(path, requested)
    if foreign := detect_binary_format(path):
        raise InteractionError(f"{path}: {foreign}")
    first = read_first_line(path)
    if path.suffix == ".inter":
        titles = _if_file(path.with_suffix(".item"))
        return _text_layout("RecBole .inter", path, tuple(first.split("\t")), requested, separator="\t", titles=titles)
    if path.suffix == ".dat" and first.count("::") == 3:
        return _movielens("MovieLens ratings.dat", path, "::", "movies.dat")
    if path.name == "u.data" and first.count("\t") == 3:
        return _movielens("MovieLens u.data", path, "\t", "u.item")
    # Configured columns take precedence over a known format, whose columns are fixed.
    if path.name == "ratings.csv" and tuple(first.split(",")) == _RATINGS and requested == (None, None, None):
        return _movielens("MovieLens ratings.csv", path, ",", "movies.csv", header=True)
    if path.suffix == ".txt" and _PAPERS.fullmatch(first) and requested == (None, None, None):
        return _papers_file(path, first)
    if path.suffix in _TABLES:
        separator = separator_of(first)
        return _text_layout(
            f"{path.suffix} table", path, split_header(path, first, separator), requested, separator, quoted=True
        )
    raise InteractionError(f"{path}: not a known format. Looked for {_SEARCHED}; the first line is {first[:80]!r}")


def with_ratings(layout: Layout, rating_column: str | None = None) -> Layout:
    """Return the layout of a file whose ratings are read too.

    Args:
        layout: layout without ratings, from `detect_layout`.
        rating_column: name of the column; None for a well-known name (`rating`, `stars` and similar).

    Raises:
        InteractionError: there is no such column.
    """
    taken = (layout.user, layout.item, layout.time)
    rating = choose_rating(layout.path, layout.columns, rating_column, taken)
    if layout.parts:
        require_one_schema(layout.parts, (rating,))
    return layout._replace(rating=rating)


def _find(folder: Path) -> tuple[Path, ...]:
    """Return the file with the interactions of a folder, or the files of a Parquet table."""
    for name in ("ratings.dat", "u.data", "ratings.csv"):
        if (folder / name).is_file():
            return (folder / name,)
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    for ends in ((".inter",), _TABLES):
        files = [name for name in names if name.endswith(ends)]
        if len(files) > 1:
            # RecBole has NAME/NAME.inter beside the parts of its benchmark split.
            files = [name for name in files if Path(name).stem == folder.resolve().name] or files
        if files and files[0].endswith(".parquet"):  # a partitioned table beside it could hold them as well
            files += sorted(f"{path.name}/" for path in folder.glob("*=*") if path.is_dir())
        if len(files) == 1:
            return (folder / files[0],)
        if (
            all(name.endswith((".parquet", "/")) for name in files)
            and ends == _TABLES
            and (parts := find_parts(folder))
        ):
            return parts
        if files:
            raise InteractionError(
                f"{folder}: several files could hold the interactions ({list_names(files)}); give one, or the Parquet "
                "files of one table alone, in names that differ by numbers (part-0.parquet)"
            )
    raise InteractionError(f"{folder}: no interactions here. Looked for {_SEARCHED}; found {list_names(names)}")


def _parquet(path: Path, requested: tuple[str | None, str | None, str | None], parts: tuple[Path, ...] = ()) -> Layout:
    schema = parquet_schema(parts[0] if parts else path)
    dates = tuple(name for name, kind in schema.items() if kind.is_temporal())
    kind = f"Parquet table of {len(parts)} files" if parts else "Parquet table"
    layout = _text_layout(kind, path, tuple(schema), requested, separator="", dates=dates)._replace(parts=parts)
    require_one_schema(layout.files, layout.read_columns)
    return layout


def _movielens(kind: str, path: Path, separator: str, titles: str, header: bool = False) -> Layout:
    user, item, _, time = _RATINGS
    side_file = _if_file(path.with_name(titles))
    return Layout(
        kind=kind, path=path, user=user, item=item, time=time, columns=_RATINGS, separator=separator, header=header,
        integer_ids=True, titles=side_file,
    )  # fmt: skip


def _papers_file(path: Path, first: str) -> Layout:
    separator = "\t" if "\t" in first else " "
    user, item, rating, time = _RATINGS
    columns = {2: (user, item), 3: (user, item, time), 4: (user, item, rating, time)}[first.count(separator) + 1]
    known_time = time if time in columns else None
    kind = "SASRec or TiSASRec text file"
    return Layout(
        kind=kind, path=path, user=user, item=item, time=known_time, columns=columns, separator=separator,
        header=False, integer_ids=True,
    )  # fmt: skip


def _text_layout(
    kind: str,
    path: Path,
    columns: tuple[str, ...],
    requested: tuple[str | None, str | None, str | None],
    separator: str,
    quoted: bool = False,
    titles: Path | None = None,
    dates: tuple[str, ...] = (),
) -> Layout:
    user, item, time = choose_columns(path, columns, requested, dates)
    return Layout(
        kind=kind, path=path, user=user, item=item, time=time, columns=columns, separator=separator, quoted=quoted,
        titles=titles,
    )  # fmt: skip


def read_first_line(path: Path) -> str:
    """Return the first line of a text file.

    Raises:
        InteractionError: it is longer than `HEAD` bytes.
    """
    with path.open("rb") as file:
        line = file.readline(HEAD + 1)
    if len(line) > HEAD:
        raise InteractionError(f"{path}: line 1: longer than {HEAD} bytes, expected the names of columns or a row")
    # latin-1 would accept any bytes, but a header that is not UTF-8 must not match a known header.
    return line.decode("utf-8-sig", errors="replace").rstrip("\r\n")


def separator_of(header: str) -> str:
    """Return the separator of the fields of a header: the most frequent candidate."""
    # `max` returns the first of equal candidates, so a header of a single column gets the comma.
    return max(",\t;|", key=header.count)


def split_header(path: Path, header: str, separator: str) -> tuple[str, ...]:
    """Return the names of a header, which may be in quotes.

    Raises:
        InteractionError: its quotes are invalid.
    """
    try:
        return tuple(next(csv.reader([header], delimiter=separator, strict=True), ()))
    except csv.Error as error:
        raise InteractionError(
            f"{path}: line 1: found {header[:80]!r} ({error}), expected the names of the columns; a name in quotes "
            "ends with a quote, on the same line"
        ) from error


def _if_file(path: Path) -> Path | None:
    return path if path.is_file() else None
