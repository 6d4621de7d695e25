"""Limits the fields of Python's csv module, and explains its errors, whose texts name its options and no remedy."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def field_limit(size: int) -> Iterator[None]:
    """Let the csv module accept fields of up to `size` characters inside the context, and none that is longer.

    The limit is the process's. Its default, 128 KiB, is less than a long series, and importing scipy.io lifts it.
    """
    before = csv.field_size_limit(size)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def describe_csv_error(error: csv.Error) -> str:
    """Return what is wrong with a line of a table, and what to do.

    Args:
        error: of a reader with `strict=True`.
    """
    text = str(error)
    if "new-line character" in text:
        return "lines that end with CR alone; end them with LF: tr '\\r' '\\n' < OLD > NEW"
    if "unexpected end of data" in text:
        return "quotes that are not closed; write a field with a quote in quotes, and that quote twice"
    if "expected after" in text:
        return "text after the quotes of a field; write a field with a quote in quotes, and that quote twice"
    if "field limit" in text:
        return "a field that is too long; its quotes may not be closed"
    return f"an invalid line ({text})"
