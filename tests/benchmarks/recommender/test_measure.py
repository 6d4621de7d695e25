"""Measures variants in processes of their own: turns, memory, and the report of a process that dies."""

import time
from functools import partial

import pytest

from benchmarks.recommender.measure import Done, Variant, Work, take_turns

MIB = 2**20


def _allocate(size: int) -> Work:
    prepared = _touched(size // 2)

    def work() -> Done:
        _touched(size)
        return Done(2 if prepared else 0)  # which the work holds on to

    return work


def _touched(size: int) -> bytearray:
    held = bytearray(size)
    held[::1024] = b"x" * len(held[::1024])  # so that it counts
    return held


def _sleep() -> Work:
    def work() -> Done:
        time.sleep(0.2)
        return Done(1, waited=0.1)

    return work


def _fail() -> Work:
    raise SystemExit(7)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_variants")
def test_time_and_memory_of_each_round_are_measured() -> None:
    measured = take_turns({"large": partial(_allocate, 200 * MIB), "sleeps": _sleep}, repeats=3)
    large, sleeps = measured["large"], measured["sleeps"]
    assert len(large.turns) == len(sleeps.turns) == 3
    assert 190 * MIB < large.memory < 260 * MIB
    assert 95 * MIB < large.prepared < 160 * MIB
    assert sleeps.memory < 20 * MIB
    assert sleeps.prepared < 20 * MIB
    for turn in sleeps.turns:
        assert turn.cpu < turn.wall
        assert turn.wall >= 0.2
        assert 0 < turn.waited_share <= 0.5


@pytest.mark.slow
@pytest.mark.usefixtures("forked_variants")
def test_a_variant_that_dies_is_named() -> None:
    with pytest.raises(RuntimeError, match="'broken' ended with exit code 7"), Variant("broken", _fail):
        pass
