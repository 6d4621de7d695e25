"""Tests a study of real trainings that is killed during a training."""

import os
import signal
import subprocess
import sys

import pytest

from commands.report.study_summary import read_study
from tests.conftest import REPOSITORY
from tests.support.outputs.jsonl import read_jsonl
from tests.support.small_sweep import SMALL, SWEEP
from tests.support.waiting import wait_until


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_study_continues(tmp_path):
    (tmp_path / "s.yaml").write_text(SWEEP.replace("trials: 3", "trials: 2"))
    config = str(REPOSITORY / "configs/recommender/quickstart.yaml")
    words = ["sweep", "--config", config, "--sweep", str(tmp_path / "s.yaml"), "--run_name", "a", *SMALL]
    command = [sys.executable, str(REPOSITORY / "train.py"), *words]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "LOCKSTEP_RUNS": str(tmp_path / "runs")}
    study = tmp_path / "runs/a"

    def start():
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, env=surroundings, cwd=tmp_path, text=True, **pipes)

    first = start()
    wait_until(lambda: (study / "trial-0001/metrics.jsonl").exists() or first.poll() is not None, 240)
    first.send_signal(signal.SIGKILL)
    output = first.communicate(timeout=60)[0]
    assert first.returncode == -signal.SIGKILL, output
    assert [trial.state for trial in read_study(study).trials] == ["complete", "running"], output
    second = start()
    output = second.communicate(timeout=240)[0]
    assert second.returncode == 0, output
    assert output.splitlines()[1] == "trial 1: continues"
    recorded = read_study(study)
    assert [(trial.state, trial.number) for trial in recorded.trials] == [("complete", number) for number in range(2)]
    assert f"best: trial {recorded.best.number}, val/ndcg@10 {recorded.best.value:.6g}" in output
    assert recorded.command.split()[-2:] == ["--run_name", "a-best"]
    assert (study / "report.html").is_file()
    for trial in recorded.trials:
        lines = read_jsonl(study / trial.name / "metrics.jsonl")
        values = [(line["step"], line["val/ndcg@10"]) for line in lines if "val/ndcg@10" in line]
        assert len(dict(values)) == 2
        assert trial.value == max(value for _, value in values)
