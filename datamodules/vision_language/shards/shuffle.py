"""Shuffles streams of shards, in a new order each epoch, with a bounded number of samples in memory.

Shards exist to avoid random access. The shards of an epoch are therefore read in a random order, and their concatenated
samples are shuffled in windows. Both orders depend on (seed, epoch) only: the sample at a position is known without the
state of a generator, and shards before it need not be opened if their numbers of samples are known.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count, islice

from datamodules.vision_language.shards.shard import SampleLocation, Shard
from engine.determinism.stateless_rng import global_seed, hash_permutation

_SHARDS, _WINDOW = 1, 2  # hash keys of the two orders


class ShardOrder:
    """Order of the samples in training.

    Args:
        shards: the shards, in the same order on all ranks.
        shuffle_window: number of samples that are shuffled together; 1 keeps the order within a shard.
    """

    def __init__(self, shards: Sequence[Shard], shuffle_window: int) -> None:
        self.shards, self.shuffle_window = shards, shuffle_window

    @property
    def identity(self) -> str:
        """Hash of what determines the order besides seed and epoch; independent of the paths of indexed shards."""
        parts = [f"{shard.info.samples} {shard.info.files}" if shard.info else shard.name for shard in self.shards]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return f"{digest} ({len(self.shards)} shards, shuffle_window {self.shuffle_window})"

    def locations_from(self, epoch: int, start: int) -> Iterator[SampleLocation]:
        """Yield the locations of the samples of an epoch from a position on."""
        size, seed = self.shuffle_window, global_seed()
        # A window is permuted as a whole, so reading begins with the first sample of the window.
        sequence = self._sequence(epoch, start // size * size)
        for number in count(start // size):
            window: list[SampleLocation | None] = list(islice(sequence, size))
            if not window:
                return
            order = hash_permutation(len(window), seed, epoch, _WINDOW, number)
            for index in order[max(0, start - number * size) :].tolist():
                sample, window[index] = window[index], None  # frees its content before the end of the window
                assert sample is not None
                yield sample

    def _sequence(self, epoch: int, skip: int) -> Iterator[SampleLocation]:
        """Yield the samples of an epoch before shuffling, without the first `skip`."""
        for index in hash_permutation(len(self.shards), global_seed(), epoch, _SHARDS).tolist():
            shard = self.shards[index]
            if shard.info is not None and shard.info.samples <= skip:
                skip -= shard.info.samples
                continue
            for sample in shard.locations():
                if skip:
                    skip -= 1
                else:
                    yield sample
