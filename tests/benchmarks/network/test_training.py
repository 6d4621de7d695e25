"""Tests that the benchmark waits for both machines."""

from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from benchmarks.network.training import received


def test_a_machine_that_has_ended_is_seen_while_the_other_waits_for_it():
    waits, _open = Pipe()
    ended, closed = Pipe()
    closed.close()
    with pytest.raises(EOFError):
        received([SimpleNamespace(connection=end, receive=end.recv) for end in (waits, ended)])


def test_messages_of_both_pipes_are_received():
    pipes = [Pipe(), Pipe()]
    for number, (_, there) in enumerate(pipes):
        there.send(number)
    heard = received([SimpleNamespace(connection=here, receive=here.recv) for here, _ in pipes])
    assert sorted(heard) == [0, 1]
