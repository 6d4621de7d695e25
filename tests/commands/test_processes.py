import pytest

from commands.processes import Team, launched_team, match_team

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}


def test_what_a_launcher_started(monkeypatch):
    for key in ("SLURM_NTASKS", "SLURM_JOB_NAME", "SLURM_NNODES"):
        monkeypatch.delenv(key, raising=False)
    assert launched_team({}) is None
    assert launched_team(TORCHRUN) == Team("torchrun", 2, 2)
    slurm = {"SLURM_NTASKS": "8", "SLURM_NNODES": "2", "SLURM_JOB_NAME": "train", "SLURM_STEP_ID": "0"}
    for key, value in slurm.items():
        monkeypatch.setenv(key, value)
    assert launched_team(slurm) == Team("srun", 4, 2)
    with pytest.raises(ValueError, match="--ntasks-per-node"):
        launched_team({**slurm, "SLURM_NNODES": "3"})
    slurm.pop("SLURM_STEP_ID")  # in the job's script itself, and in a shell of salloc
    with pytest.raises(ValueError, match="started without srun"):
        launched_team(slurm)
    assert launched_team({**slurm, "SLURM_NTASKS": "1", "SLURM_NNODES": "1"}) == Team("srun", 1, 1)


def test_what_the_config_leaves_open_follows_from_the_launcher():
    team = Team("torchrun", 2, 4)
    assert match_team("auto", 1, None) == ("auto", 1)
    assert match_team("auto", 1, team) == (2, 4)
    assert match_team(-1, 4, team) == (-1, 4)
    assert match_team("0,3", 4, team) == ("0,3", 4)


@pytest.mark.parametrize(("devices", "nodes"), [(1, 4), ("1", 4), ([0, 1, 2], 4), (2, 2)])
def test_copies_that_know_nothing_of_each_other_are_refused(devices, nodes):
    with pytest.raises(ValueError, match=r"torchrun started 2 process\(es\) on each of 4 node\(s\)"):
        match_team(devices, nodes, Team("torchrun", 2, 4))
