"""When to look at what all processes have agreed: a look waits for the device, so not at every fast step."""

_PERIOD = 2.0
"""Seconds between two looks, about."""
_MOST_STEPS = 10
"""Steps between two looks: a time measured over fast steps says nothing of slow ones that may follow."""


class Looks:
    """Every so many steps, or as many as take about two seconds, ten at most.

    All processes look at the same steps as long as they give the same `seconds`.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._next = 0
        self._last: tuple[int, float] | None = None  # step and seconds of the look before

    def due(self, step: int) -> bool:
        """Whether to look after so many steps."""
        return step % self._every == 0 if self._every else step >= self._next

    def looked(self, step: int, seconds: float) -> None:
        """To be told at every look: the seconds that all steps so far have taken, alike on all processes."""
        steps = 1  # how long a step takes is known from the second look on
        if self._last is not None and step > self._last[0]:
            each = (seconds - self._last[1]) / (step - self._last[0])
            steps = _MOST_STEPS if each * _MOST_STEPS <= _PERIOD else max(1, int(_PERIOD / each))
        self._last, self._next = (step, seconds), step + steps
