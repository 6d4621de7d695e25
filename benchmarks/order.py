"""The order of the sides within a turn."""

from collections.abc import Iterable
from typing import TypeVar

_Side = TypeVar("_Side")


def in_order(sides: Iterable[_Side], turn: int) -> list[_Side]:
    """Turned round every other turn: what a side leaves behind, in caches or as heat, meets another one each time."""
    return list(sides)[:: -1 if turn % 2 else 1]
