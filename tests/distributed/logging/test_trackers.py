"""W&B and MLflow on several ranks: one run for all starts, and no process of theirs survives, even a SIGKILL."""

import signal
import socket

import pytest

from tests.conftest import REPOSITORY
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.support.faults.step_faults import fault
from tests.support.outputs.mlflow_runs import expected_metrics, mlflow_metrics, mlflow_runs
from tests.support.outputs.wandb_record import records_of
from tests.support.waiting import wait_until
from tests.tiers import slow

OPTIONS = [
    *TINY_FAMILY,
    *["--config", str(REPOSITORY / "configs/overlays/wandb.yaml"), "--wandb.name", "pair"],
    *["--config", str(REPOSITORY / "configs/overlays/mlflow.yaml"), "--mlflow.name", "pair"],
    *["--data.init_args.batch_size", "8", "--trainer.max_steps", "10", "--last_checkpoint.every_n_steps", "2"],
]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, slow(2)])
def test_a_new_run_without_a_reachable_tracker_is_refused(team, processes):
    """A wrong setting is refused as other wrong input: on all ranks, in one line, without any files."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        address = ["--mlflow.tracking_uri", f"http://127.0.0.1:{taken.getsockname()[1]}"]
        options = [*TINY_FAMILY, "--data.init_args.batch_size", "8", "--mlflow.experiment", "e", *address]
        run = team("fit", *options, name="a", processes=processes)
        assert run.end_cleanly(120) == [2] * processes, run.output
    (line,) = [line for line in run.output.splitlines() if "error: " in line]
    assert "error: MLflow cannot start a run: " in line
    assert "change it with --mlflow.tracking_uri" in line
    assert "Traceback" not in run.output
    assert not run.folder.exists()


@pytest.mark.slow
def test_trackers_continue_after_rank_0_is_killed(team):
    killed = team("fit", *OPTIONS, *fault("SignalAt", name="SIGKILL", step=5, process=0), name="a", processes=2)
    assert killed.end()[0] == -signal.SIGKILL, killed.output
    # W&B's service process checks from time to time whether its client lives.
    wait_until(lambda: not killed.survivors, found=lambda: killed.survivors)
    resumed = team("fit", *OPTIONS, "--ckpt_path", "last", name="a", processes=2).succeeded()
    # W&B may not have written anything of the killed start yet; only rank 0 ever writes.
    *_, second = records_of(resumed.folder)
    starts = [path.name.rpartition("-")[2] for path in resumed.folder.glob("wandb/offline-run-*")]
    assert starts == [second.run_id] * 2
    assert second.name == "pair"
    losses = resumed.series("train/loss")
    assert sorted(losses) == list(range(1, 11))
    assert second.series("train/loss") == pytest.approx({step: losses[step] for step in range(5, 11)})
    client, (record,) = mlflow_runs(resumed.folder.parent, "lockstep")
    assert (record.info.run_name, record.info.status) == ("pair", "FINISHED")
    expected, actual = expected_metrics(resumed.folder), mlflow_metrics(client, record)
    # What the killed one had not yet sent is nowhere but in metrics.jsonl.
    assert actual == {metric: value for metric, value in expected.items() if metric in actual or metric[1] >= 5}
