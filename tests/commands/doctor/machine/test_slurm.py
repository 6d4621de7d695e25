"""Compares SLURM's variables with each other and with the config."""

import pytest

from commands.doctor.launch_plan import LaunchPlan
from commands.doctor.machine.slurm import check_slurm

JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NAME": "train",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS": "8",
    "SLURM_NTASKS_PER_NODE": "4",
    "SLURM_TASKS_PER_NODE": "4(x2)",
    "SLURM_GPUS_ON_NODE": "4",
    "SLURM_STEP_ID": "0",
}
PLAN = LaunchPlan(devices=4, nodes=2)


def test_outside_of_a_job_there_is_nothing_to_say():
    assert list(check_slurm(PLAN, {})) == []


def test_a_job_that_fits_the_plan_is_ok():
    (finding,) = check_slurm(PLAN, JOB)
    assert (finding.status, finding.found) == ("ok", "job 7: 8 task(s) on 2 node(s), within srun")
    (finding,) = check_slurm(LaunchPlan(), JOB)
    assert finding.status == "ok"


@pytest.mark.parametrize(
    ("plan", "changed", "status", "words", "remedy"),
    [
        (
            LaunchPlan(devices=8, nodes=2),
            {},
            "fail",
            "--ntasks-per-node is 4, trainer.devices 8",
            "--ntasks-per-node=8",
        ),
        (LaunchPlan(devices=4, nodes=3), {}, "fail", "has 2 node(s), trainer.num_nodes is 3", "--nodes=3"),
        (PLAN, {"SLURM_STEP_ID": None}, "fail", "started without srun", "srun python"),
        (PLAN, {"SLURM_NTASKS_PER_NODE": None}, "fail", "without --ntasks-per-node", "--ntasks-per-node=4"),
        (PLAN, {"SLURM_NTASKS": "7"}, "fail", "7 tasks, but 2 node(s) with 4 each are 8", "without --ntasks"),
        (PLAN, {"SLURM_TASKS_PER_NODE": "5,3"}, "fail", "the nodes have 5,3 tasks", "--ntasks-per-node=4"),
        (PLAN, {"SLURM_JOB_NAME": "bash"}, "warn", "the job's name is 'bash'", "SLURM_JOB_NAME=train"),
        (PLAN, {"SLURM_GPUS_ON_NODE": "2"}, "fail", "2 GPU(s) on a node for 4 task(s)", "--gpus-per-node"),
        (PLAN, {"SLURM_GPUS_ON_NODE": "8"}, "warn", "8 GPU(s) on a node for 4 task(s)", "--gpus-per-node"),
        (PLAN, {"SLURM_GPUS_PER_TASK": "1"}, "warn", "--gpus-per-task=1", "--gpu-bind=none"),
        (PLAN._replace(workers=4), {}, "warn", "1 core(s) for a task with 4 loaders", "--cpus-per-task=5"),
        (PLAN, {"TORCHELASTIC_RUN_ID": "x"}, "fail", "srun started 8 torchruns", "--ntasks-per-node=1 torchrun"),
    ],
)
def test_a_mismatch_is_reported(plan, changed, status, words, remedy):
    environ = {key: value for key, value in {**JOB, **changed}.items() if value is not None}
    fitting = [finding for finding in check_slurm(plan, environ) if words in finding.found]
    assert [finding.status for finding in fitting] == [status]
    assert remedy in fitting[0].remedy


def test_srun_does_not_take_over_the_cores_by_itself():
    environ = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_CPUS_PER_TASK": "8"}
    finding, _ = check_slurm(LaunchPlan(), environ)
    assert finding.status == "warn"
    assert "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK" in finding.remedy
    (finding,) = check_slurm(LaunchPlan(), {**environ, "SRUN_CPUS_PER_TASK": "8"})
    assert finding.status == "ok"
