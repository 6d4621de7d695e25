"""Fixture `uninterrupted`: the run with which a stopped and resumed run is compared."""

import pytest

from tests.support.ranks.team import ForkServer, Team


@pytest.fixture(scope="module")
def uninterrupted(request: pytest.FixtureRequest, forge: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A finished run of two processes with the OPTIONS of the module."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    run = Team(forge, ["fit", *request.module.OPTIONS], folder, "uninterrupted", processes=2)
    assert run.end() == [0, 0], run.output
    return run
