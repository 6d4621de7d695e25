"""Defines the error of the readers, and the form of a value in its message."""

import json


class InteractionError(ValueError):
    """A source that cannot be read as interactions.

    The message names the location, the value found and the expected value.
    """


def preview(text: str, max_length: int = 60) -> str:
    """Return a text in quotes for a message, with at most `max_length` characters of it."""
    return repr(text if len(text) <= max_length else text[: max_length - 3] + "...")


def preview_json(value: object) -> str:
    """Return a value of a JSON file for a message, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "deeply nested JSON"
    return text if len(text) <= 60 else text[:57] + "..."


class SourceChangedError(InteractionError):
    """A source file was changed while it was read."""
