"""What was used last, within a budget."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Keeps what was used last; what was not used for longest goes first.

    Args:
        budget: the most that the values' sizes may sum up to. A single one may be larger.
        size: of a value, in the budget's unit.
    """

    def __init__(self, budget: int, size: Callable[[Value], int]) -> None:
        self.budget, self.size = budget, size
        self.used = self.made = 0
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key, made if it is not there."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = self._values[key] = make()
        self.made += 1
        self.used += self.size(value)
        while self.used > self.budget and len(self._values) > 1:
            self.used -= self.size(self._values.popitem(last=False)[1])
        return value
