"""Tests signals that a terminal or a scheduler sends to every process of a run."""

import multiprocessing
import os
import signal

import pytest

from engine.health import signals

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="Windows has no SIGUSR1")


def work(pipe) -> None:
    """Handle signals as a loader worker does."""
    signals.ignore_signals_in_worker()
    pipe.send("started")
    pipe.send(pipe.recv())


@pytest.mark.parametrize("name", ["SIGINT", "SIGUSR1"])
def test_a_loader_worker_ignores_what_is_meant_for_the_training_process(name):
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    worker = multiprocessing.get_context("fork").Process(target=work, args=(theirs,), daemon=True)
    worker.start()
    try:
        assert ours.poll(20)
        assert ours.recv() == "started"
        os.kill(worker.pid, getattr(signal, name))
        ours.send("a batch")
        assert ours.poll(20)
        assert ours.recv() == "a batch"
    finally:
        worker.kill()
        worker.join(20)
