"""A bad sample is skipped alone, whether or not its error names it. Other errors end the run."""

import numpy as np
import pytest
import torch

from engine.data.errors import BadSampleError
from engine.data.sample_loading import SkippedSample, load_batch_skipping_bad, load_samples
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from engine.data.skip_counters import check_skip_limit, skipped_in
from engine.data.stream import StreamBatches, StreamDataset
from engine.distributed.errors import CollectiveInputError

DRAW = MicroBatchRequest(3, np.array([4, 7, 2, 9]), 5)


def loader(bad, names=True):
    """Return a loader of requests. `names`: its errors name the bad sample."""

    def load(draw):
        assert draw.epoch == 3
        assert draw.step_in_epoch == 5
        for index in draw.indices.tolist():
            if index in bad:
                raise BadSampleError(f"file {index}.png is cut off", index if names else None)
        return draw.indices.tolist()

    return load


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(
    ("bad", "kept"), [({7}, [4, 2, 9]), ({4, 9}, [7, 2]), ({4, 7, 2, 9}, [PADDING_INDEX]), ({8}, [4, 7, 2, 9])]
)
def test_good_samples_are_loaded(bad, kept, names):
    batch, skipped = load_batch_skipping_bad(loader(bad, names), DRAW)
    assert batch == kept
    drawn = bad & set(DRAW.indices.tolist())
    assert sorted(skipped, key=lambda skip: skip.sample) == [
        SkippedSample("bad", f"file {index}.png is cut off", index) for index in sorted(drawn)
    ]


def test_a_batch_that_fails_without_a_bad_sample_is_an_error():
    def load(draw):
        if len(draw.indices) > 1:
            raise BadSampleError("too many")
        return draw

    with pytest.raises(BadSampleError, match="too many"):
        load_batch_skipping_bad(load, DRAW)
    with pytest.raises(OSError, match="disk"):
        load_batch_skipping_bad(lambda draw: (_ for _ in ()).throw(OSError("the disk is gone")), DRAW)


def test_samples_are_loaded_one_by_one():
    def make(index):
        if index == 7:
            raise BadSampleError("seven")
        return SkippedSample("too_long", "two", 2) if index == 2 else index * 10

    made, kept, skipped = load_samples(DRAW.indices, make, skip_bad=True)
    assert made == [40, 90]
    assert kept.tolist() == [4, 9]
    assert skipped == (SkippedSample("bad", "seven", 7), SkippedSample("too_long", "two", 2))
    with pytest.raises(BadSampleError, match="seven"):
        load_samples(DRAW.indices, make, skip_bad=False)


class Records(StreamDataset):
    """A stream of numbers, of which 5 cannot be decoded."""

    def records(self, epoch):
        return iter(range(10))

    def batch(self, epoch, positions, records):
        if 5 in records and positions.tolist() != [PADDING_INDEX]:
            raise BadSampleError("record 5")
        return [record for row, record in zip(positions.tolist(), records, strict=True) if row != PADDING_INDEX]


@pytest.mark.parametrize(("positions", "kept"), [([4, 5, 6, 7], [4, 6, 7]), ([5], [])])
def test_a_bad_record_of_a_stream_is_skipped(positions, kept):
    batches = StreamBatches(Records(), 4, slice(0, 4))
    streamed, skipped = load_batch_skipping_bad(batches.__getitem__, MicroBatchRequest(0, np.array(positions), 1))
    assert streamed.batch == kept
    assert streamed.records == 4
    assert skipped == (SkippedSample("bad", "record 5", 5),)


def test_batches_list_their_skipped_samples():
    first, second = (SkippedSample("bad", str(number), number) for number in (1, 2))
    part = type("Part", (), {"skipped": [first]}), type("Part", (), {"skipped": (second,)}), torch.zeros(2)
    assert skipped_in(part) == [first, second]
    assert skipped_in(part[0]) == [first]
    assert skipped_in(torch.zeros(3)) == []


def test_the_limit_is_inclusive():
    check_skip_limit(3, 3, "the training")
    check_skip_limit(0, 0, "the training")
    with pytest.raises(
        CollectiveInputError, match="4 samples of the training cannot be used, but .*max_bad_samples is 3"
    ):
        check_skip_limit(4, 3, "the training")
