"""Checks when a SLURM job is requeued; tests/distributed/resume/test_preemption.py tests whole runs."""

import pytest

from callbacks.health.slurm_requeue import requeue_job

JOB = {"SLURM_JOB_ID": "7"}


def test_a_running_job_is_requeued(scontrol, messages):
    read_calls = scontrol()
    requeue_job(JOB)
    assert read_calls() == ["show job 7", "requeue 7"]
    assert messages == ["SLURM job 7 is requeued and resumes from here"]


def test_a_job_whose_name_is_not_utf_8_is_requeued(scontrol, messages):
    read_calls = scontrol(name=b"entra\xeenement".decode("utf-8", "surrogateescape"))
    requeue_job(JOB)
    assert read_calls() == ["show job 7", "requeue 7"]
    assert messages == ["SLURM job 7 is requeued and resumes from here"]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"state": "CANCELLED"}, "its state is CANCELLED"),
        ({"state": "PREEMPTED"}, "its state is PREEMPTED"),
        ({"state": "PENDING"}, "its state is PENDING"),
        ({"batch": 0}, "it is not a batch job"),
        ({"requeue": 0}, "it was submitted with --no-requeue"),
    ],
)
def test_a_job_that_is_not_requeued_or_is_requeued_by_slurm(scontrol, messages, facts, why):
    read_calls = scontrol(**facts)
    requeue_job(JOB)
    assert read_calls() == ["show job 7"]
    assert messages == [f"SLURM job 7 is not requeued: {why}"]


def test_a_job_without_progress_is_not_requeued_for_ever(scontrol, messages):
    read_calls = scontrol()
    requeue_job({**JOB, "SLURM_RESTART_COUNT": "2"})
    requeue_job({**JOB, "SLURM_RESTART_COUNT": "0"}, has_progress=False)
    assert read_calls() == ["show job 7", "requeue 7"] * 2
    requeue_job({**JOB, "SLURM_RESTART_COUNT": "2"}, has_progress=False)
    assert read_calls()[4:] == ["show job 7"]
    assert "SLURM job 7 is not requeued: restart 2 was stopped before" in messages[-1]


def test_a_refusal_is_reported(scontrol, messages):
    scontrol(code=1)
    requeue_job(JOB)
    assert len(messages) == 1
    assert "could not be requeued, submit it again" in messages[0]
    assert "Requested operation is presently disabled" in messages[0]


def test_a_job_without_scontrol_is_asked_to_be_submitted_again(monkeypatch, tmp_path, messages):
    monkeypatch.setenv("PATH", str(tmp_path))
    requeue_job({})
    assert messages == []
    requeue_job(JOB)
    assert "could not be requeued, submit it again" in messages[0]
