"""Tests a stream of shards: each sample once, a fixed order from any start, few open shards, bounded memory."""

import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.vision_language.shards.shard import SampleLocation, Shard, ShardInfo
from datamodules.vision_language.shards.shard_index import ShardIndex
from datamodules.vision_language.shards.shuffle import ShardOrder


class Numbered:
    """A shard in memory, which knows how far it was read."""

    def __init__(self, name, count, known=True):
        self.name, self.count, self.read = name, count, 0
        self.info = ShardInfo(0, count, name) if known else None

    def locations(self):
        for number in range(self.count):
            self.read += 1
            yield SampleLocation(self.name, number, 0, None)


def numbered(locations):
    return [(location.shard, location.number) for location in locations]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=6),
    st.integers(1, 30),
    st.integers(0, 5),
    st.booleans(),
    st.integers(0, 40),
)
def test_an_epoch_from_any_position_is_the_rest_of_it(counts, window, epoch, known, start):
    shards = [Numbered(str(shard), count, known) for shard, count in enumerate(counts)]
    order = ShardOrder(shards, window)
    all_samples = numbered(order.locations_from(epoch, 0))
    assert sorted(all_samples) == [
        (str(shard), number) for shard, count in enumerate(counts) for number in range(count)
    ]
    assert numbered(order.locations_from(epoch, start)) == all_samples[start:]


def test_each_epoch_has_its_order_and_each_seed(monkeypatch):
    order = ShardOrder([Numbered(str(shard), 20) for shard in range(5)], 16)
    epochs = [numbered(order.locations_from(epoch, 0)) for epoch in range(3)]
    monkeypatch.setenv("PL_GLOBAL_SEED", "8")
    epochs.append(numbered(order.locations_from(0, 0)))
    assert len({tuple(order) for order in epochs}) == 4
    assert len({tuple(shard for shard, _ in order[::20]) for order in epochs}) > 1, "the shards' order differs"


def test_windows_are_shuffled_and_nothing_beyond():
    shards = [Numbered(str(shard), 10) for shard in range(4)]
    order, plain = (numbered(ShardOrder(shards, window).locations_from(0, 0)) for window in (8, 1))
    assert all([number for name, number in plain if name == shard.name] == list(range(10)) for shard in shards)
    for start in range(0, 40, 8):
        assert sorted(order[start : start + 8]) == sorted(plain[start : start + 8])
        assert order[start : start + 8] != plain[start : start + 8]


def test_shards_before_a_position_are_not_opened():
    shards = [Numbered(str(shard), 10) for shard in range(8)]
    order = ShardOrder(shards, 16)
    next(order.locations_from(0, 57))  # in the window from 48 to 64, which begins in the fifth shard
    read = [shard.read for shard in shards]
    assert sorted(read) == [0] * 5 + [4, 10, 10], "and none beyond the window's end"


def test_a_window_is_in_memory_and_no_more():
    """Samples that are read ahead keep their content, which is released when they are yielded."""
    alive = weakref.WeakSet()

    class Contents:
        def __init__(self):
            alive.add(self)

    class Kept(Numbered):
        def locations(self):
            return (SampleLocation(self.name, number, 0, Contents()) for number in range(self.count))

    counts = [len(alive) for _ in ShardOrder([Kept("a", 300), Kept("b", 300)], 50).locations_from(0, 0)]
    assert max(counts) <= 52
    assert min(counts) <= 2


def test_the_identity_of_an_order_has_its_shards_and_window(write_shard, tmp_path):
    def identity(*names, window=10, folder="a"):
        for name in names:
            write_shard(f"{folder}/{name}.tar", {f"{name}.txt": b"x", "0.txt": b""})
        index = ShardIndex(tmp_path / "index")
        paths = [str(tmp_path / folder / f"{name}.tar") for name in names]
        index.add(paths)
        return ShardOrder(index.shards(paths), window).identity

    first = identity("a", "b")
    assert first == identity("a", "b", folder="elsewhere")
    assert len({first, identity("b", "a"), identity("a"), identity("a", "c"), identity("a", "b", window=11)}) == 5
    unknown = ShardOrder([Shard("s3://x/a.tar")], 1).identity
    assert unknown != ShardOrder([Shard("s3://x/b.tar")], 1).identity


@pytest.mark.parametrize("count", [1, 3])
def test_a_missing_shard_is_reported(write_shard, count):
    names = [write_shard(f"{number}.tar", {"0.txt": b""}) for number in range(count)]
    names[0].unlink()
    with pytest.raises(FileNotFoundError, match="0.tar"):
        list(ShardOrder([Shard(str(name)) for name in names], 5).locations_from(0, 0))
