"""Determines the order of the variants within a turn."""

from collections.abc import Iterable
from typing import TypeVar

_Variant = TypeVar("_Variant")


def turn_order(variants: Iterable[_Variant], turn: int) -> list[_Variant]:
    """Reverse the order in every other turn, because caches and heat carry over to the next variant."""
    return list(variants)[:: -1 if turn % 2 else 1]
