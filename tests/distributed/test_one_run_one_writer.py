"""Scenario 18: two jobs in the same folder. Plain Lightning lets both write the same checkpoints."""

from tests.conftest import TINY
from tests.distributed.faults import fault


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
