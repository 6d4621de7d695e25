"""Tests the checks of cores, threads, memory, shared memory and limits, really reduced where the system allows it."""

import json
import os
import resource
import shutil
import subprocess
import sys

import pytest
from lightning.fabric.utilities.distributed import _suggested_max_num_threads

from commands.doctor.launch_plan import LaunchPlan
from commands.doctor.machine.cpu import check_cores, check_threads, threads_started
from commands.doctor.machine.memory import check_memory, check_shared_memory
from commands.doctor.machine.ulimits import check_limits
from engine.system.cpu_count import affinity_cores
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's limits")
TWO, LOADING = LaunchPlan(devices=2), LaunchPlan(devices=2, workers=4)


def elsewhere(code: str, before: str = "", shell: tuple[str, ...] = ()) -> list[dict[str, str]]:
    """The findings of a process of its own, which has made something scarce for itself."""
    program = (
        "import json, os, resource\nfrom pathlib import Path\nfrom commands.doctor.launch_plan import LaunchPlan\n"
    )
    program += f"{before}\nprint(json.dumps([f._asdict() for f in {code}]))"
    command = [*shell, sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
    if "unshare" in shell and ("unshare failed" in result.stderr or "mount:" in result.stderr):
        pytest.skip(result.stderr)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_cores_that_a_process_may_not_use_are_not_counted():
    code = "cores.check_cores(LaunchPlan(devices=2, workers=1), os.cpu_count(), affinity_cores(), affinity_cores())"
    imports = "from commands.doctor.machine import cpu as cores\nfrom engine.system.cpu_count import affinity_cores"
    pin = f"{imports}\nos.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    (finding,) = elsewhere(code, pin)
    assert finding["status"] == "warn"
    assert "2 processes would share them" in finding["found"]
    if os.cpu_count() > 1:
        assert finding["found"].startswith(f"1 of {os.cpu_count()} cores may be used")


def test_more_loader_workers_than_the_quota_allows_are_reported():
    (finding,) = check_cores(LOADING, 64, 64, 4.0)
    assert finding.status == "warn"
    assert "quota leaves 4" in finding.found
    assert "--data.init_args.num_workers 1" in finding.remedy
    (finding,) = check_cores(LOADING, 64, 64, 64.0)
    assert (finding.status, finding.found) == ("ok", "64 cores")


@pytest.mark.parametrize(
    ("plan", "variables", "status", "words"),
    [
        (TWO, {}, "ok", "OMP_NUM_THREADS is not set: 4 threads in each of 2 processes on 8 cores"),
        (LaunchPlan(), {}, "ok", "8 threads"),
        (TWO, {"OMP_NUM_THREADS": "8"}, "warn", "OMP_NUM_THREADS=8"),
        (TWO, {"OMP_NUM_THREADS": "4"}, "ok", "OMP_NUM_THREADS=4"),
        (TWO, {"OMP_NUM_THREADS": "4,1"}, "ok", "OMP_NUM_THREADS=4,1"),
        (LaunchPlan(devices=16), {"OMP_NUM_THREADS": "1"}, "ok", "OMP_NUM_THREADS=1"),  # `cores` reports it
        (LaunchPlan(devices=16), {"OMP_NUM_THREADS": "2"}, "warn", "OMP_NUM_THREADS=2"),
        (TWO, {"OMP_NUM_THREADS": "four"}, "warn", "'four'"),
        (LaunchPlan(accelerator="cpu"), {"OMP_NUM_THREADS": "1"}, "warn", "OMP_NUM_THREADS=1"),
    ],
)
def test_threads_against_cores_and_processes(plan, variables, status, words):
    (finding,) = check_threads(plan, 8, 8.0, variables)
    assert finding.status == status
    assert words in finding.found
    if status == "warn":
        assert finding.remedy == f"export OMP_NUM_THREADS={max(1, 8 // plan.processes())}"


@pytest.mark.parametrize(
    ("plan", "variables", "status", "words"),
    [
        (TWO, {}, "ok", "--threads auto: 1 or 4 threads, whichever is faster, in each of 2 processes on 8 cores"),
        (LaunchPlan(devices=8), {}, "ok", "--threads auto: 1 thread in each of 8 processes on 8 cores"),
        (LaunchPlan(devices=2, threads=8), {"OMP_NUM_THREADS": "1"}, "warn", "--threads 8 with 2 processes on 8 cores"),
        (LaunchPlan(devices=2, threads=4), {}, "ok", "--threads 4 with 2 processes on 8 cores"),
        (TWO, {"OMP_NUM_THREADS": "8"}, "warn", "OMP_NUM_THREADS=8"),
    ],
)
def test_threads_that_a_training_on_the_cpu_chooses_or_is_given(plan, variables, status, words):
    (finding,) = check_threads(plan, 8, 8.0, variables, on_cpu=True)
    assert finding.status == status
    assert words in finding.found
    if plan.threads == 8:
        assert finding.remedy == "--threads 4  # or auto"


def test_lightning_divides_the_cores_by_default():
    for processes in (1, 2, 3 * os.cpu_count()):
        assert threads_started(processes, affinity_cores(), {}) == _suggested_max_num_threads(processes)


def test_a_container_with_a_quota_starts_a_thread_for_each_core_of_the_machine():
    (finding,) = check_threads(LaunchPlan(), 64, 2.0, {})
    assert finding.status == "warn"
    assert "64 threads in each of 1 process on 2 cores" in finding.found
    (finding,) = check_threads(TWO, 64, 8.0, {})
    assert finding.status == "warn"
    assert finding.remedy == "export OMP_NUM_THREADS=4"


def test_processes_bound_to_the_same_cores_are_reported():
    *_, finding = check_threads(TWO, 8, 8.0, {"OMP_NUM_THREADS": "4", "OMP_PROC_BIND": "true"})
    assert finding.status == "warn"
    assert finding.remedy == "unset OMP_PROC_BIND"


@pytest.mark.parametrize("version", [1, 2])
def test_a_control_group_that_allows_too_little_memory_is_reported(tmp_path, version):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    group = groups / ("memory/job" if version == 1 else "job")
    group.mkdir(parents=True)
    proc.mkdir()
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control")
    names = names if version == 1 else ("memory.max", "memory.current", "memory.events")
    (proc / "cgroup").write_text("4:memory:/job\n" if version == 1 else "0::/job\n")
    for name, text in zip(names, (str(3 << 30), str(1 << 30), "oom_kill 0"), strict=True):
        (group / name).write_text(text)
    (finding,) = check_memory(LaunchPlan(), proc, groups)
    assert finding.status == "ok"
    assert finding.found.startswith("2.0 GiB available of 3.0 GiB, the limit of the")
    (finding,) = check_memory(LOADING, proc, groups)  # two processes of 1 GiB with four loaders of 0.4 GiB each
    assert finding.status == "fail"
    assert "need about 5.2 GiB" in finding.found
    assert "137" in finding.why
    assert "num_workers 0" in finding.remedy
    (finding,) = check_memory(LaunchPlan(devices=3), proc, groups)
    assert finding.status == "warn"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a file system of its own takes root")
def test_a_small_dev_shm_fails_the_check():
    shell = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh")
    code = "memory.check_shared_memory(LaunchPlan(workers=4))"
    (finding,) = elsewhere(code, "from commands.doctor.machine import memory", shell)
    assert finding["status"] == "fail"
    assert finding["found"] == "64.0 MiB free of 64.0 MiB in /dev/shm"
    assert "Bus error" in finding["why"]
    assert "--shm-size" in finding["remedy"]


def test_shared_memory_that_is_not_there_or_not_ours(tmp_path):
    for plan, status in ((LaunchPlan(workers=1), "fail"), (LaunchPlan(workers="auto"), "fail"), (LaunchPlan(), "warn")):
        (finding,) = check_shared_memory(plan, tmp_path / "shm")
        assert finding.status == status
        assert "does not exist" in finding.found


def test_shared_memory_that_is_small_for_so_many_loaders(tmp_path):
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    (finding,) = check_shared_memory(LaunchPlan(workers=free // (256 << 20) + 2), tmp_path)
    assert finding.status == "warn"
    assert "loaders can need" in finding.found


@pytest.mark.parametrize(
    ("name", "soft", "status", "words", "remedy"),
    [
        ("NOFILE", 256, "fail", "256 open files (ulimit -n", "ulimit -n"),
        ("NOFILE", 1024, "warn", "1024 open files (ulimit -n", "ulimit -n"),
        ("NPROC", 100, "fail", "100 processes and threads for this user", "ulimit -u"),
        ("FSIZE", 1 << 20, "fail", "files of at most 1 MiB", "ulimit -f unlimited"),
        ("AS", 64 << 30, "warn", "64 GiB of addresses", "ulimit -v unlimited"),
    ],
)
def test_low_limits_of_the_shell_are_reported(name, soft, status, words, remedy):
    which = f"resource.RLIMIT_{name}"
    before = "from commands.doctor.machine import ulimits\n"
    before += f"resource.setrlimit({which}, ({soft}, resource.getrlimit({which})[1]))"
    found = [
        each
        for each in elsewhere("ulimits.check_limits(LaunchPlan(devices=2, workers=4))", before)
        if words in each["found"]
    ]
    assert [each["status"] for each in found] == [status]
    assert remedy in found[0]["remedy"]


def test_core_dumps_without_a_limit_are_reported(tmp_path):
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        pytest.skip("the hard limit forbids them")
    (tmp_path / "core_pattern").write_text("core\n")
    before = "from commands.doctor.machine import ulimits\nresource.setrlimit(resource.RLIMIT_CORE, (-1, -1))"
    code = f"ulimits.check_limits(LaunchPlan(), core_pattern=Path({str(tmp_path / 'core_pattern')!r}))"
    (finding,) = [each for each in elsewhere(code, before) if "core dumps" in each["found"]]
    assert finding["remedy"] == "ulimit -c 0"


def test_locked_memory_where_there_is_infiniband(tmp_path):
    (tmp_path / "mlx5_0").mkdir()
    before = "from commands.doctor.machine import ulimits\nresource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))"
    code = f"ulimits.check_limits(LaunchPlan(nodes=2), infiniband=Path({str(tmp_path)!r}))"
    (finding,) = [each for each in elsewhere(code, before) if "locked" in each["found"]]
    assert finding["status"] == "fail"
    assert "64 KiB" in finding["found"]


def test_a_control_group_that_allows_few_processes_is_reported(tmp_path):
    group = tmp_path / "groups/pids/pod"
    group.mkdir(parents=True)
    (tmp_path / "cgroup").write_text("8:pids:/pod\n")
    (group / "pids.max").write_text("100\n")
    (group / "pids.current").write_text("40\n")
    (finding,) = [f for f in check_limits(LOADING, tmp_path, tmp_path / "groups") if "control group" in f.found]
    assert finding.status == "warn"
    assert "allows 100 processes and threads, 40 exist" in finding.found
