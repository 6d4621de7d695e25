"""`train.py doctor` under a launcher: ranks on two hosts, and ranks with other settings or code."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.support.families.tiny_linear import TINY_FAMILY

SET_BY_OTHERS = ("MASTER_", "NCCL_", "GLOO_", "SLURM_", "TORCH", "RANK", "LOCAL_", "WORLD_SIZE")
PARTS = ("commands", "callbacks", "engine", "datamodules", "lightning_modules", "configs", "tests")
TIMEOUT = 170


@pytest.fixture
def doctors(tmp_path):
    """Starts processes of a team by hand, and waits for their ends: [(exit code, output), ...]."""
    started = []

    def run(*arguments, of, programs=None, environments=None):
        port = _free_port()
        mine = []
        for rank in range(of if environments is None else len(environments)):
            environment = {key: value for key, value in os.environ.items() if not key.startswith(SET_BY_OTHERS)}
            environment |= {
                "RANK": str(rank),
                "WORLD_SIZE": str(of),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "LOCKSTEP_DEBUG": "",
            }
            environment |= environments[rank] if environments else {}
            program = programs[rank] if programs else REPOSITORY
            mine.append(
                subprocess.Popen(
                    [sys.executable, str(program / "train.py"), "doctor", "--json", *arguments],
                    cwd=tmp_path,
                    env=environment,
                    text=True,
                    start_new_session=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
        started.extend(mine)
        outputs = [process.communicate(timeout=TIMEOUT) for process in mine]
        return [(process.returncode, *output) for process, output in zip(mine, outputs, strict=True)]

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def _free_port():
    with socket.create_server(("", 0)) as free:
        return free.getsockname()[1]


def findings(output):
    """{check: [finding, ...]}"""
    by_check = {}
    for finding in json.loads(output)["findings"]:
        by_check.setdefault(finding["check"], []).append(finding)
    return by_check


@pytest.mark.slow
def test_ranks_with_other_versions_files_and_clocks_are_reported(doctors, tmp_path):
    """One start shows them all, once, by the first process; the exit code is the same on both."""
    copy, shadow = tmp_path / "copy", tmp_path / "shadow"
    for part in PARTS:
        shutil.copytree(REPOSITORY / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "train.py", copy)
    with (copy / "engine/distributed/step_counters.py").open("a") as file:
        file.write("# changed on this node alone\n")
    (shadow / "numpy-2.0.1.dist-info").mkdir(parents=True)
    (shadow / "numpy-2.0.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 2.0.1\n")
    (shadow / "sitecustomize.py").write_text("import time\nnow = time.time\ntime.time = lambda: now() + 90\n")
    first, second = doctors(
        *TINY_FAMILY,
        "--data.init_args.batch_size",
        "7",
        of=2,
        programs=[REPOSITORY, copy],
        environments=[{"PYTHONPATH": str(REPOSITORY)}, {"PYTHONPATH": f"{shadow}:{copy}"}],
    )
    assert first[0] == second[0] == 2, (first, second)
    assert second[1] == ""
    found = findings(first[1])
    assert [finding["status"] for finding in found["rendezvous"]] == ["ok"]
    (code,) = found["same code"]
    assert code["status"] == "fail", code
    assert code["found"].endswith("(no git checkout): engine/distributed/step_counters.py"), code
    (packages,) = found["same packages"]
    assert packages["status"] == "fail", packages
    assert "2.0.1 on rank 1 on" in packages["found"], packages
    (clocks,) = found["clocks"]
    assert clocks["status"] == "warn", clocks
    assert " is 90.0 s ahead of that of rank 0 on " in clocks["found"], clocks
    (batch,) = found["batch"]
    assert batch["status"] == "fail", batch
    assert "does not split evenly over 2 ranks" in batch["found"], batch
    assert [finding["status"] for check in ("reachable", "all-reduce") for finding in found[check]] == ["ok", "ok"]
    assert "MB/s" in found["bandwidth"][0]["found"]
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_rank_that_never_connects_is_reported(doctors):
    ((code, output, errors),) = doctors("--wait", "3", of=2, environments=[{}])
    assert code == 2, errors
    found = findings(output)
    (missing,) = found["rendezvous"]
    assert missing["status"] == "fail", missing
    assert "rank 1 of 2 did not connect to 127.0.0.1:" in missing["found"], missing
    (sums,) = found["all-reduce"]
    assert sums["status"] == "warn"
    assert sums["found"].startswith("not run")


@pytest.fixture
def doctors_of_machines(machines, forge, tmp_path):
    """Forks a doctor on each machine, and waits for their ends: [(exit code, output, errors), ...]."""

    def run(*arguments, interfaces):
        pids = []
        for rank, (name, interface) in enumerate(zip(machines.names, interfaces, strict=True)):
            environment = {key: value for key, value in os.environ.items() if not key.startswith(SET_BY_OTHERS)}
            environment |= {
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": machines.addresses[0],
                "MASTER_PORT": "29533",
                "GLOO_SOCKET_IFNAME": interface,
                "OMP_NUM_THREADS": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "LOCKSTEP_DEBUG": "",
            }
            output, errors = tmp_path / f"output-{rank}", tmp_path / f"errors-{rank}"
            for file in (output, errors):
                file.unlink(missing_ok=True)
            program = ["-m", "tests.support.ranks.run_in_namespace", name, str(errors)]
            pids.append(forge.start([*program, "doctor", "--json", *arguments], environment, tmp_path, output))
        assert None not in forge.wait(pids, TIMEOUT), "a doctor does not end"
        texts = [[(tmp_path / f"{part}-{rank}").read_text() for part in ("output", "errors")] for rank in (0, 1)]
        return [(forge.codes[pid], *text) for pid, text in zip(pids, texts, strict=True)]

    return run


@pytest.mark.slow
def test_doctor_checks_two_hosts_with_a_wrong_no_and_the_right_interface(machines, doctors_of_machines):

    first, second = doctors_of_machines(interfaces=["eth0", "lo"])
    assert first[0] == second[0] == 2, (first, second)
    found = findings(first[1])
    assert [finding["status"] for finding in found["rendezvous"]] == ["ok"]
    (wrong,) = found["reachable"]
    assert "rank 0 on " in wrong["found"], wrong
    assert "cannot reach rank 1 on " in wrong["found"], wrong
    assert "at 127.0.0.1" in wrong["found"], wrong
    assert "eth0 10.233.77.2" in wrong["remedy"], wrong

    first, second = doctors_of_machines(interfaces=["eth0", "eth0"])
    found = findings(first[1])
    checks = ("reachable", "all-reduce", "bandwidth", "clocks")
    assert {finding["status"] for check in checks for finding in found[check]} == {"ok"}, found
    assert first[0] == second[0]
    assert second[1] == ""

    machines.link("down")
    first, second = doctors_of_machines("--wait", "4", interfaces=["eth0", "eth0"])
    assert first[0] == second[0] == 2, (first, second)
    assert "rank 1 of 2 did not connect to 10.233.77.1:29533" in findings(first[1])["rendezvous"][0]["found"]
    (alone,) = findings(second[1])["rendezvous"]  # no rank reads its findings, so it prints them itself
    assert "has tried for 4 s to reach rank 0 at 10.233.77.1:29533" in alone["found"], alone
