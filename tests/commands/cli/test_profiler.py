"""Tests that profiles are written to the run's folder."""

import json

import pytest

from tests.conftest import TINY

SHORT = [*TINY, "--trainer.max_steps", "8"]


@pytest.mark.parametrize("name", ["simple", "advanced"])
def test_a_profiler_writes_the_times_of_every_hook_into_the_run(lockstep, tmp_path, name):
    run = lockstep("fit", *SHORT, "--trainer.profiler", name, name="a")
    (report,) = run.folder.glob("profile/*")
    assert report.name == f"fit-{name}.txt"
    assert "[Strategy]SingleDeviceStrategy.training_step" in report.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"data", "runs"}


@pytest.mark.slow
def test_a_profiler_writes_a_trace_of_some_steps(lockstep, tmp_path):
    run = lockstep("fit", *SHORT, "--trainer.profiler", "pytorch", name="a")
    traces = sorted(run.folder.glob("profile/*.json"))
    assert traces
    assert list(run.folder.glob("profile/*.txt"))
    names = {event.get("name") for trace in traces for event in json.loads(trace.read_text())["traceEvents"]}
    assert "aten::mm" in names
    assert "[pl][profile][Strategy]SingleDeviceStrategy.training_step" in names
    assert {f"ProfilerStep#{step}" for step in (2, 3, 4)} <= names
    assert "ProfilerStep#5" not in names
    assert {path.name for path in tmp_path.iterdir()} == {"data", "runs"}


def test_a_profiler_described_in_full_is_taken(lockstep):
    lightnings = "lightning.pytorch.profilers.SimpleProfiler"
    described = ["--trainer.profiler", lightnings, "--trainer.profiler.dirpath", "mine", "--trainer.profiler.filename"]
    run = lockstep("fit", *SHORT, *described, "times", name="a")
    assert (run.folder.parents[1] / "mine/fit-times.txt").exists()
