"""The samples of shards in another order each epoch, with little of them in memory.

Reading at random is what shards are there to avoid. So the shards of an epoch come in a random order, and what they
hold, one after the other, is shuffled in windows of so many samples. Both follow from (seed, epoch) alone: which sample
stands at a position is known without a generator's state, and where it is known how many samples a shard has, it need
not be opened for those of others.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count, islice

from datamodules.vision_language.shards.shard import Place, Shard
from engine.randomness import global_seed, hash_permutation

_SHARDS, _WINDOW = 1, 2  # what else is hashed of the same seed and epoch


class ShardOrder:
    """The order of training.

    Args:
        shards: in any order; the same on all processes.
        shuffle_window: samples that are shuffled with each other; 1: those of a shard stay in their order.
    """

    def __init__(self, shards: Sequence[Shard], shuffle_window: int) -> None:
        self.shards, self.shuffle_window = shards, shuffle_window

    @property
    def identity(self) -> str:
        """What the order depends on, beside seed and epoch; not where the shards lie, if they are known."""
        parts = [f"{shard.known.samples} {shard.known.files}" if shard.known else shard.name for shard in self.shards]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return f"{digest} ({len(self.shards)} shards, shuffle_window {self.shuffle_window})"

    def places_from(self, epoch: int, start: int) -> Iterator[Place]:
        """Where the samples of an epoch are, from a position on."""
        size, seed = self.shuffle_window, global_seed()
        sequence = self._sequence(epoch, start // size * size)
        for number in count(start // size):
            window: list[Place | None] = list(islice(sequence, size))
            if not window:
                return
            order = hash_permutation(len(window), seed, epoch, _WINDOW, number)
            for place in order[max(0, start - number * size) :].tolist():
                sample, window[place] = window[place], None  # its contents need not stay until the window's end
                assert sample is not None
                yield sample

    def _sequence(self, epoch: int, skip: int) -> Iterator[Place]:
        """The samples of an epoch before they are shuffled, without the first `skip`."""
        for place in hash_permutation(len(self.shards), global_seed(), epoch, _SHARDS).tolist():
            shard = self.shards[place]
            if shard.known is not None and shard.known.samples <= skip:
                skip -= shard.known.samples
                continue
            for sample in shard.places():
                if skip:
                    skip -= 1
                else:
                    yield sample
