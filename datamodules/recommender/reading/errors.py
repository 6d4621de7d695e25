"""Defines the error of the readers, and the form of a value in its message."""

import json


class InteractionError(ValueError):
    """A source that cannot be read as interactions.

    The message names the location, the value found and the expected value.
    """


def preview(text: str, most: int = 60) -> str:
    """Return a text in quotes for a message, with at most ``most`` characters of it."""
    return repr(text if len(text) <= most else text[: most - 3] + "...")


def preview_json(value: object) -> str:
    """Return a value of a JSON file for a message, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "deeply nested JSON"
    return text if len(text) <= 60 else text[:57] + "..."
