"""`train.py doctor` in jobs of a real SLURM, with and without srun."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.slurm.cluster import Cluster, missing

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=f"no SLURM: {missing()}"),
    pytest.mark.launcher,
    pytest.mark.timeout(400),
]


@pytest.mark.slow
def test_a_job_reports_once_what_slurm_started(tmp_path, tmp_path_factory):
    (tmp_path / "train.py").symlink_to(REPOSITORY / "train.py")
    doctor = f"{sys.executable} train.py doctor --json"
    commands = {"fits": f"srun {doctor}", "no_srun": doctor}
    cluster = Cluster(tmp_path_factory.mktemp("slurm") / "cluster")  # the path of its socket has to be short
    try:
        environment = {"PATH": f"{Path(sys.executable).parent}:{cluster.environment['PATH']}", "OMP_NUM_THREADS": "1"}
        nodes = ["--nodes", "2", "--ntasks-per-node", "1", "--output", "%j.log", "--error", "%j.err"]
        numbers = {
            name: cluster.submit(*nodes, "--wrap", f"exec {command}", folder=tmp_path, environment=environment)
            for name, command in commands.items()
        }
        for number in numbers.values():
            cluster.end(number, 160)
    finally:
        cluster.close()
    found = {}
    for name, number in numbers.items():
        text = (tmp_path / f"{number}.log").read_text()
        assert text, (tmp_path / f"{number}.err").read_text()
        findings = json.loads(text)["findings"]  # of two tasks one object
        found[name] = {(each["check"], each["status"]): each["found"] for each in findings}
    assert found["fits"]["slurm", "ok"].endswith("2 task(s) on 2 node(s), within srun")
    assert "srun: 2 processes on 2 node(s)" in found["fits"]["rendezvous", "ok"]
    assert ("all-reduce", "ok") in found["fits"]
    assert ("slurm", "fail") not in found["fits"]
    assert "a job of 2 tasks, and this process was started without srun" in found["no_srun"]["slurm", "fail"]
