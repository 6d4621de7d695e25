"""Tests the number of processes and the rendezvous that a launcher's variables describe."""

import pytest

from commands.launch.launched_processes import (
    LaunchedProcesses,
    Rendezvous,
    launched_processes,
    match_launched,
    rendezvous_from_env,
)

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}


def test_the_processes_of_torchrun_and_srun_are_counted(monkeypatch):
    for key in ("SLURM_NTASKS", "SLURM_JOB_NAME", "SLURM_NNODES"):
        monkeypatch.delenv(key, raising=False)
    assert launched_processes({}) is None
    assert launched_processes(TORCHRUN) == LaunchedProcesses("torchrun", 2, 2)
    slurm = {"SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_JOB_NAME": "train", "SLURM_STEP_ID": "0"}
    for key, value in slurm.items():
        monkeypatch.setenv(key, value)
    assert launched_processes(slurm) == LaunchedProcesses("srun", 4, 2)
    with pytest.raises(ValueError, match="--ntasks-per-node"):
        launched_processes({**slurm, "SLURM_NNODES": "3"})
    slurm.pop("SLURM_STEP_ID")  # in the job's script itself, and in a shell of salloc
    with pytest.raises(ValueError, match="started without srun"):
        launched_processes(slurm)
    assert launched_processes({**slurm, "SLURM_NTASKS": "1", "SLURM_NNODES": "1"}) == LaunchedProcesses("srun", 1, 1)


def test_automatic_devices_and_nodes_follow_the_launcher():
    team = LaunchedProcesses("torchrun", 2, 4)
    assert match_launched("auto", 1, None) == ("auto", 1)
    assert match_launched("auto", 1, team) == (2, 4)
    assert match_launched(-1, 4, team) == (-1, 4)
    assert match_launched("0,3", 4, team) == ("0,3", 4)


@pytest.mark.parametrize(("devices", "nodes"), [(1, 4), ("1", 4), ([0, 1, 2], 4), (2, 2)])
def test_copies_that_know_nothing_of_each_other_are_refused(devices, nodes):
    with pytest.raises(ValueError, match=r"torchrun started 2 process\(es\) on each of 4 node\(s\)"):
        match_launched(devices, nodes, LaunchedProcesses("torchrun", 2, 4))


def test_variables_set_by_hand_or_by_kubernetes_are_recognized(monkeypatch):
    for key in ("SLURM_NTASKS", "SLURM_JOB_NAME", "SLURM_NNODES"):
        monkeypatch.delenv(key, raising=False)
    meeting = {"MASTER_ADDR": "first", "MASTER_PORT": "2222"}
    pod = {**meeting, "RANK": "3", "WORLD_SIZE": "4"}
    assert launched_processes(pod) == LaunchedProcesses("environment", 1, 4)
    assert rendezvous_from_env(pod) == Rendezvous(3, 4, "first", 2222, False)
    assert LaunchedProcesses("environment", 1, 4).launcher == "the launcher"
    assert launched_processes({**pod, "LOCAL_RANK": "3"}) == LaunchedProcesses("environment", 4, 1)
    assert launched_processes({**pod, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}) == LaunchedProcesses(
        "environment", 2, 2
    )
    assert rendezvous_from_env({}) is None


def test_processes_of_srun_meet_at_a_port_of_their_job_and_step(monkeypatch):
    job = {
        "SLURM_NTASKS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NAME": "train",
        "SLURM_JOB_ID": "123456",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "3",
        "SLURM_NODELIST": "node[7-8]",
    }
    for key, value in job.items():
        monkeypatch.setenv(key, value)

    def port(**environment):
        environ = {**job, **environment}
        rendezvous = rendezvous_from_env(environ)
        assert environ["MASTER_PORT"] == str(rendezvous.port), "torch takes it from there"
        return rendezvous.port

    assert rendezvous_from_env(dict(job)) == Rendezvous(3, 4, "node7", port(), False)
    assert rendezvous_from_env({**job, "MASTER_PORT": "4", "MASTER_ADDR": "x"}) == Rendezvous(3, 4, "x", 4, False)
    # Lightning's port has the last four digits of the job's number only, and two steps of a job share it.
    ports = [port(), port(SLURM_STEP_ID="1"), port(SLURM_JOB_ID="133456"), port(SLURM_JOB_ID="123457")]
    assert len(set(ports)) == 4
    assert all(15000 <= port < 32000 for port in ports)
    assert port(SLURM_STEP_ID="interactive") == port(), "some versions of SLURM give a name"
