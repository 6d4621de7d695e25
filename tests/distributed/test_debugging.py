"""configs/overlays/debug.yaml on two processes."""

import pytest

from tests.conftest import REPOSITORY, TINY
from tests.distributed.faults import fault

pytestmark = pytest.mark.distributed

DEBUG = ["--config", str(REPOSITORY / "configs/overlays/debug.yaml")]


def test_debug_says_where_processes_differ(team):
    """Without it: both wait for each other until the watchdog's time is over."""
    two = ["--trainer.devices", "2", "--trainer.max_epochs", "8"]
    run = team("fit", *TINY, *DEBUG, *two, *fault("OtherCollectiveAt", step=3, process=1), name="a")
    assert run.end(120) == [1, 1], run.output
    assert "Detected mismatch between collectives on ranks" in run.output
    assert sorted(run.series("train/loss")) == [1, 2, 3]
    assert run.survivors == []
