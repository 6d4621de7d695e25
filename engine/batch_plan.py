"""How a global batch is split over processes and micro-batches, and the arithmetic of it in one line."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchPlan:
    """``batch_size = processes x micro_batch_size x accumulation``, all of them whole numbers.

    Attributes:
        batch_size: samples of one optimizer step, over all processes.
        micro_batch_size: samples that one process computes at once.
        accumulation: micro-batches of one process in an optimizer step.
    """

    batch_size: int
    processes: int
    micro_batch_size: int
    accumulation: int

    @classmethod
    def derive(
        cls,
        *,
        processes: int,
        batch_size: int | None = None,
        batch_size_per_device: int | None = None,
        micro_batch_size: int | None = None,
    ) -> "BatchPlan":
        """The plan for exactly one of ``batch_size`` (global) and ``batch_size_per_device``.

        ``micro_batch_size`` is the most that fits one device; without it a process computes its share at once.

        Raises:
            ValueError: when both or neither batch size is given, or a split does not come out even.
        """
        if (batch_size is None) == (batch_size_per_device is None):
            raise ValueError(
                "give exactly one of data.batch_size (samples of an optimizer step over all processes) and "
                f"data.batch_size_per_device; got batch_size={batch_size} and "
                f"batch_size_per_device={batch_size_per_device}"
            )
        if batch_size is None:
            assert batch_size_per_device is not None
            _require_positive("data.batch_size_per_device", batch_size_per_device)
            batch_size = batch_size_per_device * processes
        _require_positive("data.batch_size", batch_size)
        if batch_size % processes:
            raise ValueError(
                f"data.batch_size {batch_size} does not split evenly over {processes} processes; "
                f"the nearest that do are {_nearest_multiples(batch_size, processes)}"
            )
        share = batch_size // processes
        micro = share if micro_batch_size is None else micro_batch_size
        _require_positive("data.micro_batch_size", micro)
        micro = min(micro, share)
        if share % micro:
            divisors = [size for size in range(1, share + 1) if share % size == 0]
            nearest = sorted(divisors, key=lambda size: abs(size - micro))[:2]
            raise ValueError(
                f"data.micro_batch_size {micro} does not divide the {share} samples of one process "
                f"(batch size {batch_size} / {processes} processes); the nearest that do are "
                + " and ".join(map(str, sorted(nearest)))
            )
        return cls(batch_size, processes, micro, share // micro)

    def halved(self) -> "BatchPlan | None":
        """The same global batch with half as many samples at once, or the nearest fewer; None when there is only one.
        """
        share = self.micro_batch_size * self.accumulation
        smaller = [size for size in range(1, self.micro_batch_size // 2 + 1) if share % size == 0]
        return BatchPlan(self.batch_size, self.processes, smaller[-1], share // smaller[-1]) if smaller else None

    def __str__(self) -> str:
        return (
            f"global batch {self.batch_size} = {self.processes} process{'es' * (self.processes != 1)} "
            f"x {self.micro_batch_size} samples x {self.accumulation} accumulation step{'s' * (self.accumulation != 1)}"
        )


def _require_positive(key: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{key} must be at least 1, got {value}")


def _nearest_multiples(number: int, factor: int) -> str:
    below = number // factor * factor
    return f"{below} and {below + factor}" if below else str(factor)
