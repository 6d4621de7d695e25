"""Defines the error of the readers, and the form of a value in its message."""


class InteractionError(ValueError):
    """A source that cannot be read as interactions.

    The message names the place, the value found and the expected value.
    """


def preview(text: str, most: int = 60) -> str:
    """Return a text in quotes for a message, with at most ``most`` characters of it."""
    return repr(text if len(text) <= most else text[: most - 3] + "...")
