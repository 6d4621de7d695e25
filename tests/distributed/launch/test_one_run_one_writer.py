"""A second job with the same run name is refused. Plain Lightning lets both write the same checkpoints."""

import socket

import pytest

from tests.conftest import TINY
from tests.support.faults.step_faults import fault


def test_a_second_job_is_refused_and_the_lock_dies_with_its_holder(team):
    endless = ["fit", *TINY, "--trainer.max_epochs", "-1", "--last_checkpoint.every_n_steps", "5"]
    stop = fault("SignalAt", name="SIGSTOP", step=12)
    first = team(*endless, *stop, name="a", processes=1)
    first.wait_for("checkpoints/last.ckpt")
    second = team("fit", *TINY, "--ckpt_path", "last", name="a", processes=1)
    assert second.end() == [2], second.output
    assert "another training is writing into runs/a" in second.output
    first.close()
    third = team("fit", *TINY, "--ckpt_path", "last", "--trainer.max_steps", "20", name="a", processes=1)
    assert third.end() == [0], third.output
    assert max(third.series("train/loss")) == 20


@pytest.mark.slow
def test_all_ranks_report_that_the_folder_is_in_use(team):
    """Started by hand (RANK, WORLD_SIZE): Lightning's second process fails with a page about a lost connection."""
    hold = fault("SignalAt", name="SIGSTOP", step=2)
    first = team("fit", *TINY, *hold, name="a", processes=1)
    first.wait_for(".lock")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    rendezvous = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    second = [
        team("fit", *TINY, "--ckpt_path", "last", name="a", processes=1, environment={**rendezvous, "RANK": rank})
        for rank in ("0", "1")
    ]
    assert [writer.end() for writer in second] == [[2], [2]], second[0].output + second[1].output
    assert "error: another training is writing into runs/a" in second[0].output
    assert "error: rank 0 ended: another training is writing into runs/a" in second[1].output
    assert "Traceback" not in second[0].output + second[1].output
