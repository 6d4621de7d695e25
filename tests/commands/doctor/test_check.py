"""Tests that a check that raises, gives up or hangs does not stop the other checks."""

import threading

from commands.doctor.check import Check, Finding, is_any_hanging, run_checks

FINE = Finding("fine", "ok", "all is well")


def test_findings_come_in_the_order_of_the_checks_and_the_checks_are_announced():
    announced = []
    findings = run_checks(
        [Check("a", lambda: [FINE, FINE]), Check("b", lambda: [])], lambda check: announced.append(check.name)
    )
    assert findings == [FINE, FINE]
    assert announced == ["a", "b"]


def test_a_check_that_raises_fails_and_keeps_its_earlier_findings(monkeypatch, capsys):
    def breaks():
        yield FINE
        raise OSError("the file system is gone")

    monkeypatch.delenv("LOCKSTEP_DEBUG", raising=False)
    before, broken, after = run_checks([Check("disk", breaks), Check("fine", lambda: [FINE])])
    assert (before, after) == (FINE, FINE)
    assert (broken.check, broken.status) == ("disk", "fail")
    assert broken.found == "the check ended with OSError: the file system is gone"
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("LOCKSTEP_DEBUG", "1")
    run_checks([Check("disk", breaks)])
    assert "in breaks" in capsys.readouterr().err  # the remedy promises that it shows where


def test_a_parser_that_exits_ends_only_its_check():
    def refuses():
        raise SystemExit(2)
        yield

    (findings,) = run_checks([Check("config", refuses)])
    assert findings.status == "fail"
    assert "SystemExit: 2" in findings.found


def test_a_check_that_hangs_keeps_its_earlier_findings():
    go_on, ended = threading.Event(), threading.Event()

    def hangs():
        yield FINE
        go_on.wait(60)
        ended.set()

    try:
        first, late, after = run_checks([Check("driver", hangs, seconds=0.2), Check("fine", lambda: [FINE])])
        assert (first, after) == (FINE, FINE)
        assert (late.check, late.status, late.found) == ("driver", "fail", "no answer within 0.2 s")
        assert is_any_hanging()
    finally:
        go_on.set()
    assert ended.wait(60)
    for thread in threading.enumerate():
        if thread.name == "doctor: driver":
            thread.join(60)
    assert not is_any_hanging()


def test_a_late_check_has_its_own_finding_and_cleans_up():
    go_on, given_up = threading.Event(), []
    late = Finding("slow", "warn", "not done")
    try:
        slow = Check("slow", lambda: [FINE] * go_on.wait(60), 0.01, late, lambda: given_up.append(1))
        assert run_checks([slow]) == [late]
        assert given_up == [1]
    finally:
        go_on.set()
    for thread in threading.enumerate():
        if thread.name == "doctor: slow":
            thread.join(60)
