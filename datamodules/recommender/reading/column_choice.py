"""Chooses the columns of user, item and time in a table, by configured or well-known names."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from datamodules.recommender.reading.errors import InteractionError, preview

_USER_NAMES = ("user_id", "userid", "user", "uid", "reviewerid", "visitorid", "customer_id")
_ITEM_NAMES = ("item_id", "itemid", "item", "iid", "movieid", "movie_id", "product_id", "parent_asin", "asin", "sid")
_TIME_NAMES = ("timestamp", "time", "ts", "unixreviewtime", "unix_timestamp", "event_time", "date")
_RATING_NAMES = ("rating", "ratings", "overall", "stars", "score")
_TIME_WORDS = {"time", "times", "timestamp", "stamp", "date", "datetime", "day", "when", "at", "on", "created", "year"}


def choose_columns(
    path: Path,
    columns: tuple[str, ...],
    requested: tuple[str | None, str | None, str | None],
    dates: tuple[str, ...] = (),
) -> tuple[str, str, str | None]:
    """Return the columns of user, item and time.

    Args:
        path: the file, for messages.
        columns: all columns, in order.
        requested: configured names of the three; None for a well-known name, and for the time `""` for none.
        dates: columns whose type is a time.

    Returns:
        The three names. The time is None if no column has a known name and none looks like a time.

    Raises:
        InteractionError: a column is missing or ambiguous.
    """
    if len(set(columns)) < len(columns):
        raise InteractionError(f"{path}: line 1: a column name occurs twice: {list_names(columns)}")
    user = _choose(path, columns, "user", requested[0], _USER_NAMES)
    item = _choose(path, columns, "item", requested[1], _ITEM_NAMES)
    time = _choose_time(path, columns, requested[2], dates, (user, item))
    columns_found = [name for name in (user, item, time) if name is not None]
    if len(set(columns_found)) < len(columns_found):
        raise InteractionError(f"{path}: user, item and time must be three columns, got {list_names(columns_found)}")
    return user, item, time


def choose_rating(path: Path, columns: tuple[str, ...], requested: str | None, taken: tuple[str | None, ...]) -> str:
    """Return the column of ratings.

    Args:
        path: the file, for messages.
        columns: all columns, in order.
        requested: configured name; None for a well-known name.
        taken: columns of user, item and time.

    Raises:
        InteractionError: the file has no such column, or it is another column already.
    """
    rating = _choose(path, columns, "rating", requested, _RATING_NAMES)
    if rating in taken:
        raise InteractionError(f"{path}: rating_column: {preview(rating)} is the user, item or time already")
    return rating


def choose_item(path: Path, columns: tuple[str, ...], requested: str | None, option: str) -> str:
    """Return the column of the item in a table of items.

    Args:
        path: the file, for messages.
        columns: all columns, in order.
        requested: configured name; None for a well-known name.
        option: option that holds `item_column`, for messages.

    Raises:
        InteractionError: the file has no such column, or a column name occurs twice.
    """
    if len(set(columns)) < len(columns):
        raise InteractionError(f"{path}: line 1: a column name occurs twice: {list_names(columns)}")
    return _choose(path, columns, "item", requested, _ITEM_NAMES, f"{option}.item_column")


def choose_named(path: Path, columns: tuple[str, ...], requested: Sequence[str], option: str) -> list[str]:
    """Return configured columns, in the order of their names in the config.

    Args:
        path: the file, for messages.
        columns: all columns, in order.
        requested: configured names.
        option: option that names the columns, for messages.

    Raises:
        InteractionError: the file has no such column.
    """
    return [_choose(path, columns, name, name, (), option) for name in requested]


def _choose_time(
    path: Path, columns: tuple[str, ...], requested: str | None, dates: tuple[str, ...], taken: tuple[str, ...]
) -> str | None:
    """Return the column of times; None if no column has a known name and none looks like a time."""
    names = {column.partition(":")[0].lower() for column in columns}
    if requested or (requested is None and not names.isdisjoint(_TIME_NAMES)):
        return _choose(path, columns, "time", requested, _TIME_NAMES)
    free = [column for column in columns if column not in taken]
    similar = [column for column in free if column in dates or resembles_time(column)]
    if similar and requested is None:
        raise InteractionError(
            f"{path}: no time column. Its columns: {list_names(columns)}; is it {similar[0]!r}? Name it with "
            'time_column, or set time_column to "" if the rows of a user are in order'
        )
    return None


def resembles_time(column: str) -> bool:
    """Return whether the name of a column suggests a time."""
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", column.partition(":")[0])}
    near = difflib.get_close_matches(column.partition(":")[0].lower(), ("timestamp", "time"), cutoff=0.75)
    return bool(near) or not words.isdisjoint(_TIME_WORDS)


def _choose(
    path: Path,
    columns: tuple[str, ...],
    role: str,
    requested: str | None,
    usual_names: tuple[str, ...],
    option: str | None = None,
) -> str:
    """Return the column that is `requested`, or a column with a well-known name.

    A RecBole column `name:type` also matches `name`. `option` is the option that names the column.
    """
    option = option or f"{role}_column"
    # The right operand wins: an exact name comes before a name without its RecBole type.
    plain = {column.partition(":")[0]: column for column in columns} | {column: column for column in columns}
    if requested is not None:
        if requested in plain:
            return plain[requested]
        nearest = difflib.get_close_matches(requested, plain, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise InteractionError(
            f"{path}: no column {preview(requested)} ({option}). Its columns: {list_names(columns)}{hint}"
        )
    lowered = {name.lower(): column for name, column in plain.items()}
    for name in usual_names:
        if name in lowered:
            return lowered[name]
    nearest = [match for name in usual_names[:3] for match in difflib.get_close_matches(name, lowered, n=1)]
    hint = f"; the nearest is {lowered[nearest[0]]!r}" if nearest else ""
    raise InteractionError(
        f"{path}: no {role} column. Its columns: {list_names(columns)}; looked for {list_names(usual_names)}{hint}. "
        f"Name it with {option}"
    )


def list_names(names: Sequence[str], limit: int = 12) -> str:
    """Return names for a message."""
    listed = ", ".join(preview(name, 40) for name in names[:limit])
    return (listed + (f" and {len(names) - limit} more" if len(names) > limit else "")) or "nothing"
