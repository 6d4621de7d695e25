"""A run that its launcher restarts resumes exactly, whatever --ckpt_path is.

Lightning 2.6.6 alone: under `torchrun --max-restarts` a run without `--ckpt_path last` begins again at step 0, and the
restarted ranks may read addresses of the ended ranks from torchrun's store and fail to connect.
"""

import random
import shutil
import signal

import pytest
import torch

from tests.conftest import REPOSITORY, TINY, Run
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.support.faults.step_faults import fault
from tests.support.outputs.metric_series import assert_same_series
from tests.support.ranks.team import FORKED_TORCHRUN

OPTIONS = [
    *TINY,
    "--model.init_args.dropout",
    "0.2",
    "--trainer.max_epochs",
    "-1",
    "--trainer.max_steps",
    "30",
    "--last_checkpoint.every_n_steps",
    "5",
]


@pytest.fixture
def ended(uninterrupted, tmp_path):
    """A copy of `uninterrupted`, at the path of the run `a`."""
    shutil.copytree(uninterrupted.folder, tmp_path / "runs/a")
    return Run(tmp_path / "runs/a")


@pytest.mark.slow
@pytest.mark.parametrize(("process", "restart"), [(0, 1), (1, 0)])  # torchrun counts no start for a node that comes
def test_a_killed_run_resumes(team, uninterrupted, process, restart):
    dead = team("fit", *OPTIONS, *fault("SignalAt", name="SIGKILL", step=17, process=process), name="a")
    codes = dead.end_cleanly()
    assert codes[process] == -signal.SIGKILL, dead.output
    assert codes[1 - process] > 0, dead.output
    again = team("fit", *OPTIONS, name="a", restart=restart, store=dead.store)
    assert again.end() == [0, 0], again.output
    assert "restarted by the launcher: resuming from runs/a/checkpoints/last.ckpt" in again.logs[0]
    assert "resuming after step 15" in again.output
    assert_same_series(again, uninterrupted, ("train/loss", "val/ndcg@10"), 0)


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_starts_again(team, uninterrupted):
    dead = team("fit", *OPTIONS, *fault("SignalAt", name="SIGKILL", step=2, process=1), name="a")
    assert dead.end()[1] == -signal.SIGKILL, dead.output
    again = team("fit", *OPTIONS, name="a", restart=1, store=dead.store)
    assert again.end() == [0, 0], again.output
    assert_same_series(again, uninterrupted, ("train/loss", "val/ndcg@10"), 0)


@pytest.mark.slow
def test_a_run_that_started_from_another_resumes_from_its_own_checkpoint(team, uninterrupted):
    other = ["--trainer.max_steps", "38", "--ckpt_path", str(uninterrupted.folder / "checkpoints/last.ckpt")]
    dead = team("fit", *OPTIONS, *other, *fault("SignalAt", name="SIGKILL", step=37, process=1), name="a")
    assert dead.end()[1] == -signal.SIGKILL, dead.output
    again = team("fit", *OPTIONS, *other, name="a", restart=1, store=dead.store)
    assert again.end() == [0, 0], again.output
    assert "resuming after step 35" in again.output


@pytest.mark.slow
def test_a_run_killed_after_a_return_to_an_older_checkpoint_returns_again(team, uninterrupted, ended):
    """Killed before its first save it must not go on with what it was to leave behind, here the end of the run."""
    back = [*OPTIONS, "--ckpt_path", "runs/chosen.ckpt"]
    (ended.folder / "checkpoints/last-1.ckpt").rename(ended.folder.parent / "chosen.ckpt")
    kill = fault("SignalAt", name="SIGKILL", step=28, process=1)
    dead = team("fit", *back, *kill, name="a")
    assert dead.end()[1] == -signal.SIGKILL, dead.output
    again = team("fit", *back, name="a", restart=1, store=dead.store)
    assert again.end() == [0, 0], again.output
    assert "resuming after step 26" in again.output
    assert "started again by the launcher: going on" not in again.output
    assert_same_series(again, uninterrupted, ("train/loss", "val/ndcg@10"), 0)


@pytest.mark.slow
def test_a_start_by_hand_into_an_occupied_folder_is_refused(team, ended):
    second = team("fit", *OPTIONS, name="a")
    assert second.end() == [2, 2], second.output
    assert "already holds a run with checkpoints" in second.logs[0]


@pytest.mark.launcher
@pytest.mark.timeout(500)
def test_torchrun_restarts_a_killed_run(team, uninterrupted):
    """At any step, on either rank: the result equals that of the uninterrupted run."""
    kill, victim = random.randrange(3, 26), random.randrange(2)
    torchrun = [
        *FORKED_TORCHRUN,
        "--nproc_per_node",
        "2",
        "--max-restarts",
        "3",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
        str(REPOSITORY / "train.py"),
    ]
    killed = fault("KillsAt", steps=[kill], processes=[victim])
    run = team(*torchrun, "fit", *OPTIONS, *killed, name="a", processes=1)
    code = run.end(400)
    print(f"process {victim} was killed after step {kill}", run.output)  # shown with a failure
    assert code == [0]
    assert [path.name for path in run.folder.glob("killed-*")] == [f"killed-after-{kill}"]
    first, again = run.starts
    assert first == 0
    assert kill - 5 <= again <= kill, (again, kill)  # who is not killed may just be saving that step
    assert_same_series(run, uninterrupted, ("train/loss", "val/ndcg@10"), 0)
    ours, theirs = (
        torch.load(trained.folder / "checkpoints/last.ckpt", weights_only=True) for trained in (run, uninterrupted)
    )
    assert all(torch.equal(ours["state_dict"][name], weight) for name, weight in theirs["state_dict"].items())
    assert [record["step"] for record in run.records if "train/loss" in record] == list(range(1, 31))


@pytest.mark.slow
def test_a_team_that_is_refused_leaves_no_folder(team):
    """All ranks refuse the mistake, in the first start and in the restarts; a start without it succeeds."""
    options = [*TINY_FAMILY, "--data.init_args.batch_size", "8", "--trainer.max_steps", "2"]
    store = None
    for restart in range(2):
        refused = team("fit", *options, "--data.init_args.length", "0", name="a", restart=restart, store=store)
        store = refused.store
        assert refused.end_cleanly() == [2, 2], refused.output
        assert "the training set is empty" in refused.output
        assert not refused.folder.exists()
    right = team("fit", *options, name="a", restart=2, store=store)
    assert right.end() == [0, 0], right.output
    assert (right.folder / "config.yaml").exists()
