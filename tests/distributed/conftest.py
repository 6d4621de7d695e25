"""`team`: real processes in seconds; `machines`: two hosts and a cable."""

import pytest

from benchmarks.network.machines import Machines
from tests.distributed.team import Forge, Team


@pytest.fixture(scope="session")
def forge():
    """One for the session; its children end with the tests that asked for them."""
    one = Forge()
    yield one
    one.close()


@pytest.fixture
def team(forge, tmp_path):
    """Starts processes: ``team("fit", *TINY, name="a", processes=2) -> Team``; none survives the test."""
    teams = []

    def start(command, *options, name, **settings):
        teams.append(Team(forge, [command, *options], tmp_path, name, **settings))
        return teams[-1]

    yield start
    for one in teams:
        one.close()


@pytest.fixture
def machines():
    """Skips, saying why, where there can be none."""
    both = Machines()
    try:
        why = both.connect()
        if why:
            pytest.skip(why)
        yield both
    finally:
        both.close()
