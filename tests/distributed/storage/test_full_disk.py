"""Tests a full disk, on which neither checkpoints nor logs can be written.

Plain Lightning: the thread of TensorBoard ends with a traceback, the run ends with "you tried to log 0.5 which is
currently not supported", and a checkpoint is left truncated.
"""

import shutil
import subprocess
import sys

import pytest

from callbacks.trackers.tensorboard import TensorBoard
from engine.telemetry.append_file import AppendOnlyFile
from tests.conftest import TINY
from tests.support.faults.disk_faults import disk_fault
from tests.tiers import slow

FIT = ["fit", *TINY, "--trainer.max_steps", "40", "--last_checkpoint.every_n_steps", "10"]


@pytest.fixture
def small_disk(tmp_path):
    """`runs/` is a file system of its own, of 8 MiB."""
    yield from mounted(tmp_path / "runs", "size=8m")


def mounted(folder, options):
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if not sys.platform.startswith("linux") or shutil.which("mount") is None or subprocess.run(command).returncode:
        pytest.skip("a file system of its own takes Linux and root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(step, until=-1):
    return disk_fault("FillDisk", step=step, until=until)


def leave_no_room(folder):
    with (folder / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(b"x" * 4096)


def tags(folder):
    """{tag: number of values} in TensorBoard's files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: len(events.Scalars(tag)) for tag in events.Tags()["scalars"]}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["false", slow("true")], ids=["sync", "async"])
def test_a_disk_that_is_full_for_a_while_changes_no_training(team, small_disk, how):
    # One attempt to save lies in between, and more lines of each record than fit the rest of its last page.
    run = team(*FIT, *fill(14, until=25), "--checkpoints.asynchronous", how, name="a", processes=2).succeeded(120)
    assert run.output.count("last.ckpt could not be saved: [Errno 28] No space left on device") == 1
    for name in ("metrics.jsonl", "train.log", "log.jsonl"):
        assert run.output.count(f"{name} cannot be written: [Errno 28] No space left on device") == 1
        assert f"{name} can be written again" in run.output
    assert "Traceback" not in run.output, run.output
    assert "Logging error" not in run.output, run.output
    assert sorted(run.series("train/loss")) == list(range(1, 41))
    assert tags(run.folder)["train/loss"] == 40
    assert "train/loss" in (run.folder / "train.log").read_text()


@pytest.mark.slow
def test_a_disk_that_stays_full_ends_the_run_in_order(team, small_disk):
    run = team(*FIT, *fill(18), name="a", processes=2)
    assert run.end_cleanly(120) == [1, 1], run.output
    assert "Traceback" not in run.output, run.output
    assert "Logging error" not in run.output, run.output
    last = run.logs[0].strip().splitlines()[-1]
    assert last.startswith("error: runs/a/checkpoints/")
    assert "No space left on device" in last
    (small_disk / "filler").unlink()
    again = team(*FIT, "--ckpt_path", "last", name="a", processes=2)
    assert again.end(120) == [0, 0], again.output
    assert sorted(again.series("train/loss")) == list(range(1, 41))


@pytest.mark.slow
def test_refused_writes_are_repeated_once_there_is_space(small_disk, messages):
    file = AppendOnlyFile(small_disk / "record")
    leave_no_room(small_disk)
    lines = [f"{number:06d} {'x' * 1000}\n" for number in range(50)]
    for line in lines:
        file.write(line)
    assert len(file.path.read_bytes()) < sum(map(len, lines))
    (small_disk / "filler").unlink()
    file.close()
    assert file.path.read_text() == "".join(lines), "none lost, none torn, none twice"
    refused, again = messages
    assert f"{file.path} cannot be written: [Errno 28] No space left on device" in refused
    assert f"{file.path} can be written again" in again


@pytest.mark.slow
def test_tensorboard_outlives_a_full_disk(small_disk):
    logger = TensorBoard(small_disk, name="a", version="")
    for step in range(300):
        if step == 100:
            leave_no_room(small_disk)
        if step == 200:
            (small_disk / "filler").unlink()
        logger.log_metrics({"x": 0.5}, step)
        logger.save()
    logger.finalize("success")
    assert tags(small_disk / "a") == {"x": 300}


INODES = {
    4: "error: [Errno 28] No space left on device: 'runs/a/.running.json' (`df -h` and `df -i` show what is full)",
    9: "rank 0 failed at step 0 (start-up): OSError: [Errno 28] No space left on device: 'runs/a/.config.yaml.",
    10: "error: runs/a/checkpoints/last.ckpt could not be saved 2 times in a row: [Errno 28] No space left on device",
}


@pytest.mark.slow
@pytest.mark.parametrize("number", INODES)
def test_without_free_inodes_the_cause_is_the_last_message(team, tmp_path, number):
    """Plain Lightning ends with TensorBoard's "you tried to log 0.965 which is currently not supported"."""
    for _ in mounted(tmp_path / "runs", f"size=64m,nr_inodes={number}"):
        run = team(*FIT, name="a", processes=1)
        assert run.end() == [1], run.output
        assert run.output.strip().splitlines()[-1].startswith(INODES[number]), run.output
        assert "Traceback" not in run.output
