"""Checks which rank the diagnosis names as the rank that the others wait for."""

import math

from engine.health.heartbeat import FINISHED, Heartbeat, HeartbeatTracker


def heartbeat(number, progress=10, step=3, phase="training", idle=0.0, max_idle=60.0, location="a.py:1 f"):
    return Heartbeat(number, progress, step, phase, idle, max_idle, location)


def tracker_of(*heartbeats, now=0.0):
    tracker = HeartbeatTracker(len(heartbeats), range(len(heartbeats)), 0.0)
    for rank, beat in enumerate(heartbeats):
        if beat is not None:
            tracker.record(rank, beat, now)
    return tracker


def test_a_heartbeat_is_decoded_as_it_was():
    beat = heartbeat(1, max_idle=math.inf, location='"a" ü')
    assert Heartbeat.decode(beat.encode().encode()) == beat


def test_recent_heartbeats_have_no_diagnosis():
    tracker = tracker_of(heartbeat(1), heartbeat(1))
    assert tracker.diagnose(59, timeout=60, period=1) is None


def test_a_heartbeat_that_does_not_change_is_no_sign_of_life():
    tracker = tracker_of(heartbeat(1), heartbeat(1))
    for now in range(1, 62):
        tracker.record(0, heartbeat(1 + now), now)
        tracker.record(1, heartbeat(1), now)
    rank, text, lost, _ = tracker.diagnose(61, timeout=60, period=1)
    assert lost
    assert rank == 1
    assert text.startswith("rank 1 has sent no heartbeat for 61 s, last seen at step 3 (training), in a.py:1 f")
    assert "rank 1" not in str(tracker.diagnose(61, timeout=math.inf, period=1)), "no limit"


def test_a_rank_without_any_heartbeat_is_reported_as_silent():
    assert "and none before" in tracker_of(heartbeat(1), None, now=60).diagnose(61, timeout=60, period=1).text


def test_only_expected_ranks_are_reported_as_silent():
    tracker = HeartbeatTracker(3, (0,), 0.0)
    tracker.record(0, heartbeat(1), 100)
    assert tracker.find_silent(101, 60) is None


def test_the_rank_with_the_least_progress_is_named():
    waiting, hanging = (
        heartbeat(1, progress=11, idle=61),
        heartbeat(1, progress=10, idle=61.5, location="data.py:7 read"),
    )
    rank, text, lost, _ = tracker_of(waiting, hanging, waiting, now=1).diagnose(2, timeout=60, period=1)
    assert not lost
    assert rank == 1
    assert text == (
        "rank 1 has been stalled for 62 s at step 3 (training), in data.py:7 read; "
        "the other ranks wait for it at step 3"
    )


def test_the_silent_one_is_to_blame_when_all_stand_still():
    tracker = tracker_of(heartbeat(1, idle=0), heartbeat(1, progress=12))
    tracker.record(0, heartbeat(2, idle=61), 61)
    assert tracker.diagnose(61, timeout=600, period=1).text.startswith("rank 1 has sent no heartbeat for 61 s")


def test_a_rank_that_may_be_dying_is_not_reported_as_stalled():
    """Its last heartbeat was read a second late: after 4 s of stall of the other rank, 3 s of silence are known."""
    tracker = tracker_of(heartbeat(1), heartbeat(1, progress=9), now=1)
    tracker.record(0, heartbeat(5, idle=4.1, max_idle=4), 4)
    assert tracker.diagnose(4, timeout=4, period=1) is None
    tracker.record(0, heartbeat(6, idle=4.6, max_idle=4), 4.6)
    assert tracker.diagnose(4.6, 4, 1).text.startswith("rank 1 has sent no heartbeat for 4 s")
    tracker.record(1, heartbeat(2, progress=9, idle=4.6, max_idle=10), 4.6)
    assert tracker.diagnose(4.6, 4, 1).text.startswith("rank 1 has been stalled for 5 s")


def test_a_stall_is_not_reported_while_another_rank_may_be_silent():
    tracker = tracker_of(heartbeat(1), heartbeat(1, progress=9), heartbeat(1, progress=9), now=1)
    tracker.record(0, heartbeat(5, idle=4.1, max_idle=4), 4)
    tracker.record(1, heartbeat(5, progress=9, idle=4.1, max_idle=10), 4)
    assert tracker.diagnose(4, timeout=4, period=1) is None
    assert tracker.diagnose(4.6, 4, 1).text.startswith("rank 2 has sent no heartbeat")


def test_a_rank_that_ended_before_the_others_is_named():
    gone = heartbeat(1, progress=5, phase=FINISHED, idle=100)
    assert tracker_of(heartbeat(1), gone, now=1).diagnose(100, timeout=math.inf, period=1) is None
    rank, text, lost, _ = tracker_of(heartbeat(1, idle=61), gone, now=1).diagnose(2, timeout=60, period=1)
    assert not lost
    assert (rank, text.partition(";")[0]) == (1, "rank 1 has ended at step 3")


def test_ranks_that_are_all_stalled_are_reported_with_their_locations():
    text = tracker_of(heartbeat(1, idle=61), heartbeat(1, idle=61, location="b.py:2 g"), now=1).diagnose(2, 60, 1).text
    assert "all ranks have been stalled for 61 s" in text
    assert "rank 1 in b.py:2 g" in text


def test_patience_has_no_end_where_there_is_no_limit():
    assert tracker_of(heartbeat(1, idle=1e9, max_idle=math.inf), now=1).diagnose(2, math.inf, 1) is None
