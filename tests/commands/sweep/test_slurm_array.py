"""Tests a SLURM array of two tasks on one study: deploy/slurm/sweep.sbatch under a real SLURM."""

import sys
from contextlib import suppress

import psutil
import pytest

from commands.report.study_summary import read_study
from tests.conftest import REPOSITORY
from tests.support.slurm.cluster import Cluster, missing
from tests.support.small_sweep import SMALL, SWEEP
from tests.support.waiting import wait_until

PATIENCE = 400  # seconds for a task, on a machine that others use too


@pytest.mark.slow
@pytest.mark.launcher
@pytest.mark.timeout(900)
@pytest.mark.skipif(missing() is not None, reason=f"no SLURM: {missing()}")
def test_two_tasks_of_an_array_share_a_study(tmp_path, tmp_path_factory):
    """One of them is stopped during its trial; SLURM starts it again, and no trial is lost or run twice."""
    (tmp_path / "train.py").symlink_to(REPOSITORY / "train.py")
    (tmp_path / "s.yaml").write_text(SWEEP)
    config = str(REPOSITORY / "configs/recommender/quickstart.yaml")
    words = ["--config", config, "--sweep", "s.yaml", "--run_name", "a", *SMALL, "--trainer.max_epochs", "10"]
    study = tmp_path / "runs/a"
    cluster = Cluster(tmp_path_factory.mktemp("slurm") / "cluster")  # names of sockets have at most 107 bytes
    try:
        environment = {
            "PATH": f"{REPOSITORY / '.venv/bin'}:{sys.prefix}/bin:{cluster.environment['PATH']}",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        script = str(REPOSITORY / "deploy/slurm/sweep.sbatch")
        number = cluster.submit(script, *words, folder=tmp_path, environment=environment)
        tasks = [f"{number}_{task}" for task in range(2)]
        wait_until(lambda: trained(study / "trial-0000/metrics.jsonl"), PATIENCE)
        stopped = task_that_trains(cluster, "trial-0000")
        cluster.run("scancel", "--batch", "--signal=TERM", tasks[stopped])
        ended = [cluster.end(task, PATIENCE) for task in tasks]
    finally:
        cluster.close()
        output = {path.name: path.read_text() for path in tmp_path.glob("slurm-*.log")}
        print("\n".join(output.values()))  # shown with a failure
    assert [(task["JobState"], task["ExitCode"]) for task in ended] == [("COMPLETED", "0:0")] * 2
    assert ended[stopped]["Restarts"] == "1"
    assert len(output) == 2
    assert [trial.state for trial in read_study(study).trials] == ["complete"] * 3
    lines = [line for text in output.values() for line in text.splitlines()]
    assert [sum(line.startswith(f"trial {number}: 0.") for line in lines) for number in range(3)] == [1] * 3
    assert "trial 0: continues" in lines
    assert "3 trials: 3 complete" in lines
    assert "resuming after step" in (study / "trial-0000.log").read_text()


def trained(metrics):
    """Return whether a step is logged: a training that is stopped before its first step has nothing to resume."""
    return metrics.exists() and "train/loss" in metrics.read_text()


def task_that_trains(cluster, trial):
    """Return the number of the task whose training of a trial runs."""
    for process in cluster.processes():
        with suppress(psutil.Error):
            if trial in process.cmdline():
                return int(process.environ()["SLURM_ARRAY_TASK_ID"])
    raise AssertionError(f"no task trains {trial}")
