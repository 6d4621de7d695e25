"""The diagnosis overlays (debug, profile) find the cause of a fault in a real family."""

import json
import os

import pytest

from tests.conftest import REPOSITORY, TINY
from tests.support.faults.number_faults import number_fault

DEBUG = ["--config", str(REPOSITORY / "configs/overlays/debug.yaml")]
PROFILE = ["--config", str(REPOSITORY / "configs/overlays/profile.yaml")]
ANOMALY = pytest.mark.filterwarnings("ignore:You have turned on `Trainer\\(detect_anomaly=True\\)`:UserWarning")


@pytest.mark.slow
@ANOMALY
def test_debug_overlay_overfits_one_batch(lockstep):
    fast = ["--trainer.max_epochs", "30", "--model.init_args.learning_rate", "0.03", "--model.init_args.warmup_steps"]
    run = lockstep("fit", *TINY, *DEBUG, *fast, "0", name="a")
    losses = run.series("train/loss")
    assert sorted(losses) == list(range(1, 31)), "one optimizer step an epoch"
    assert losses[30] < losses[1] / 2


@pytest.mark.slow
@ANOMALY
@pytest.mark.filterwarnings("ignore:Error detected in:UserWarning")
def test_debug_names_the_operation_that_makes_a_nan(lockstep):
    """A finite loss with a gradient that is not a number: the root of zero times zero."""
    rooted = number_fault("RootOfZeroAt", step=2)
    with pytest.raises(RuntimeError, match="Function 'SqrtBackward0' returned nan values in its 0th output"):
        lockstep("fit", *TINY, *DEBUG, *rooted, "--trainer.max_epochs", "4", name="a")


@pytest.mark.slow
def test_profile_overlay_reports_operators_and_memory(lockstep, messages, tmp_path):
    run = lockstep("fit", *TINY, *PROFILE, name="a")
    assert max(run.series("train/loss")) == 8
    (trace,) = run.folder.glob("profile/training_step-process-0.pt.trace.json")
    content = json.loads(trace.read_text())
    events = content["traceEvents"]
    assert {f"ProfilerStep#{step}" for step in (2, 3, 4)} <= {event.get("name") for event in events}
    curve = [event for event in events if event.get("name") == "memory cpu" and event["ph"] == "C"]
    allocations = [event for event in events if event.get("name") == "[memory]"]
    assert len(curve) == len(allocations) > 100
    heights = [event["args"]["MiB"] for event in curve]
    assert 0.1 < max(heights) - min(heights) < 1000
    assert {event["pid"] for event in curve} == {os.getpid()}
    (table,) = [line for line in messages if line.startswith("the 10 most expensive operators of training_step")]
    rows = table.splitlines()[2:]
    assert len(rows) == 10
    times, shares = zip(*((float(row.split()[-3]), float(row.split()[-2].rstrip("%"))) for row in rows), strict=True)
    assert list(times) == sorted(times, reverse=True)
    assert times[0] > 0
    assert 30 < sum(shares) <= 100.1
    assert any(row.startswith("aten::") for row in rows)
    assert not any("ProfilerStep" in row for row in rows)
    assert f"tables of all operators: {run.folder.relative_to(tmp_path)}/profile" in " ".join(messages)
    assert "aten::mm" in (run.folder / "profile/fit-pytorch.txt").read_text()


def test_profile_reports_that_there_was_nothing_to_trace(lockstep, messages):
    lockstep("fit", *TINY, *PROFILE, "--trainer.max_steps", "1", name="a")
    assert "nothing was traced: a trace needs at least 5 steps" in messages
