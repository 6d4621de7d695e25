"""Shortens lists of names in messages."""

from collections.abc import Sequence


def join_names(names: Sequence[object], limit: int, further: str = "") -> str:
    """Return the first names, separated by commas, and the number of the others: `a, b and 3 more`.

    Args:
        names: names, numbers or texts.
        limit: largest number of names to list.
        further: text after the number of the others, such as where they are listed.
    """
    num_omitted = len(names) - limit
    return ", ".join(map(str, names[:limit])) + (f" and {num_omitted} more{further}" if num_omitted > 0 else "")
