"""Determines the order of the sides within a turn."""

from collections.abc import Iterable
from typing import TypeVar

_Side = TypeVar("_Side")


def in_order(sides: Iterable[_Side], turn: int) -> list[_Side]:
    """Reverse the order in every other turn, because caches and heat carry over to the next side."""
    return list(sides)[:: -1 if turn % 2 else 1]
