"""Who is it that the others wait for?"""

import math

from engine.pulse import LEFT, Attendance, Pulse


def pulse(number, moves=10, step=3, phase="training", still=0.0, patience=60.0, where="a.py:1 f"):
    return Pulse(number, moves, step, phase, still, patience, where)


def attendance(*pulses, now=0.0):
    heard = Attendance(len(pulses), range(len(pulses)), 0.0)
    for rank, one in enumerate(pulses):
        if one is not None:
            heard.hear(rank, one, now)
    return heard


def test_pulses_travel():
    one = pulse(1, patience=math.inf, where='"a" ü')
    assert Pulse.decode(one.encode().encode()) == one


def test_all_is_well():
    heard = attendance(pulse(1), pulse(1))
    assert heard.verdict(59, timeout=60, period=1) is None


def test_a_pulse_that_does_not_change_is_no_sign_of_life():
    heard = attendance(pulse(1), pulse(1))
    for now in range(1, 62):
        heard.hear(0, pulse(1 + now), now)
        heard.hear(1, pulse(1), now)
    rank, text, lost = heard.verdict(61, timeout=60, period=1)
    assert lost
    assert rank == 1
    assert text.startswith("process 1 has given no sign of life for 61 s, last seen at step 3 (training), in a.py:1 f")
    assert "process 1" not in str(heard.verdict(61, timeout=math.inf, period=1)), "no limit"


def test_one_that_was_never_heard():
    assert "and none before" in attendance(pulse(1), None, now=60).verdict(61, timeout=60, period=1).text


def test_only_the_expected_are_missed():
    heard = Attendance(3, (0,), 0.0)
    heard.hear(0, pulse(1), 100)
    assert heard.silent(101, 60) is None


def test_the_one_that_got_least_far_is_to_blame():
    waiting, hanging = pulse(1, moves=11, still=61), pulse(1, moves=10, still=61.5, where="data.py:7 read")
    rank, text, lost = attendance(waiting, hanging, waiting, now=1).verdict(2, timeout=60, period=1)
    assert not lost
    assert rank == 1
    assert text == (
        "process 1 has stood still for 62 s at step 3 (training), in data.py:7 read; the others wait for it at step 3"
    )


def test_the_silent_one_is_to_blame_when_all_stand_still():
    heard = attendance(pulse(1, still=0), pulse(1, moves=12))
    heard.hear(0, pulse(2, still=61), 61)
    assert heard.verdict(61, timeout=600, period=1).text.startswith("process 1 has given no sign of life for 61 s")


def test_one_that_may_be_falling_silent_is_not_said_to_stand_still():
    """Its last pulse was read a second late: when the other has stood still for 4 s, 3 s of silence are known."""
    heard = attendance(pulse(1), pulse(1, moves=9), now=1)
    heard.hear(0, pulse(5, still=4.1, patience=4), 4)
    assert heard.verdict(4, timeout=4, period=1) is None
    heard.hear(0, pulse(6, still=4.6, patience=4), 4.6)
    assert heard.verdict(4.6, 4, 1).text.startswith("process 1 has given no sign of life for 4 s")
    heard.hear(1, pulse(2, moves=9, still=4.6, patience=10), 4.6)
    assert heard.verdict(4.6, 4, 1).text.startswith("process 1 has stood still for 5 s")


def test_none_of_several_may_be_falling_silent():
    heard = attendance(pulse(1), pulse(1, moves=9), pulse(1, moves=9), now=1)
    heard.hear(0, pulse(5, still=4.1, patience=4), 4)
    heard.hear(1, pulse(5, moves=9, still=4.1, patience=10), 4)
    assert heard.verdict(4, timeout=4, period=1) is None
    assert heard.verdict(4.6, 4, 1).text.startswith("process 2 has given no sign of life")


def test_one_that_has_left_while_others_train():
    gone = pulse(1, moves=5, phase=LEFT, still=100)
    assert attendance(pulse(1), gone, now=1).verdict(100, timeout=math.inf, period=1) is None
    rank, text, lost = attendance(pulse(1, still=61), gone, now=1).verdict(2, timeout=60, period=1)
    assert not lost
    assert (rank, text.partition(";")[0]) == (1, "process 1 has ended at step 3")


def test_all_stand_in_the_same_place():
    text = attendance(pulse(1, still=61), pulse(1, still=61, where="b.py:2 g"), now=1).verdict(2, 60, 1).text
    assert "all processes have stood still for 61 s" in text and "process 1 in b.py:2 g" in text


def test_patience_has_no_end_where_there_is_no_limit():
    assert attendance(pulse(1, still=1e9, patience=math.inf), now=1).verdict(2, math.inf, 1) is None
