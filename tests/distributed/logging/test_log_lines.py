"""log.jsonl, metrics and the progress bar of a run on two ranks, through faults and restarts."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.conftest import TINY
from tests.support.faults.number_faults import number_fault
from tests.support.faults.step_faults import fault
from tests.support.outputs.log_lines import events, fields_of, log_lines

FIT = ["fit", *TINY, "--trainer.max_steps", "12", "--last_checkpoint.every_n_steps", "2"]
GUARDS = ["--finite_guard.policy", "skip", "--stragglers.every_n_steps", "2"]


@pytest.mark.slow
def test_every_line_of_a_run_with_faults_is_valid_by_the_schema(team):
    """Three starts: NaN, a slow process, a SIGTERM; a corrupt checkpoint and an error; the rest."""
    trouble = [*number_fault("NonFiniteLoss", steps=[2], process=1), *fault("SlowLoss", seconds=0.3, process=1)]
    reported = fault("SignalAt", name="SIGTERM", step=5, process=1)
    run = team(*FIT, *GUARDS, *trouble, *reported, "--log.console", "json", name="a")
    assert run.end(120) == [143, 143], run.output
    path, other = run.folder / "log.jsonl", run.folder / "log-1.jsonl"
    first = log_lines(path)
    assert not other.exists(), "rank 0 logs what all ranks observed"
    printed = log_lines(run.logs[0])
    assert [line for line in printed if line in first] == first, "the console has Lightning's besides"
    assert [line for line in log_lines(run.logs[1]) if line["run"]] == []
    assert "━" not in run.output

    last = run.folder / "checkpoints/last.ckpt"
    last.write_bytes(last.read_bytes()[:-1000])
    died = fault("RaiseAt", step=7, process=1)
    again = team(*FIT, *GUARDS, *died, "--ckpt_path", "last", name="a", restart=1, store=run.store)
    assert again.end(120) == [1, 1], again.output
    assert team(*FIT, *GUARDS, "--ckpt_path", "last", name="a").end(120) == [0, 0]

    lines, others = log_lines(path), log_lines(other)
    assert lines[: len(first)] == first, "history stays"
    assert {(line["run"], line["rank"]) for line in lines} == {("a", 0)}
    assert {(line["run"], line["rank"]) for line in others} == {("a", 1)}

    steps_of = {name: [line["step"] for line in lines if line["fields"].get("event") == name] for name in events(lines)}
    assert steps_of["run_started"] == [0]
    assert fields_of(lines, "run_started")[0]["processes"] == 2
    assert steps_of["gradients_not_finite"] == [2], "of the third step, two are finished"
    assert fields_of(lines, "straggler")[0]["rank"] == 1
    stopped = steps_of["run_preempted"][0]
    assert fields_of(lines, "run_preempted") == [
        {"event": "run_preempted", "command": "fit", "signal": "SIGTERM", "saved": True}
    ]
    assert steps_of["run_restarted"] == steps_of["checkpoint_skipped"] == [None], "before there is a step"
    (passed,) = fields_of(lines, "checkpoint_skipped")
    assert passed["path"].endswith("last.ckpt")
    assert "corrupt" in passed["reason"]
    assert steps_of["run_resumed"][0] < stopped
    assert steps_of["process_lost"] == [7]
    assert fields_of(lines, "process_lost")[0]["rank"] == 1
    assert "RaiseAt" not in events(others)
    assert events(others) == ["run_failed"]
    assert "injected on process 1" in others[0]["fields"]["traceback"]
    assert others[0]["level"] == "error"
    assert steps_of["run_ended"] == [12]
    assert events(lines)[-1] == "run_ended"
    saved = fields_of(lines, "checkpoint_saved")
    assert all(event["seconds"] > 0 and event["bytes"] > 1000 for event in saved)
    assert len(saved) >= 5

    records = run.records
    assert {(record["run"], record["rank"]) for record in records} == {("a", 0)}
    steps = {line["step"]: line["fields"] for line in lines if "train/loss" in line["fields"]}
    for record in records[-3:]:
        if "train/loss" in record:
            assert steps[record["step"]]["train/loss"] == record["train/loss"]
    assert steps[3]["train/loss"] is None, "a NaN is not JSON"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="takes a pseudo-terminal of a POSIX system")
def test_the_progress_bar_is_on_rank_0_with_the_time_left(forge, tmp_path):
    """Runs two ranks on two terminals."""
    import pty

    screens, pids, kept = [b"", b""], [], []
    port = _free_port()

    def read(rank, terminal):
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the process has closed its side
                return
            if not piece:
                return
            screens[rank] += piece

    options = [option for option in FIT if not option.startswith("--trainer.enable_progress_bar")]
    readers = []
    for rank in range(2):
        ours, theirs = pty.openpty()
        variables = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TERM": "xterm-256color",
            "COLUMNS": "200",
            "LINES": "40",
        }
        terminal = Path(os.ttyname(theirs))
        pids.append(forge.start([*options, "--run_name", "a"], {**os.environ, **variables}, tmp_path, terminal))
        kept.append(theirs)  # a terminal ends with the last process that has it open
        readers.append(threading.Thread(target=read, args=(rank, ours), daemon=True))
        readers[-1].start()
    forge.wait(pids, 120)
    for pid in pids:
        if pid not in forge.codes:
            os.killpg(pid, signal.SIGKILL)
    for terminal in kept:
        os.close(terminal)
    for reader in readers:
        reader.join(10)
    codes = [forge.codes.get(pid) for pid in pids]
    first, second = (screen.decode(errors="replace") for screen in screens)
    assert codes == [0, 0], f"{first}\n---\n{second}"
    assert "Epoch 0" in first, first
    assert "━" in first, first
    assert "loss:" in first, first
    assert "run left 0:00:" in first, "of the whole training, beside what is left of the epoch"
    assert "step 3, epoch 0:" not in first, "the bar shows the metrics"
    assert "━" not in second, second
    assert "Epoch" not in second, second


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
