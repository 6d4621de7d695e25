"""The run's folder is deleted while two ranks train."""

import pytest

from tests.conftest import TINY
from tests.support.faults.disk_faults import folder_gone


@pytest.mark.slow
def test_all_ranks_end_with_one_message(team):
    run = team("fit", *TINY, "--trainer.max_steps", "40", *folder_gone(step=4), name="a", processes=2)
    assert run.end_cleanly() == [1, 1], run.output
    assert run.output.count("error: runs/a was deleted, renamed or moved") == 1
    assert "Traceback" not in run.output
    assert not run.folder.exists()
