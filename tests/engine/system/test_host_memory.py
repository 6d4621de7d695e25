"""Tests memory limits and counters of control groups, in folders like the kernel's, and of this process."""

import pytest

from engine.system import host_memory
from engine.system.oom import is_oom_error

GIB = 1 << 30


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{text}\n")


@pytest.fixture
def machine(tmp_path):
    """A process in the group /job/task. `machine(version)` returns (its /proc, the root of the control groups)."""

    def made(version, path="/job/task"):
        proc, groups = tmp_path / "proc", tmp_path / "cgroup"
        proc.mkdir()
        lines = {2: f"0::{path}\n", 1: f"9:name=systemd:/\n4:memory:{path}\n0::/\n"}
        (proc / "cgroup").write_text(lines[version])
        return proc, groups

    return made


def test_limits_of_cgroup_version_2_are_read(machine):
    proc, groups = machine(2)
    write(groups / "job", memory_max=3 * GIB, memory_current=GIB, memory_events="low 0\noom 2\noom_kill 2")
    write(groups / "job/task", memory_max="max", memory_current=GIB // 2, memory_events="oom_kill 1")
    write(groups / "job", memory_stat=f"anon 5\ninactive_file {GIB // 4}")
    assert host_memory.memory_limit(proc, groups) == (3 * GIB, f"the limit of the container or job, {groups / 'job'}")
    assert host_memory.available_memory(proc, groups) == 3 * GIB - GIB + GIB // 4
    assert host_memory.oom_kills(proc, groups) == 2, "the kills of the group with the limit count too"


def test_limits_of_cgroup_version_1_are_read(machine):
    proc, groups = machine(1)
    job = groups / "memory/job"
    write(job, memory_oom_control="oom_kill_disable 0\noom_kill 7")
    (job / "memory.limit_in_bytes").write_text(str((1 << 63) - 4096))
    write(job / "task", memory_oom_control="under_oom 0\noom_kill 3")
    (job / "task/memory.limit_in_bytes").write_text(str(GIB))
    (job / "task/memory.usage_in_bytes").write_text(str(GIB // 2))
    assert host_memory.memory_limit(proc, groups).size == GIB
    assert host_memory.available_memory(proc, groups) == GIB // 2
    assert host_memory.oom_kills(proc, groups) == 3, "groups above a limit contain other users' processes"


def test_a_container_sees_its_own_group_as_the_root(machine):
    proc, groups = machine(2, "/../../elsewhere")
    write(groups, memory_max=GIB, memory_current=0, memory_events="oom_kill 5")
    assert host_memory.memory_limit(proc, groups).size == GIB
    assert host_memory.oom_kills(proc, groups) == 5


def test_without_control_groups_the_machine_is_the_limit(tmp_path):
    assert host_memory.memory_limit(tmp_path, tmp_path).size > 0
    assert host_memory.available_memory(tmp_path, tmp_path) > 0
    assert host_memory.oom_kills(tmp_path, tmp_path) == 0
    assert host_memory.read_proc_status(tmp_path) == {}


def test_the_memory_of_this_process_grows_with_its_contents():
    before = host_memory.resident_memory()
    ballast = bytearray(b"x" * (64 << 20))
    assert host_memory.resident_memory() - before > 32 << 20
    assert host_memory.peak_resident_memory() >= before
    assert len(ballast)


def test_out_of_memory_errors_are_recognized():
    import torch

    with pytest.raises(RuntimeError) as on_cpu:
        torch.empty(1 << 58)
    with pytest.raises(MemoryError) as in_python:
        bytearray(1 << 62)
    loading = RuntimeError("loading global batch 3 failed")
    loading.__cause__ = in_python.value
    expected = [
        on_cpu.value,
        in_python.value,
        loading,
        torch.OutOfMemoryError("CUDA out of memory"),
        OSError(12, "x"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("NCCL error: unhandled cuda error. Last error: Cuda failure 2 'out of memory'"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    ]
    assert all(map(is_oom_error, expected))
    assert not any(map(is_oom_error, [RuntimeError("shape"), OSError(28, "No space left"), ValueError("x")]))
    circular = ValueError("x")
    circular.__cause__ = circular
    assert not is_oom_error(circular)
