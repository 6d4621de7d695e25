"""Shortens the text of an error to its first line, for messages that name the cause of another error."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its type if it has no text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def first_line_with_type(error: BaseException) -> str:
    """Return the name of an error's type and the first line of its text, if it has any: `OSError: disk full`."""
    kind = type(error).__name__
    return f"{kind}: {first_line(error)}" if str(error).strip() else kind
