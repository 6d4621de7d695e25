"""Ctrl-C is for the process that measures: its variants stay silent, and are ended."""

import os
import signal
import threading
from multiprocessing.context import SpawnProcess

import pytest

from benchmarks.variant_process import VariantProcess


def _say_what_it_hears(connection):
    connection.send(None)
    signal.signal(signal.SIGINT, lambda *_: connection.send("heard"))  # as a training does
    os.kill(os.getpid(), signal.SIGINT)
    connection.send("nothing")


def _prepare_for_ever(connection):
    threading.Event().wait()


def test_a_variant_does_not_hear_ctrl_c():
    variant = VariantProcess("deaf", _say_what_it_hears)
    assert variant.__enter__().receive() == "nothing"
    variant.process.join()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_ctrl_c_while_a_variant_starts_ends_it(monkeypatch):
    start = SpawnProcess.start
    started = []

    def interrupted(process):
        start(process)
        started.append(process)
        signal.raise_signal(signal.SIGINT)  # to this thread, which has blocked it

    monkeypatch.setattr(SpawnProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        VariantProcess("slow", _prepare_for_ever)
    started[0].join(60)
    assert started[0].exitcode == -signal.SIGKILL


def test_a_variant_that_was_still_preparing_itself_is_ended(monkeypatch):
    variant = VariantProcess("slow", _prepare_for_ever)

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(variant, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        variant.__enter__()
    variant.process.join(60)
    assert variant.process.exitcode == -signal.SIGKILL
