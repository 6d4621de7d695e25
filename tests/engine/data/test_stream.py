"""Any number of ranks and workers reads the same global batches of a stream, from any position on."""

from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data.samplers import PADDING_INDEX, EvaluationSampler, TrainSampler
from engine.data.stream import EpochEndCheck, StreamBatches, StreamDataset


class Letters(StreamDataset):
    """Each record is its position. Counts the records that are read."""

    def __init__(self, length):
        self.length, self.read = length, 0

    def records(self, epoch):
        for position in range(self.length):
            self.read += 1
            yield epoch * 1000 + position

    def batch(self, epoch, positions, records):
        assert len(positions) == len(records) > 0
        if positions.tolist() != [PADDING_INDEX]:
            assert records == [epoch * 1000 + position for position in positions]
            return records
        assert records[0] // 1000 == epoch, "padding is made of a record of the same epoch"
        return []


class Seekable(Letters):
    def records_from(self, epoch, start):
        self.read += self.length - start
        return iter(range(epoch * 1000 + start, epoch * 1000 + self.length))


def micro_batches(sampler, data, workers, count=200):
    """Return the micro-batches of a DataLoader with this many workers, which take its requests round-robin."""
    copies = [data() for _ in range(max(workers, 1))]
    draws = (copies[turn % len(copies)][draw] for turn, draw in zip(range(count), sampler, strict=False))
    return [streamed.batch for streamed in takewhile(lambda streamed: streamed.records, draws)]


def trained(length, size, processes=1, accumulation=1, workers=0, resume=(0, 0), kind=Letters):
    """Return the global batches of all ranks in an epoch."""
    parts = []
    for process in range(processes):
        sampler = TrainSampler(
            None, size, seed=1, rank=process, world_size=processes, accumulation=accumulation, resume=resume
        )
        own = slice(process, None, processes)
        parts.append(micro_batches(sampler, lambda own=own: StreamBatches(kind(length), size, own), workers))
    assert len({len(part) for part in parts}) == 1, "a rank would wait for the others"
    steps = range(0, len(parts[0]), accumulation)
    return [sorted(sum((sum(part[step : step + accumulation], []) for part in parts), [])) for step in steps]


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)
)
def test_global_batches_do_not_depend_on_processes_or_workers(length, share, processes, accumulation, workers, done):
    size = share * processes * accumulation
    whole = [list(range(start, min(start + size, length))) for start in range(0, length, size)]
    for kind in (Letters, Seekable):
        assert trained(length, size, processes, accumulation, workers, kind=kind) == whole
        left = trained(length, size, processes, accumulation, workers, resume=(0, done), kind=kind)
        assert left == whole[done:]


@pytest.mark.parametrize("kind", [Letters, Seekable])
def test_a_stream_restarts_for_each_validation(kind):
    """All evaluations are of epoch 0 and use the same object."""
    batches, sampler = StreamBatches(kind(10), 4, slice(0, 4)), EvaluationSampler(None, 4)
    first, second = (micro_batches(sampler, lambda: batches, workers=0) for _ in range(2))
    assert first == second == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(1, 7), st.integers(1, 4), st.integers(0, 3))
def test_evaluation_sees_every_record_once_in_the_same_batches(length, size, processes, workers):
    parts = []
    for process in range(processes):
        own = slice(process * size, (process + 1) * size)
        sampler = EvaluationSampler(None, size, rank=process, world_size=processes)
        data = lambda own=own: StreamBatches(Letters(length), size * processes, own)  # noqa: E731
        parts.append(micro_batches(sampler, data, workers))
    assert len({len(part) for part in parts}) == 1, "a rank would wait for the others"
    together = [batch for turn in zip(*parts, strict=True) for batch in turn if batch]
    assert together == [list(range(start, min(start + size, length))) for start in range(0, length, size)]


def test_a_stream_is_read_once_an_epoch_and_not_ahead():
    stream = Letters(100)
    batches = StreamBatches(stream, 10, slice(1, None, 2))
    sampler = TrainSampler(None, 10, seed=1, rank=1, world_size=2)
    for _, draw in zip(range(4), sampler, strict=False):
        batches[draw]
    assert stream.read == 40
    draws = iter(sampler)  # the next epoch
    assert batches[next(draws)].batch == [1001, 1003, 1005, 1007, 1009]
    assert stream.read == 50


def test_a_resumed_epoch_seeks_over_the_earlier_records():
    stream = Seekable(100)
    draws = iter(TrainSampler(None, 10, seed=1, resume=(2, 9)))
    assert StreamBatches(stream, 10, slice(None))[next(draws)].batch == list(range(2090, 2100))
    assert stream.read == 10


def test_a_stream_has_no_length():
    for sampler in (TrainSampler(None, 8, seed=1), EvaluationSampler(None, 8)):
        with pytest.raises(TypeError, match="no length"):
            len(sampler)


def test_a_single_process_ends_its_epoch_with_its_stream():
    ended = EpochEndCheck()
    draw = next(iter(TrainSampler(None, 8, seed=1)))
    assert not ended(draw, 3)
    assert ended(draw, 0)


def test_an_epoch_of_which_nothing_was_trained_is_repeated():
    """Lightning prefetches a batch from a loader of unknown length, also in iterations that it then drops."""
    count = 0
    sampler = TrainSampler(None, 4, seed=1, resume=(3, 2), count_trained=lambda: count)
    assert sampler.is_at_start_position
    for _ in range(2):
        draw = next(iter(sampler))
        assert (draw.epoch, draw.step_in_epoch, draw.indices[0]) == (3, 2, 8)
        assert sampler.is_at_start_position
    count = 5
    assert not sampler.is_at_start_position
    draw = next(iter(sampler))
    assert (draw.epoch, draw.step_in_epoch) == (4, 0)
    assert np.array_equal(draw.indices, np.arange(4))
