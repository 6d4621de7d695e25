"""Sums counters over all ranks once per optimizer step.

The sums travel in the all-reduce that the exact loss mean needs anyway (`engine.optim.global_loss_mean`), so they cost
no further collective. A rank never acts on an event that only it has seen (a signal, a failed write): it adds to a
counter, and after the step all ranks read the same total and take the same decision.
"""

from torch import Tensor

from engine.distributed.device_numbers import is_host

_POLL_SECONDS = 2.0  # target time between two polls
_MAX_POLL_STEPS = 10  # slow steps may follow fast steps, so the interval is bounded in steps too


class StepCounters:
    """Named totals over all ranks and steps, equal on every rank.

    Reading a total waits for the device. On a GPU, read it every few steps, at the same steps on all ranks.
    """

    def __init__(self) -> None:
        self._pending: dict[str, float] = {}
        self._totals: Tensor | list[float] | None = None  # a list on a CPU, where tensors would be slower

    def register(self, name: str) -> None:
        """Create a counter, and reset the totals of all counters.

        Every rank must register the same names, in the same order, before the first step ends.
        """
        self._pending.setdefault(name, 0.0)
        self._totals = None

    def add(self, name: str, value: float = 1.0) -> None:
        """Add a value to this rank's share of a counter. May be called from a signal handler.

        The total includes the value from the end of the next step on.
        """
        self._pending[name] += value

    def total(self, name: str) -> float:
        """Return the sum over all ranks up to the last step.

        Raises:
            KeyError: the counter is not registered.
        """
        if name not in self._pending:
            raise KeyError(f"counter {name!r} is not registered; registered are {sorted(self._pending)}")
        # Counters have the order of their registration, which is the same on every rank.
        return 0.0 if self._totals is None else float(self._totals[list(self._pending).index(name)])

    def pop_pending(self) -> list[float]:
        """Return this rank's additions to each counter since the last step, and reset them."""
        values = dict(self._pending)
        for name, value in values.items():
            self._pending[name] -= value  # not `= 0`: a signal handler may have added since the copy
        return list(values.values())

    def accumulate(self, sums: Tensor) -> None:
        """Add [counters], the all-reduced additions of a step, to the totals."""
        if is_host(sums.device):
            before = self._totals if isinstance(self._totals, list) else [0.0] * len(sums)
            self._totals = [total + added for total, added in zip(before, sums.tolist(), strict=True)]
        else:
            # The sum stays on the device: reading it here would wait for the device in every step.
            self._totals = self._totals + sums if isinstance(self._totals, Tensor) else sums


class PollSchedule:
    """Decides at which steps the counters are read.

    All ranks poll at the same steps, provided that all pass the same `seconds` to `record`.

    Args:
        every: steps between two polls. None: as many steps as take about 2 seconds, 10 at most.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._next_step = 0
        self._last: tuple[int, float] | None = None  # step and seconds of the previous poll

    @property
    def is_adaptive(self) -> bool:
        """Whether the time between polls decides when the next is due; otherwise `record` has no effect."""
        return self._every is None

    def due(self, step: int) -> bool:
        """Return whether to poll after this step."""
        return step % self._every == 0 if self._every else step >= self._next_step

    def record(self, step: int, seconds: float) -> None:
        """Record a poll.

        Args:
            step: number of finished steps.
            seconds: time that all steps so far have taken, equal on all ranks.
        """
        interval = 1  # the first poll does not know yet how long a step takes
        if self._last is not None and step > self._last[0]:
            # Mean seconds of a step since the previous poll.
            step_seconds = (seconds - self._last[1]) / (step - self._last[0])
            fast = step_seconds * _MAX_POLL_STEPS <= _POLL_SECONDS
            interval = _MAX_POLL_STEPS if fast else max(1, int(_POLL_SECONDS / step_seconds))
        self._last, self._next_step = (step, seconds), step + interval
