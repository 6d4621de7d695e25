"""What the next start of a run says of one that the kernel ended; its counter is a file of the test's own."""

import json

import pytest

from commands import unended
from commands.unended import NOTE, note_end, note_start
from engine import host_memory


@pytest.fixture
def kernel(monkeypatch):
    """`kernel["kills"]` and `kernel["counter"]`, as the kernel would count."""
    state = {"kills": 5, "counter": "boot group 1"}
    for module in (unended, host_memory):
        monkeypatch.setattr(module, "oom_kills", lambda: state["kills"])
    monkeypatch.setattr(unended, "kills_counter", lambda: state["counter"])
    return state


def test_a_start_that_was_killed_is_told_of_once(tmp_path, kernel, said):
    note_start(tmp_path)
    kernel["kills"] += 1
    note_start(tmp_path)
    (line,) = said
    assert line.startswith("WARNING: the last start of this run did not end by itself;\nthe kernel's out-of-memory")
    assert "has ended 1 process(es) of this container or job since the last start: memory ran out at" in line
    note_start(tmp_path)
    assert len(said) == 1


def test_nothing_is_said_of_others(tmp_path, kernel, said):
    note_start(tmp_path)
    note_end(tmp_path)  # it has ended by itself
    kernel["kills"] += 1
    note_start(tmp_path)
    note_start(tmp_path)  # it has not, but nothing was killed
    kernel.update(kills=9, counter="boot group 2")  # another job, or the machine was started again
    note_start(tmp_path)
    (tmp_path / NOTE).write_text('{"counter"')  # torn
    note_start(tmp_path)
    assert said == [] or all("tells nothing" in line for line in said)
    assert json.loads((tmp_path / NOTE).read_text()) == {"counter": "boot group 2", "kills": 9}
    note_end(tmp_path)
    note_end(tmp_path)
    assert not (tmp_path / NOTE).exists()


def test_a_counter_is_its_groups(tmp_path):
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    proc.mkdir()
    counters = set()
    for name in ("one", "other"):
        (groups / name).mkdir(parents=True)
        (groups / name / "memory.events").write_text("oom_kill 0\n")
        (proc / "cgroup").write_text(f"0::/{name}\n")
        counters |= {host_memory.kills_counter(proc, groups), host_memory.kills_counter(proc, groups)}
    assert len(counters) in (1, 2) and (counters == {""}) == (len(counters) == 1)
    assert host_memory.kills_counter(tmp_path, tmp_path) == ""
