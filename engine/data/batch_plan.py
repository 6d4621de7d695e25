"""Splits a global batch over ranks and micro-batches."""

from dataclasses import dataclass, replace

from engine.number_check import check_number


@dataclass(frozen=True)
class BatchPlan:
    """`batch_size = world_size x micro_batch_size x accumulation`, all of them integers.

    Attributes:
        batch_size: samples of one optimizer step, over all ranks.
        world_size: number of data-parallel ranks, see DataParallelRank.
        micro_batch_size: samples that a rank computes at once.
        accumulation: micro-batches of one rank in an optimizer step.
        group_size: ranks of each tensor-parallel group, which read the same samples and count as one in `world_size`.
    """

    batch_size: int
    world_size: int
    micro_batch_size: int
    accumulation: int
    group_size: int = 1

    @classmethod
    def derive(
        cls,
        *,
        world_size: int,
        batch_size: int | None = None,
        batch_size_per_device: int | None = None,
        micro_batch_size: int | None = None,
        group_size: int = 1,
    ) -> "BatchPlan":
        """Derive the plan from the settings.

        Args:
            world_size: number of data-parallel ranks, see DataParallelRank.
            batch_size: global batch size. Give exactly one of this and `batch_size_per_device`.
            batch_size_per_device: samples of one optimizer step on each rank.
            micro_batch_size: upper limit for a micro-batch. None: the whole share of a rank.
            group_size: ranks of each tensor-parallel group, 1 without tensor parallelism.

        Raises:
            ValueError: both or neither batch size is given, a size is below 1, or a split has a remainder.
        """
        batch_size = _global_batch_size(world_size, batch_size, batch_size_per_device)
        # Global batch -> ranks. A remainder would give ranks different numbers of samples in every step.
        if batch_size % world_size:
            raise ValueError(
                f"data.init_args.batch_size {batch_size} does not split evenly over "
                f"{_describe_ranks(world_size, group_size)}; "
                f"the nearest that do are {_nearest_multiples(batch_size, world_size)}"
            )
        share = batch_size // world_size
        # `micro_batch_size` is a limit, so a value above the share of a rank is not an error.
        micro = share if micro_batch_size is None else micro_batch_size
        check_number("data.init_args.micro_batch_size", micro, at_least=1)
        micro = min(micro, share)
        # Share of a rank -> micro-batches of equal size, so that all ranks accumulate equally often.
        if share % micro:
            divisors = [size for size in range(1, share + 1) if share % size == 0]
            nearest = sorted(divisors, key=lambda size: abs(size - micro))[:2]
            raise ValueError(
                f"data.init_args.micro_batch_size {micro} does not divide the {share} samples of one rank "
                f"(batch size {batch_size} / {_describe_ranks(world_size, group_size)}); the nearest that do are "
                + " and ".join(map(str, sorted(nearest)))
            )
        return cls(batch_size, world_size, micro, share // micro, group_size)

    def halved(self) -> "BatchPlan | None":
        """Return the same global batch with micro-batches of half the size, or None if they have one sample.

        If the half is not a divisor of a rank's share, the next smaller divisor is taken.
        """
        share = self.micro_batch_size * self.accumulation
        smaller = [size for size in range(1, self.micro_batch_size // 2 + 1) if share % size == 0]
        if not smaller:
            return None
        return replace(self, micro_batch_size=smaller[-1], accumulation=share // smaller[-1])

    def __str__(self) -> str:
        return (
            f"global batch {self.batch_size} = {_describe_ranks(self.world_size, self.group_size)} "
            f"x {self.micro_batch_size} samples x {self.accumulation} accumulation step{'s' * (self.accumulation != 1)}"
        )


def _describe_ranks(world_size: int, group_size: int) -> str:
    """Return `4 ranks`, or `2 groups of 4 ranks` with tensor parallelism."""
    if group_size == 1:
        return f"{world_size} rank{'s' * (world_size != 1)}"
    return f"{world_size} group{'s' * (world_size != 1)} of {group_size} ranks"


def _global_batch_size(world_size: int, batch_size: int | None, batch_size_per_device: int | None) -> int:
    """Return the samples of an optimizer step over all ranks, given exactly one of the two sizes."""
    if (batch_size is None) == (batch_size_per_device is None):
        raise ValueError(
            "give exactly one of data.init_args.batch_size (samples of an optimizer step over all ranks) and "
            f"data.init_args.batch_size_per_device; got batch_size={batch_size} and "
            f"batch_size_per_device={batch_size_per_device}"
        )
    if batch_size is None:
        assert batch_size_per_device is not None
        check_number("data.init_args.batch_size_per_device", batch_size_per_device, at_least=1)
        batch_size = batch_size_per_device * world_size
    check_number("data.init_args.batch_size", batch_size, at_least=1)
    return batch_size


def _nearest_multiples(number: int, factor: int) -> str:
    below = number // factor * factor
    return f"{below} and {below + factor}" if below else str(factor)
