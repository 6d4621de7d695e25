"""Tests the report of a previous start that the kernel killed; a file of the test replaces the kernel's counter."""

import json

import pytest

from commands.runs import run_lock
from commands.runs.run_lock import RUNNING, record_end, record_start
from engine.system import host_memory


@pytest.fixture
def kernel(monkeypatch):
    """`kernel["kills"]` and `kernel["counter"]`, as the kernel would count."""
    state = {"kills": 5, "counter": "boot group 1"}
    for module in (run_lock, host_memory):
        monkeypatch.setattr(module, "oom_kills", lambda: state["kills"])
    monkeypatch.setattr(run_lock, "oom_counter_id", lambda: state["counter"])
    return state


def test_a_killed_start_is_reported_once(tmp_path, kernel, messages):
    record_start(tmp_path)
    kernel["kills"] += 1
    record_start(tmp_path)
    (line,) = messages
    assert line.startswith("the last start of this run did not end by itself;\nthe kernel's out-of-memory")
    assert "has ended 1 process(es) of this container or job since the last start: memory ran out at" in line
    record_start(tmp_path)
    assert len(messages) == 1


def test_other_starts_are_not_reported(tmp_path, kernel, messages):
    record_start(tmp_path)
    record_end(tmp_path)  # it has ended by itself
    kernel["kills"] += 1
    record_start(tmp_path)
    record_start(tmp_path)  # it has not, but nothing was killed
    kernel.update(kills=9, counter="boot group 2")  # another job, or the machine was started again
    record_start(tmp_path)
    (tmp_path / RUNNING).write_text('{"counter"')  # torn
    record_start(tmp_path)
    assert messages == [] or all("cannot be read" in line for line in messages)
    assert json.loads((tmp_path / RUNNING).read_text()) == {"counter": "boot group 2", "kills": 9}
    record_end(tmp_path)
    record_end(tmp_path)
    assert not (tmp_path / RUNNING).exists()


def test_a_counter_is_its_groups(tmp_path):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    proc.mkdir()
    counters = set()
    for name in ("one", "other"):
        (groups / name).mkdir(parents=True)
        (groups / name / "memory.events").write_text("oom_kill 0\n")
        (proc / "cgroup").write_text(f"0::/{name}\n")
        counters |= {host_memory.oom_counter_id(proc, groups), host_memory.oom_counter_id(proc, groups)}
    assert len(counters) in (1, 2)
    assert (counters == {""}) == (len(counters) == 1)
    assert host_memory.oom_counter_id(tmp_path, tmp_path) == ""
