"""What a source of interactions is: one of the known file formats, recognised by its name and its first line.

=====================  ===============================================  ====================================
format                 file                                             columns
=====================  ===============================================  ====================================
MovieLens 1M, 10M      ``ratings.dat``, ``::`` between fields           user, item, rating, time; no header
MovieLens 100K         ``u.data``, tabs                                 user, item, rating, time; no header
MovieLens 20M and on   ``ratings.csv``                                  userId, movieId, rating, timestamp
RecBole                ``NAME.inter``, tabs, ``column:type`` header     user_id, item_id, timestamp
table                  ``.csv``, ``.tsv``, ``.txt`` (header), Parquet   well-known names, or those given
=====================  ===============================================  ====================================

A folder is searched in this order. MovieLens ids are integers; elsewhere an id is any text, and ``007`` is not ``7``.
"""

import csv
import difflib
from pathlib import Path
from typing import NamedTuple

_USER_NAMES = ("user_id", "userid", "user", "uid", "reviewerid", "visitorid", "customer_id")
_ITEM_NAMES = ("item_id", "itemid", "item", "iid", "movieid", "movie_id", "product_id", "parent_asin", "asin", "sid")
_TIME_NAMES = ("timestamp", "time", "ts", "unixreviewtime", "unix_timestamp", "event_time", "date")
_TABLES = (".parquet", ".csv", ".tsv", ".txt")
_RATINGS = ("userId", "movieId", "rating", "timestamp")
_SEARCHED = "ratings.dat, u.data, ratings.csv, one *.inter, one table (" + ", ".join(f"*{end}" for end in _TABLES) + ")"


class InteractionError(ValueError):
    """A source that cannot be read as interactions; the message says where, what was found and what was expected."""


class Layout(NamedTuple):
    """How the interactions lie in a file."""

    kind: str  # the format's name, for people
    path: Path
    user: str  # names of the three columns
    item: str
    time: str
    columns: tuple[str, ...]  # all columns of the file, in order
    separator: str  # between fields; empty for Parquet
    header: bool = True
    quoted: bool = False  # fields may stand in double quotes
    integer_ids: bool = False
    titles: Path | None = None  # side file with the items' titles


def detect(
    source: Path, *, user_column: str | None = None, item_column: str | None = None, time_column: str | None = None
) -> Layout:
    """Recognise a file, or the interactions in a folder.

    Columns are chosen by name in files that have a header: the given ones, else the first of the well-known names
    (``user_id``, ``item_id``, ``timestamp`` and their like, in any case).

    Raises:
        FileNotFoundError: there is nothing at ``source``.
        InteractionError: no known format, several candidates, an empty file or a missing column.
    """
    source = Path(source)
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such file or folder; expected interactions ({_SEARCHED})")
    path = _find(source) if source.is_dir() else source
    if path.stat().st_size == 0:
        raise InteractionError(f"{path}: the file is empty; expected interactions, one per line")
    wanted = (user_column, item_column, time_column)
    if path.name.endswith(".parquet"):
        return _table("Parquet table", path, _parquet_columns(path), wanted, separator="")
    first = _first_line(path)
    if path.suffix == ".inter":
        titles = _existing(path.with_suffix(".item"))
        return _table("RecBole .inter", path, tuple(first.split("\t")), wanted, separator="\t", titles=titles)
    if path.suffix == ".dat" and first.count("::") == 3:
        return _movielens("MovieLens ratings.dat", path, "::", "movies.dat")
    if path.name == "u.data" and first.count("\t") == 3:
        return _movielens("MovieLens u.data", path, "\t", "u.item")
    if path.name == "ratings.csv" and tuple(first.split(",")) == _RATINGS and not any(wanted):
        return _movielens("MovieLens ratings.csv", path, ",", "movies.csv", header=True)
    if path.suffix in _TABLES:
        separator = _separator(first)
        return _table(f"{path.suffix} table", path, _split_header(first, separator), wanted, separator, quoted=True)
    raise InteractionError(f"{path}: not a known format. Looked for {_SEARCHED}; the first line is {first[:80]!r}")


def _find(folder: Path) -> Path:
    for name in ("ratings.dat", "u.data", "ratings.csv"):
        if (folder / name).is_file():
            return folder / name
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    for ends in ((".inter",), _TABLES):
        found = [name for name in names if name.endswith(ends)]
        if len(found) > 1:
            # RecBole keeps NAME/NAME.inter beside the parts of its benchmark split.
            found = [name for name in found if Path(name).stem == folder.resolve().name] or found
        if len(found) > 1:
            raise InteractionError(f"{folder}: several files could hold the interactions ({_some(found)}); give one")
        if found:
            return folder / found[0]
    raise InteractionError(f"{folder}: no interactions here. Looked for {_SEARCHED}; found {_some(names)}")


def _movielens(kind: str, path: Path, separator: str, titles: str, header: bool = False) -> Layout:
    user, item, _, time = _RATINGS
    side_file = _existing(path.with_name(titles))
    return Layout(kind, path, user, item, time, _RATINGS, separator, header, integer_ids=True, titles=side_file)


def _table(
    kind: str,
    path: Path,
    columns: tuple[str, ...],
    wanted: tuple[str | None, str | None, str | None],
    separator: str,
    quoted: bool = False,
    titles: Path | None = None,
) -> Layout:
    if len(set(columns)) < len(columns):
        raise InteractionError(f"{path}: line 1: a column name stands there twice: {_some(columns)}")
    known = (("user", _USER_NAMES), ("item", _ITEM_NAMES), ("time", _TIME_NAMES))
    chosen = [_choose(path, columns, role, name, names) for (role, names), name in zip(known, wanted, strict=True)]
    if len(set(chosen)) < 3:
        raise InteractionError(f"{path}: user, item and time must be three columns, got {_some(chosen)}")
    return Layout(kind, path, *chosen, columns, separator, quoted=quoted, titles=titles)


def _choose(path: Path, columns: tuple[str, ...], role: str, wanted: str | None, known: tuple[str, ...]) -> str:
    """The column that is ``wanted``, or a well-known one. RecBole's ``name:type`` answers to ``name`` too."""
    plain = {column.partition(":")[0]: column for column in columns} | {column: column for column in columns}
    if wanted is not None:
        if wanted in plain:
            return plain[wanted]
        nearest = difflib.get_close_matches(wanted, plain, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise InteractionError(f"{path}: no column {wanted!r} ({role}_column). Its columns: {_some(columns)}{hint}")
    lowered = {name.lower(): column for name, column in plain.items()}
    for name in known:
        if name in lowered:
            return lowered[name]
    nearest = [match for name in known[:3] for match in difflib.get_close_matches(name, lowered, n=1)]
    hint = f"; the nearest is {lowered[nearest[0]]!r}" if nearest else ""
    raise InteractionError(
        f"{path}: no {role} column. Its columns: {_some(columns)}; looked for {_some(known)}{hint}. "
        f"Name it with {role}_column"
    )


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        line = file.readline(1 << 16)
    # latin-1 would take anything; a header that is not UTF-8 must not be mistaken for a known one.
    return line.decode("utf-8-sig", errors="replace").rstrip("\r\n")


def _separator(header: str) -> str:
    return max(",\t;|", key=header.count)


def _split_header(header: str, separator: str) -> tuple[str, ...]:
    return tuple(next(csv.reader([header], delimiter=separator), ()))


def _parquet_columns(path: Path) -> tuple[str, ...]:
    import polars as pl

    try:
        return tuple(pl.read_parquet_schema(path))
    except pl.exceptions.PolarsError as error:
        raise InteractionError(f"{path}: not a whole Parquet file ({error})") from error


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _some(names: tuple[str, ...] | list[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return (shown + (f" and {len(names) - most} more" if len(names) > most else "")) or "nothing"
