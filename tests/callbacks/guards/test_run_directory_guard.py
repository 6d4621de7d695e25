"""A run whose folder is deleted or renamed ends with the reason, and does not create the folder again.

Plain Lightning trains on: the logs are written into files without a name, and a later checkpoint creates the folder.
"""

import pytest

from callbacks.guards.run_directory_guard import is_gone
from engine.distributed.errors import CollectiveError
from tests.conftest import TINY
from tests.support.faults.disk_faults import folder_gone
from tests.tiers import slow

OPTIONS = [*TINY, "--trainer.max_steps", "40", "--last_checkpoint.every_n_steps", "10"]


@pytest.mark.parametrize("to", ["", slow("elsewhere")])
def test_a_deleted_folder_ends_the_run_at_the_next_logged_step(fit, tmp_path, to):
    with pytest.raises(CollectiveError, match="runs/a was deleted, renamed or moved before step 5, while the run was"):
        fit(*OPTIONS, *folder_gone(step=4, to=to))
    assert not (tmp_path / "runs/a").exists()
    assert (tmp_path / "runs/elsewhere/config.yaml").exists() == bool(to)


@pytest.mark.slow
def test_a_checkpoint_does_not_create_a_deleted_run_folder(fit, tmp_path):
    """The steps 10 (a checkpoint) and 13 (the next logged one) follow."""
    with pytest.raises(CollectiveError, match="renamed or moved before step 10"):
        fit(*OPTIONS, *folder_gone(step=4), "--trainer.log_every_n_steps", "13")
    assert not (tmp_path / "runs/a").exists()


def test_a_folder_without_the_files_of_the_run_is_another(tmp_path):
    assert is_gone(tmp_path / "absent")
    assert is_gone(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    assert not is_gone(tmp_path), "one file may be deleted"
    assert is_gone(tmp_path / "metrics.jsonl" / "below")
