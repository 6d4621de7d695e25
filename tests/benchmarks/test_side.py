"""Ctrl-C is for the process that measures: its sides stay silent, and are ended."""

import signal
import threading

import pytest

from benchmarks.side import SideProcess


def _say_what_it_hears(connection):
    connection.send(None)
    connection.send(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)


def _prepare_for_ever(connection):
    threading.Event().wait()


def test_a_side_does_not_hear_ctrl_c():
    here = signal.getsignal(signal.SIGINT)
    side = SideProcess("deaf", _say_what_it_hears)
    assert side.__enter__().receive() is True
    side.process.join()
    assert signal.getsignal(signal.SIGINT) is here


def test_a_side_that_was_still_preparing_itself_is_ended(monkeypatch):
    side = SideProcess("slow", _prepare_for_ever)

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(side, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        side.__enter__()
    side.process.join(60)
    assert side.process.exitcode == -signal.SIGKILL
