"""Refusal of data without the times that a model reads."""

from pathlib import Path

from datamodules.recommender.store.interaction_store import InteractionStore


def require_times(events: InteractionStore, source: Path, reader: str) -> None:
    """Raise ValueError if the source has no times.

    Args:
        events: events of all users.
        source: their file or folder, for the message.
        reader: what reads the times, for the message.
    """
    if not events.has_times:
        raise ValueError(
            f"{source}: found no time column, and {reader} reads times; name the column with data.init_args.time_column"
        )


def require_key(path: str | None, line: int | None, key: str, reader: str) -> None:
    """Raise ValueError if a line of a file of histories lacks a key.

    Args:
        path: the file, for the message.
        line: first line without the key, from 1; None if all lines have it.
        key: `times` or `at`.
        reader: what reads it, for the message.
    """
    if line is not None:
        what = "the time of the request" if key == "at" else key
        raise ValueError(f"{path}: line {line}: found no key {key!r}, and {reader} reads {what}; add it to every line")
