"""Checks numbers: whether a value of a file is a number, and whether a number of a config lies in its range."""

import math
from collections.abc import Mapping
from typing import TypeGuard


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is an integer or a float, NaN included. A bool, which is an int in Python, is neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer. A bool, which is an int in Python, is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_number(
    key: str,
    value: float | None,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> None:
    """Check a number of a config.

    Args:
        key: dotted key, for the message.
        value: number; None passes, since the type of the option states whether null is one of its values.
        at_least: smallest value.
        above: bound that the value must exceed.
        at_most: largest value.
        below: bound that the value must stay below.

    Raises:
        ValueError: the number is outside the range, infinite or NaN.
    """
    if value is None:
        return
    bounds = {"at least": at_least, "more than": above, "at most": at_most, "less than": below}
    holds = (
        math.isfinite(value)
        and (at_least is None or value >= at_least)
        and (above is None or value > above)
        and (at_most is None or value <= at_most)
        and (below is None or value < below)
    )
    if not holds:
        expected = " and ".join(f"{words} {bound}" for words, bound in bounds.items() if bound is not None)
        raise ValueError(f"{key} must be {expected or 'finite'}, got {value}")


def check_numbers(prefix: str, values: Mapping[str, float | None], **bounds: float) -> None:
    """Check several numbers of a config against the same range.

    Args:
        prefix: beginning of their keys, with a dot.
        values: {rest of the key: number}.
        bounds: see `check_number`.

    Raises:
        ValueError: a number is outside the range, infinite or NaN.
    """
    for name, value in values.items():
        check_number(prefix + name, value, **bounds)
