"""Reads events and attempts from log.jsonl."""

import pytest

from commands.report.event_log import KEPT, read_events
from tests.commands.report.recorded import BEGAN, Recorded, killed_and_resumed


@pytest.fixture
def run(tmp_path):
    return Recorded(tmp_path / "a")


def test_the_event_log_states_attempts_and_the_steps_lost_between_them(tmp_path):
    events = read_events(killed_and_resumed(tmp_path / "a").folder)
    first, second = events.attempts
    assert (first.from_step, first.to_step, first.end) == (0, 170, None)
    assert (second.from_step, second.to_step, second.end) == (150, 400, "run_ended")
    assert (first.ended, second.began) == (BEGAN.timestamp() + 170, BEGAN.timestamp() + 300)
    assert dict(events.counts) == {
        "run_started": 1,
        "checkpoint_saved": 3,
        "run_resumed": 1,
        "gradients_not_finite": 1,
        "warning": 1,
        "evaluated": 3,
        "run_ended": 1,
        "straggler": 1,
    }
    times = [event["time"] for event in events.events]
    assert times == sorted(times)
    assert len(times) == sum(events.counts.values())
    (straggler,) = [event for event in events.events if event["event"] == "straggler"]
    assert (straggler["rank"], straggler["step"], straggler["fields"]) == (1, 230, {"ratio": "2.5"})


def test_a_test_of_a_killed_run_does_not_lengthen_its_training(run):
    run.log("run_started", 0, 0)
    run.log(None, 50, 50, "step 50")
    run.log(None, None, 9000, "run folder a")
    run.log("evaluated", 40, 9001, "evaluated", stage="test")
    (attempt,) = read_events(run.folder).attempts
    assert (attempt.to_step, attempt.ended) == (50, BEGAN.timestamp() + 50)


@pytest.mark.parametrize("event", ["run_failed", "run_preempted", "process_lost", "out_of_memory"])
def test_how_a_test_ends_is_not_how_the_training_did(run, event):
    run.log("run_started", 0, 0, command="fit")
    run.log(None, 50, 50, "step 50")
    run.log(event, 60, 9000, "it failed", "error", command="test")
    events = read_events(run.folder)
    (attempt,) = events.attempts
    assert (attempt.to_step, attempt.ended, attempt.end) == (50, BEGAN.timestamp() + 50, None)
    assert [event["fields"] for event in events.events] == [{}, {"command": "test"}], "the table tells which is which"
    run.log("run_failed", 51, 9100, "it failed", "error", command="fit")
    assert read_events(run.folder).attempts[0].end == "run_failed"


def test_events_of_0_1_0_have_the_names_of_today(run):
    run.log("checkpoint_passed_over", None, 0, "last.ckpt is truncated", "warning")
    run.log("sample_left_out", 3, 3, "7.png is truncated", "error")
    assert [event["event"] for event in read_events(run.folder).events] == ["checkpoint_skipped", "sample_skipped"]


def test_a_log_of_0_1_0_has_the_rank_as_process(run):
    line = {"time": "2026-11-22T06:13:05+00:00", "process": 2, "step": 3, "level": "warning", "message": "slow"}
    run.write("log-2.jsonl", {**line, "fields": {"event": "straggler", "rank": 1, "process": 1}})
    (event,) = read_events(run.folder).events
    assert event["rank"] == 2
    assert event["fields"] == {"rank": "1"}


def test_the_last_event_of_an_attempt_is_its_end(run):
    """An out-of-memory that the run survived is not its end; a lost process is, when nothing follows."""
    run.log("run_started", 0, 0)
    run.log("out_of_memory", 5, 5, "", "warning")
    run.log(None, 9, 9)
    run.log("process_lost", 9, 10, "process 1 is gone", "error")
    run.log("run_restarted", None, 20)
    run.log("run_resumed", 5, 25)
    run.log("out_of_memory", 6, 26, "", "warning")
    run.log(None, 8, 28)
    events = read_events(run.folder)
    assert [attempt.end for attempt in events.attempts] == ["process_lost", None]
    (restarted,) = [event for event in events.events if event["event"] == "run_restarted"]
    assert (restarted["step"], restarted["reached_step"]) == (None, 9), "at the step that was reached"


def test_very_many_are_thinned_and_counted(run):
    run.log("run_started", 0, 0)
    for step in range(5 * KEPT + 7):
        run.log("checkpoint_saved", step, step)
    run.log("disk_full", 3, 9999, "no room", "error")
    events = read_events(run.folder)
    saved = [event["step"] for event in events.events if event["event"] == "checkpoint_saved"]
    assert events.counts["checkpoint_saved"] == 5 * KEPT + 7
    assert KEPT / 2 <= len(saved) <= KEPT + 1
    assert (saved[0], saved[-1]) == (0, 5 * KEPT + 6)
    assert len({later - earlier for earlier, later in zip(saved[:-2], saved[1:-1], strict=True)}) == 1, (
        "in even distances"
    )
    assert [event["message"] for event in events.events if event["event"] == "disk_full"] == ["no room"]


def test_long_messages_are_cut_and_torn_lines_are_skipped(run):
    run.log("run_failed", 1, 1, "x" * 5000, "error", traceback="y" * 5000, **{f"f{i}": i for i in range(50)})
    with (run.folder / "log.jsonl").open("a") as file:
        file.write('{"time": "2026-01-02T03:04:06Z", "fields": {"event": "straggl\n"event"\n')
    (event,) = read_events(run.folder).events
    assert len(event["message"]) <= 600
    assert sum(map(len, event["fields"].values())) < 1000


def test_lines_that_no_run_writes_are_passed_over(run):
    run.log("run_started", 0, 0)
    for step, event in (("5", "straggler"), (float("inf"), "straggler"), (True, "straggler"), (5, ["straggler"])):
        run.log(event, step, 1)
    run.write("log.jsonl", {"time": 5, "step": 1, "level": "info", "message": "", "fields": {"event": "straggler"}})
    run.log("run_ended", 7, 8)
    events = read_events(run.folder)
    assert [event["event"] for event in events.events] == ["run_started", "run_ended"]
    assert events.attempts[0].to_step == 7


def test_a_run_without_a_log_has_no_events(run):
    assert not read_events(run.folder).logged
