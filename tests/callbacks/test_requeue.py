"""When a SLURM job puts itself back into the queue; tests/distributed/test_preemption.py has whole runs."""

import pytest

from callbacks.requeue import requeue_job
from tests.distributed.test_preemption import scontrol  # noqa: F401

JOB = {"SLURM_JOB_ID": "7"}


def test_a_running_job(scontrol, said):  # noqa: F811
    asked = scontrol()
    requeue_job(JOB)
    assert asked() == ["show job 7", "requeue 7"]
    assert said == ["SLURM job 7 is requeued and goes on from here"]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "CANCELLED"}, "its state is CANCELLED"),
        ({"state": "PREEMPTED"}, "its state is PREEMPTED"),
        ({"state": "PENDING"}, "its state is PENDING"),
        ({"batch": 0}, "it is no batch job"),
        ({"requeue": 0}, "it was submitted with --no-requeue"),
    ],
)
def test_a_job_that_is_not_to_come_back_or_comes_back_by_itself(scontrol, said, facts, why):  # noqa: F811
    asked = scontrol(**facts)
    requeue_job(JOB)
    assert asked() == ["show job 7"]
    assert said == [f"SLURM job 7 is left to SLURM: {why}"]


def test_a_job_that_gets_nowhere_does_not_come_back_for_ever(scontrol, said):  # noqa: F811
    asked = scontrol()
    requeue_job({**JOB, "SLURM_RESTART_COUNT": "2"})
    requeue_job({**JOB, "SLURM_RESTART_COUNT": "0"}, has_moved=False)
    assert asked() == ["show job 7", "requeue 7"] * 2
    requeue_job({**JOB, "SLURM_RESTART_COUNT": "2"}, has_moved=False)
    assert asked()[4:] == ["show job 7"]
    assert "SLURM job 7 is not requeued: it has come back (restart 2) and been stopped before" in said[-1]


def test_a_refusal_is_said(scontrol, said):  # noqa: F811
    scontrol(code=1)
    requeue_job(JOB)
    assert len(said) == 1 and "could not be requeued, submit it again" in said[0]
    assert "Requested operation is presently disabled" in said[0]


def test_no_scontrol(monkeypatch, tmp_path, said):
    monkeypatch.setenv("PATH", str(tmp_path))
    requeue_job({})
    assert said == []
    requeue_job(JOB)
    assert "could not be requeued, submit it again" in said[0]
