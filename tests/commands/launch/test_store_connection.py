"""A connection to the store ends in a bounded time, whatever listens at its address."""

import socket
import time

import pytest

from commands.launch import store_connection
from commands.launch.rank_zero_decision import decide_on_rank_zero
from commands.launch.store_connection import SilentProgramError, open_store, wait_for_listener


@pytest.fixture
def silent():
    """Port of a program that accepts connections and never answers."""
    with socket.socket() as program:
        program.bind(("127.0.0.1", 0))
        program.listen()
        yield program.getsockname()[1]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(store_connection, "ANSWER_TIMEOUT", 0.3)


def test_a_program_that_never_answers_is_named_in_bounded_time(silent, impatient):
    start = time.monotonic()
    with pytest.raises(SilentProgramError, match=f"accepts connections at 127.0.0.1:{silent}, but has not answered"):
        open_store("127.0.0.1", silent, False, 300)
    assert time.monotonic() - start < 5


def test_the_other_ranks_are_refused_with_the_variables_to_change(silent, impatient):
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(silent)}
    with pytest.raises(ValueError, match=f"MASTER_PORT {silent} of rank 1 of 2 does not answer as rank 0"):
        decide_on_rank_zero("run_name", lambda: "never asked", environ)


def test_an_address_where_nothing_listens_is_an_error_in_bounded_time():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="refused"):
            wait_for_listener("127.0.0.1", closed.getsockname()[1], 0.0)


def test_a_store_that_answers_is_returned():
    server = open_store("127.0.0.1", 0, True, 20)
    client = open_store("127.0.0.1", server.port, False, 20)
    server.set("key", "value")
    assert client.get("key") == b"value"
