"""deploy/kubernetes: its form, and what the commands inside do. No cluster has run them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from commands.cli import LockstepCLI
from tests.conftest import REPOSITORY, TINY, Run
from tests.distributed.faults import fault
from tests.slurm.cluster import free_ports

FOLDER = REPOSITORY / "deploy/kubernetes"


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def pods():
    """(file, number of pods, processes in each, restart policy, pod's spec) of each template."""
    (operated,) = documents("pytorchjob.yaml")
    processes = int(operated["spec"]["nprocPerNode"])
    for replica in operated["spec"]["pytorchReplicaSpecs"].values():
        yield "pytorchjob.yaml", replica["replicas"], processes, replica["restartPolicy"], replica["template"]["spec"]
    _, plain = documents("job.yaml")
    spec = plain["spec"]["template"]["spec"]
    variables = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    yield "job.yaml", plain["spec"]["completions"], int(variables["PET_NPROC_PER_NODE"]), spec["restartPolicy"], spec


PODS = list(pods())
each_pod = pytest.mark.parametrize(("name", "replicas", "processes", "policy", "spec"), PODS)


def test_the_operators_job():
    (job,) = documents("pytorchjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert job["metadata"]["name"]
    assert job["spec"].keys() == {"nprocPerNode", "runPolicy", "pytorchReplicaSpecs"}
    assert isinstance(job["spec"]["nprocPerNode"], str)  # a number is refused by the operator's schema
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "backoffLimit": 20}
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert replicas.keys() == {"Master", "Worker"} and replicas["Master"]["replicas"] == 1
    assert all(replica.keys() == {"replicas", "restartPolicy", "template"} for replica in replicas.values())


def test_the_indexed_job():
    service, job = documents("job.yaml")
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    assert service["spec"]["clusterIP"] == "None"  # the word: without it the pods have no names
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    variables = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert int(variables["PET_NNODES"]) == spec["completions"] == spec["parallelism"]
    assert variables["PET_MASTER_ADDR"] == f"{job['metadata']['name']}-0.{pod['subdomain']}"
    assert all(value is None or isinstance(value, str) for value in variables.values())


@each_pod
def test_a_pod(name, replicas, processes, policy, spec):
    """It comes back when it was evicted, has time to save, shared memory, and storage that outlives it."""
    assert policy == "OnFailure" and replicas >= 1
    assert spec["terminationGracePeriodSeconds"] >= 60  # torchrun kills its processes 30 s after the SIGTERM
    (container,) = spec["containers"]
    assert container["name"] == "pytorch"  # the one that the operator prepares
    assert container["resources"]["limits"]["nvidia.com/gpu"] == processes
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory"
    for folder in ("runs", "data"):
        assert "persistentVolumeClaim" in mounts[f"{container['workingDir']}/{folder}"]
    assert len(mounts) == 3


def test_both_files_start_the_same():
    first, *others = [
        {key: spec["containers"][0][key] for key in ("image", "command", "args", "livenessProbe", "volumeMounts")}
        for *_, spec in PODS
    ]
    assert all(other == first for other in others)


@each_pod
def test_the_command_line_takes_it(name, replicas, processes, policy, spec, monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    args = spec["containers"][0]["args"]
    assert "--ckpt_path=last" in args and any(arg.startswith("--run_name=") for arg in args)  # a restart goes on
    with pytest.raises(SystemExit) as end:
        LockstepCLI([*args, "--print_config"])
    assert end.value.code in (0, None), capsys.readouterr().err


def with_own_start_mark(command, folder):
    """A pod has a /tmp of its own."""
    assert any("/tmp/started" in word for word in command)
    return [word.replace("/tmp/started", str(folder / "started")) for word in command]


@pytest.mark.skipif(shutil.which("sh") is None, reason="no sh")
def test_the_process_that_kubernetes_signals_is_torchrun(tmp_path):
    container = PODS[0][-1]["containers"][0]
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/sh\nprintf "%s\\n" "$$" "$@" > noted\n')
    torchrun.chmod(0o755)
    command = [*with_own_start_mark(container["command"], tmp_path), *container["args"]]
    pod = subprocess.Popen(command, cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert pod.wait(60) == 0
    pid, *arguments = (tmp_path / "noted").read_text().splitlines()
    assert int(pid) == pod.pid
    assert arguments == ["train.py", *container["args"]]
    assert (tmp_path / "started").exists()


@pytest.mark.skipif(shutil.which("sh") is None, reason="no sh")
def test_the_probe(tmp_path):
    """Alive is who has just been started, also with the figures of a run that was stopped last week, or writes."""
    container = PODS[0][-1]["containers"][0]
    probe = with_own_start_mark(container["livenessProbe"]["exec"]["command"], tmp_path)
    run = next(arg for arg in container["args"] if arg.startswith("--run_name=")).removeprefix("--run_name=")
    started, figures = tmp_path / "started", tmp_path / f"runs/{run}/metrics.jsonl"
    figures.parent.mkdir(parents=True)

    def alive():
        return subprocess.run(probe, cwd=tmp_path, capture_output=True, timeout=60).returncode == 0

    def hours_ago(path, hours):
        path.touch()
        os.utime(path, times=(time.time() - 3600 * hours,) * 2)

    hours_ago(started, 0)
    assert alive()
    hours_ago(figures, 200)
    assert alive()
    hours_ago(started, 3)
    assert not alive()
    hours_ago(figures, 0.5)
    assert alive()


@pytest.fixture
def start_pods(tmp_path):
    """Starts both pods as Kubernetes does, on this machine, and returns what they said; none survives the test."""
    (tmp_path / "train.py").symlink_to(REPOSITORY / "train.py")
    container = PODS[0][-1]["containers"][0]
    running = []

    def start(*options):
        (port,) = free_ports(1)
        outputs = []
        for pod in range(2):
            # What the operator sets, by its documentation and its source (pkg/controller.v1/pytorch/envvar.go).
            variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(pod)}
            torchrun = {"NNODES": "2", "NODE_RANK": str(pod), "NPROC_PER_NODE": "1"}
            torchrun |= {key: variables[key] for key in ("MASTER_ADDR", "MASTER_PORT")}
            variables |= {f"PET_{key}": value for key, value in torchrun.items()}
            folder = tmp_path / f"pod-{pod}"
            folder.mkdir(exist_ok=True)
            outputs.append(folder / f"{len(running)}.log")
            with outputs[-1].open("wb") as output:
                running.append(
                    subprocess.Popen(
                        [*with_own_start_mark(container["command"], folder), "fit", *options],
                        cwd=tmp_path,
                        env={
                            **os.environ, **variables, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                        },
                        stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                    )  # fmt: skip
                )
        codes = [pod.wait(120) for pod in running[-2:]]
        return codes, "\n".join(output.read_text(errors="replace") for output in outputs)

    yield start
    for pod in running:
        with suppress(ProcessLookupError):
            os.killpg(pod.pid, signal.SIGKILL)


@pytest.mark.distributed
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds torchrun's process in /proc")
def test_an_evicted_pod_takes_the_other_one_along_and_both_come_back(start_pods, tmp_path):
    """The second pod gets a SIGTERM: both save, end with a failure, and when they are started again they go on."""
    options = [*TINY, "--trainer.max_steps", "20", "--preemption.check_every_n_steps", "1", "--run_name", "a"]
    torchrun = "$(cut -d ' ' -f 4 /proc/$PID/stat)"
    evict = json.dumps(["sh", "-c", f"kill -TERM {torchrun}"])
    options += ["--ckpt_path", "last", *fault("CommandAt", command=evict, step=5, process=1, hold=True)]
    codes, said = start_pods(*options)
    assert all(codes), said
    assert "stopped by SIGTERM after step 6, saved" in said, said
    codes, said = start_pods(*options)
    assert codes == [0, 0], said
    assert "going on after step 6 " in said
    assert "= 2 processes x 8 samples" in said
    assert sorted(Run(tmp_path / "runs/a").series("train/loss")) == list(range(1, 21))
