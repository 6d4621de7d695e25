"""One check that raises, gives up or hangs does not take the others with it."""

import threading

from commands.doctor.examination import examine, left_behind
from commands.doctor.finding import Check, Finding

FINE = Finding("fine", "ok", "all is well")


def test_findings_come_in_the_order_of_the_checks_and_the_checks_are_announced():
    announced = []
    found = examine(
        [Check("a", lambda: [FINE, FINE]), Check("b", lambda: [])], lambda check: announced.append(check.name)
    )
    assert found == [FINE, FINE] and announced == ["a", "b"]


def test_a_check_that_raises_is_a_failure_that_says_so_and_what_it_found_before_stays(monkeypatch, capsys):
    def breaks():
        yield FINE
        raise OSError("the file system is gone")

    monkeypatch.delenv("LOCKSTEP_DEBUG", raising=False)
    before, broken, after = examine([Check("disk", breaks), Check("fine", lambda: [FINE])])
    assert (before, after) == (FINE, FINE)
    assert (broken.check, broken.status) == ("disk", "fail")
    assert broken.found == "the check ended with OSError: the file system is gone"
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("LOCKSTEP_DEBUG", "1")
    examine([Check("disk", breaks)])
    assert "in breaks" in capsys.readouterr().err  # the remedy says that it shows where


def test_a_parser_that_says_no_ends_its_check_alone():
    def refuses():
        raise SystemExit(2)
        yield

    (found,) = examine([Check("config", refuses)])
    assert found.status == "fail" and "SystemExit: 2" in found.found


def test_a_check_that_hangs_is_left_behind_with_what_it_had_found():
    go_on, ended = threading.Event(), threading.Event()

    def hangs():
        yield FINE
        go_on.wait(60)
        ended.set()

    try:
        first, late, after = examine([Check("driver", hangs, seconds=0.2), Check("fine", lambda: [FINE])])
        assert (first, after) == (FINE, FINE)
        assert (late.check, late.status, late.found) == ("driver", "fail", "no answer within 0.2 s")
        assert left_behind()
    finally:
        go_on.set()
    assert ended.wait(60)
    for thread in threading.enumerate():
        if thread.name == "doctor: driver":
            thread.join(60)
    assert not left_behind()


def test_a_check_that_is_late_says_what_that_means_and_takes_away_what_it_has_made():
    go_on, given_up = threading.Event(), []
    late = Finding("slow", "warn", "not done")
    try:
        slow = Check("slow", lambda: [FINE] * go_on.wait(60), 0.01, late, lambda: given_up.append(1))
        assert examine([slow]) == [late] and given_up == [1]
    finally:
        go_on.set()
    for thread in threading.enumerate():
        if thread.name == "doctor: slow":
            thread.join(60)
