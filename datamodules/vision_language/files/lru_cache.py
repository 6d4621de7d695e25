"""Caches values within a budget, and evicts the least recently used value."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class SizedLRUCache(Generic[Value]):
    """Cache of the most recently used values within a budget.

    Args:
        budget: maximum sum of the sizes. A single value may be larger.
        size: function that returns the size of a value, in the unit of the budget.
    """

    def __init__(self, budget: int, size: Callable[[Value], int]) -> None:
        self.budget, self.size = budget, size
        self.used = 0
        """Sum of the sizes of the cached values."""
        self.misses = 0
        """Number of values that were made."""
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key; `make` is called on a miss."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = make()
        self._values[key] = value
        self.misses += 1
        self.used += self.size(value)
        while self.used > self.budget and len(self._values) > 1:
            self.used -= self.size(self._values.popitem(last=False)[1])
        return value
