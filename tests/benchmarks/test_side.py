"""Ctrl-C is for the process that measures: its sides stay silent, and are ended."""

import os
import signal
import threading
from multiprocessing.context import SpawnProcess

import pytest

from benchmarks.side import SideProcess


def _say_what_it_hears(connection):
    connection.send(None)
    signal.signal(signal.SIGINT, lambda *_: connection.send("heard"))  # as a training does
    os.kill(os.getpid(), signal.SIGINT)
    connection.send("nothing")


def _prepare_for_ever(connection):
    threading.Event().wait()


def test_a_side_does_not_hear_ctrl_c():
    side = SideProcess("deaf", _say_what_it_hears)
    assert side.__enter__().receive() == "nothing"
    side.process.join()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_ctrl_c_while_a_side_starts_ends_it(monkeypatch):
    start = SpawnProcess.start
    started = []

    def interrupted(process):
        start(process)
        started.append(process)
        signal.raise_signal(signal.SIGINT)  # to this thread, which has blocked it

    monkeypatch.setattr(SpawnProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SideProcess("slow", _prepare_for_ever)
    started[0].join(60)
    assert started[0].exitcode == -signal.SIGKILL


def test_a_side_that_was_still_preparing_itself_is_ended(monkeypatch):
    side = SideProcess("slow", _prepare_for_ever)

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(side, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        side.__enter__()
    side.process.join(60)
    assert side.process.exitcode == -signal.SIGKILL
