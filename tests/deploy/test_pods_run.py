"""Runs the command of the pods of deploy/kubernetes as two pods on this machine: restarts, probes and metrics."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.conftest import REPOSITORY, TINY, Run
from tests.deploy.manifests import all_pods
from tests.distributed.conftest import forge  # noqa: F401  (fixture)
from tests.support.faults.step_faults import fault
from tests.support.ports import free_ports
from tests.support.ranks.team import FORKED_TORCHRUN

PODS = all_pods()[0]


@pytest.fixture
def start_pods(tmp_path, forge):  # noqa: F811
    """Starts both pods as Kubernetes does, on this machine, and asks them what its probes ask; none survives the test.

    Returns their exit codes, their output, and the answers to their liveness probes.
    """
    (tmp_path / "train.py").symlink_to(REPOSITORY / "train.py")
    probe = PODS.container["livenessProbe"]["httpGet"]
    torchrun, program = PODS.container["command"]
    assert torchrun == "torchrun"
    running = []

    def start(*options):
        port, *probed = free_ports(3)  # pods have an address each, here they need a port each
        outputs, pods = [], []
        for pod in range(2):
            # What the operator sets, by its documentation and its source (pkg/controller.v1/pytorch/envvar.go).
            variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(pod)}
            nodes = {"NNODES": "2", "NODE_RANK": str(pod), "NPROC_PER_NODE": "1"}
            nodes |= {key: variables[key] for key in ("MASTER_ADDR", "MASTER_PORT")}
            variables |= {f"PET_{key}": value for key, value in nodes.items()}
            own = (variable for variable in PODS.container["env"] if variable["name"].startswith(("PET_", "TORCH_")))
            variables |= {variable["name"]: variable["value"] for variable in own}
            variables |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
            outputs.append(tmp_path / f"pod-{len(running)}.log")
            command = [*FORKED_TORCHRUN, program, "fit", *options, f"--prometheus.port={probed[pod]}"]
            running.append(forge.start(command, {**os.environ, **variables}, tmp_path, outputs[-1]))
            pods.append(running[-1])
        answers: list[list[int]] = [[], []]
        deadline = time.monotonic() + 150
        while not all(pod in forge.codes for pod in pods):
            assert time.monotonic() < deadline, "the pods do not end"
            forge.listen()
            for pod, number in enumerate(probed):
                url = f"http://127.0.0.1:{number}{probe['path']}"
                with suppress(URLError, OSError), urlopen(url, timeout=10) as answer:
                    answers[pod].append(answer.status)
            time.sleep(0.1)
        codes = [forge.codes[pod] for pod in pods]
        return codes, "\n".join(output.read_text(errors="replace") for output in outputs), answers

    yield start
    for pod in running:
        with suppress(ProcessLookupError):
            os.killpg(pod, signal.SIGKILL)


@pytest.mark.launcher
@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(330)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds torchrun's process in /proc")
def test_an_evicted_pod_takes_the_other_one_along_and_both_come_back(start_pods, tmp_path):
    """The second pod gets a SIGTERM: both save and end with a failure, and resume when they are started again."""
    options = [*TINY, "--trainer.max_steps", "10", "--preemption.check_every_n_steps", "1", "--run_name", "a"]
    torchrun = "$(cut -d ' ' -f 4 /proc/$PID/stat)"
    evict = json.dumps(["sh", "-c", f"kill -TERM {torchrun}"])
    options += ["--ckpt_path", "last", *fault("CommandAt", command=evict, step=5, process=1, hold=True)]
    log_arguments = [arg for arg in PODS.container["args"] if arg.startswith(("--log.", "--prometheus.host"))]
    codes, output, answers = start_pods(*options, *log_arguments)
    assert all(codes), output
    assert "stopped by SIGTERM after step 6, saved" in output, output
    assert all(pod and set(pod) == {200} for pod in answers), (answers, output)
    assert '"message": "stopped by SIGTERM after step 6, saved' in output, "a line of JSON"
    codes, output, _ = start_pods(*options, *log_arguments)
    assert codes == [0, 0], output
    assert "resuming after step 6 " in output
    assert "= 2 ranks x 8 samples" in output
    assert sorted(Run(tmp_path / "runs/a").series("train/loss")) == list(range(1, 11))
