"""Fixtures `team`, the ranks of a run in seconds, and `machines`, two hosts and a network between them."""

import atexit
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.network.machines import Machines
from tests.support.ranks.team import ForkServer, Team


@cache
def fork_server() -> ForkServer:
    """Return the server of this process, also to modules that import the fixtures: it costs seconds to start."""
    server = ForkServer()
    atexit.register(server.close)
    return server


@pytest.fixture(scope="session")
def forge() -> ForkServer:
    """The fork server of the session. Its children end with the tests that started them."""
    return fork_server()


@pytest.fixture
def team(forge: ForkServer, tmp_path: Path) -> Iterator[Callable[..., Team]]:
    """Start ranks: ``team("fit", *TINY, name="a", processes=2) -> Team``. None survives the test."""
    teams: list[Team] = []

    def start(command: str, *options: str, name: str, **settings: Any) -> Team:
        teams.append(Team(forge, [command, *options], tmp_path, name, **settings))
        return teams[-1]

    yield start
    for started in teams:
        started.close()


@pytest.fixture
def machines() -> Iterator[Machines]:
    """Yield two connected hosts. Skips the test with a reason where network namespaces cannot be made."""
    both = Machines()
    try:
        if why := both.connect():
            pytest.skip(why)
        yield both
    finally:
        both.close()
