"""Explains the errors of Python's csv module, whose texts name its options and no remedy."""

import csv


def describe_csv_error(error: csv.Error) -> str:
    """Return what is wrong with a line of a table, and what to do.

    Args:
        error: of a reader with ``strict=True``.
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
