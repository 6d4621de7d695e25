"""A sample that cannot be used is left out alone, whoever finds out which it is; what is wrong with the run is not."""

import numpy as np
import pytest
import torch

from engine.bad_samples import BadSample, LeftOut, usable, without_bad
from engine.left_out import left_out_of
from engine.sampling import FILLER, Draw
from engine.streaming import Stream, StreamBatches

DRAW = Draw(3, np.array([4, 7, 2, 9]), 5)


def loader(bad, names=True):
    """Loads draws; `names`: the exception says which sample it is."""

    def load(draw):
        assert draw.epoch == 3 and draw.number == 5
        for index in draw.indices.tolist():
            if index in bad:
                raise BadSample(f"file {index}.png is cut off", index if names else None)
        return draw.indices.tolist()

    return load


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(
    ("bad", "kept"), [({7}, [4, 2, 9]), ({4, 9}, [7, 2]), ({4, 7, 2, 9}, [FILLER]), ({8}, [4, 7, 2, 9])]
)
def test_the_others_are_loaded(bad, kept, names):
    batch, left_out = without_bad(loader(bad, names), DRAW)
    assert batch == kept
    drawn = bad & set(DRAW.indices.tolist())
    assert sorted(left_out, key=lambda one: one.sample) == [
        LeftOut("unusable", f"file {index}.png is cut off", index) for index in sorted(drawn)
    ]


def test_a_batch_that_fails_without_a_bad_sample_is_an_error():
    def load(draw):
        if len(draw.indices) > 1:
            raise BadSample("too many")
        return draw

    with pytest.raises(BadSample, match="too many"):
        without_bad(load, DRAW)
    with pytest.raises(OSError, match="disk"):
        without_bad(lambda draw: (_ for _ in ()).throw(OSError("the disk is gone")), DRAW)


def test_one_by_one():
    def make(index):
        if index == 7:
            raise BadSample("seven")
        return LeftOut("too_long", "two", 2) if index == 2 else index * 10

    made, kept, left_out = usable(DRAW.indices, make, leave_out=True)
    assert made == [40, 90] and kept.tolist() == [4, 9]
    assert left_out == (LeftOut("unusable", "seven", 7), LeftOut("too_long", "two", 2))
    with pytest.raises(BadSample, match="seven"):
        usable(DRAW.indices, make, leave_out=False)


class Records(Stream):
    """Numbers, of which some cannot be decoded."""

    def records(self, epoch):
        return iter(range(10))

    def batch(self, epoch, positions, records):
        if 5 in records and positions.tolist() != [FILLER]:
            raise BadSample("record 5")
        return [record for place, record in zip(positions.tolist(), records, strict=True) if place != FILLER]


@pytest.mark.parametrize(("positions", "kept"), [([4, 5, 6, 7], [4, 6, 7]), ([5], [])])
def test_of_a_stream(positions, kept):
    batches = StreamBatches(Records(), 4, slice(0, 4))
    streamed, left_out = without_bad(batches.__getitem__, Draw(0, np.array(positions), 1))
    assert streamed.batch == kept and streamed.count == 4 and left_out == (LeftOut("unusable", "record 5", 5),)


def test_what_batches_say_themselves():
    one, other = (LeftOut("unusable", str(number), number) for number in (1, 2))
    part = type("Part", (), {"left_out": [one]}), type("Part", (), {"left_out": (other,)}), torch.zeros(2)
    assert left_out_of(part) == [one, other] and left_out_of(part[0]) == [one] and left_out_of(torch.zeros(3)) == []
