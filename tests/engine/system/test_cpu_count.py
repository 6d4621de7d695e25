"""Tests the CPUs that control groups and affinity leave to a process, and the default number of workers."""

import os

import pytest

from engine.system.cpu_count import MAX_WORKERS, available_cpus, check_process_count, num_loader_workers


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/job/step", {"job/step/cpu.max": "max 100000", "job/cpu.max": "250000 100000"}, 2.5),  # the parent
        ("0::/job", {"job/cpu.max": "400000 100000", "cpu.max": "max 100000"}, 4),
        ("0::/", {"cpu.max": "50000 100000"}, 0.5),  # as a container sees its own group
        ("0::/outside/name", {"cpu.max": "300000 100000"}, 3),  # the path of the host does not exist in a container
        (
            "3:cpu,cpuacct:/a\n0::/",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "150000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            1.5,
        ),
        ("3:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, 16),
        ("1:memory:/a", {"memory/a/cpu.max": "100000 100000"}, 16),  # not a cpu controller
        ("", {}, 16),
    ],
)
def test_the_smallest_quota_applies(tmp_path, own, files, cores):
    write(tmp_path, {"own": own, **{f"groups/{name}": text for name, text in files.items()}})
    assert available_cpus(16, tmp_path / "groups", tmp_path / "own") == cores
    assert available_cpus(1, tmp_path / "groups", tmp_path / "own") == min(cores, 1)  # the affinity applies too


def test_the_available_cpus_are_at_most_those_of_the_machine():
    assert 0 < available_cpus() <= os.cpu_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux has sched_setaffinity")
def test_the_affinity_is_a_limit():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert available_cpus() <= 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("cores", "processes", "computing", "workers"),
    [(16, 4, 1, 3), (16, 1, 1, MAX_WORKERS), (2, 2, 1, 0), (2.5, 1, 1, 1), (0.5, 1, 1, 0), (8, 1, 8, 0), (6, 4, 1, 0)],
)
def test_workers_use_the_remaining_cpus(cores, processes, computing, workers):
    assert num_loader_workers(cores, processes, computing) == workers


def test_far_more_than_the_cores_is_refused(monkeypatch):
    monkeypatch.setattr("engine.system.cpu_count.available_cpus", lambda: 2.0)
    check_process_count("threads", 64)
    with pytest.raises(ValueError, match="threads is 100000, expected at most 64 on a machine with 2 cores"):
        check_process_count("threads", 100_000)
    monkeypatch.setattr("engine.system.cpu_count.available_cpus", lambda: 96.0)
    check_process_count("threads", 384)
