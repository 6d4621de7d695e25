"""Tests train.log and log.jsonl: which rank writes which records, and failing disks."""

import logging
import os
import threading
from contextlib import suppress

import pytest

from callbacks.logging.file_handlers import JsonLogFile, LogFile
from engine.telemetry.json_formatter import JsonFormatter
from engine.telemetry.log_events import HIDDEN_ON_CONSOLE, event
from engine.telemetry.startup_log_buffer import StartupLogBuffer
from tests.support.outputs.log_lines import events, fields_of, log_lines


@pytest.fixture
def files(tmp_path):
    """Attach both files of a rank to the log: ``files(rank=0)`` returns the logger."""
    log, before = logging.getLogger("lockstep"), list(logging.getLogger("lockstep").handlers)
    level = log.level

    def attach(rank=0, folder=tmp_path):
        log.handlers = []
        log.setLevel(logging.DEBUG)
        text, lines = LogFile(tmp_path / "train.log"), JsonLogFile(folder, rank)
        lines.setFormatter(JsonFormatter("a", rank))
        lines.setLevel(logging.INFO)
        for handler in (text, lines):
            log.addHandler(handler)
        return log

    yield attach
    for handler in log.handlers:
        handler.close()
    log.handlers = before
    log.setLevel(level)


def test_another_rank_writes_only_records_that_rank_0_may_not_have(files, tmp_path):
    log = files(rank=3)
    log.info("training starts", extra=HIDDEN_ON_CONSOLE | event("run_started", epoch=0, processes=4))
    log.warning("the step is skipped", extra=event("gradients_not_finite", policy="skip"))
    assert not (tmp_path / "log-3.jsonl").exists(), "all ranks log these, and rank 0 writes them"
    log.warning("SLURM job 7 is requeued", extra=event("run_requeued", job="7"))
    log.error("an error of this rank")
    lines = log_lines(tmp_path / "log-3.jsonl")
    assert [(line["process"], line["message"]) for line in lines] == [
        (3, "SLURM job 7 is requeued"),
        (3, "an error of this rank"),
    ]


def test_a_name_that_is_not_utf_8_is_logged(files, tmp_path):
    """A data folder may have been named in Latin-1; its name must not end the training."""
    files().info("converting %s", os.fsdecode(b"data/donn\xe9es.csv"))
    assert (tmp_path / "train.log").read_text() == "converting data/donn\\udce9es.csv\n"


def test_a_file_that_cannot_be_opened_leaves_no_handler(tmp_path):
    """logging closes every handler that it knows at exit, and would print a traceback after the last message."""
    (tmp_path / "train.log").mkdir()
    handler = LogFile.__new__(LogFile)
    with pytest.raises(IsADirectoryError):
        handler.__init__(tmp_path / "train.log")
    assert not vars(handler), "logging has initialised it, and so knows it"


def test_a_removed_folder_is_not_created_again(files, tmp_path):
    """Rank 0 removes the folder of a refused start, while another rank may still log an error."""
    log = files(rank=1, folder=tmp_path / "refused")
    log.error("the training set is empty", extra=event("run_failed", error="empty"))
    assert not (tmp_path / "refused").exists()


def test_a_file_that_cannot_be_opened_is_reported_once(files, tmp_path):
    (tmp_path / "file").write_text("no folder")
    log = files(folder=tmp_path / "file")
    for _ in range(3):
        log.info("a step")
    text = (tmp_path / "train.log").read_text()
    assert text.count("log.jsonl cannot be written") == 1
    assert text.count("a step") == 3


class Full:
    """A file on a full disk; `both` makes two threads fail at the same time."""

    def __init__(self, file, both):
        self._file, self._both = file, both
        self.full, self.closed = True, False

    def write(self, piece):
        if self.full:
            self._both()
            raise OSError(28, "No space left on device")
        return os.write(self._file.fileno(), piece)

    def close(self):
        self.closed = True
        self._file.close()


def test_two_threads_whose_files_fail_at_once_do_not_deadlock(files, tmp_path):
    log = files()
    log.info("begin")
    text, lines = log.handlers
    met = threading.Barrier(2)

    def both():
        """With one lock per file both threads arrive here, each holding a lock."""
        with suppress(threading.BrokenBarrierError):
            met.wait(1)

    for handler in (text, lines):
        handler._file._file = Full(handler._file._file, both)
    record = logging.LogRecord("lockstep", logging.INFO, "", 0, "a line", (), None)
    threads = [threading.Thread(target=handler.handle, args=(record,), daemon=True) for handler in (text, lines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    for handler in (text, lines):
        handler._file._file.full = False
    log.info("there is room")
    records = log_lines(tmp_path / "log.jsonl")
    assert {fields["path"] for fields in fields_of(records, "disk_full")} == {
        str(tmp_path / "train.log"),
        str(tmp_path / "log.jsonl"),
    }
    assert "there is room" in records[-1]["message"] or any(line["message"] == "there is room" for line in records)
    assert (tmp_path / "train.log").read_text().count("a line") == 1


def test_records_before_the_folder_was_known_are_in_the_files(lockstep, done):
    last = done.folder / "checkpoints/last.ckpt"
    last.write_bytes(last.read_bytes()[:-100])
    lockstep(
        "fit",
        "--config",
        str(done.folder / "config.yaml"),
        "--trainer.max_epochs",
        "3",
        "--ckpt_path",
        "last",
        name=done.folder.name,
    )
    lines = log_lines(done.folder / "log.jsonl")
    logged = [name for name in events(lines) if name not in ("checkpoint_saved", "evaluated")]
    assert logged == ["run_started", "run_ended", "checkpoint_skipped", "run_resumed", "run_ended"]
    (resumed,) = (line for line in lines if line["fields"].get("event") == "run_resumed")
    assert resumed["step"] == 26
    assert not resumed["fields"]["path"].endswith("/last.ckpt")
    assert "skipping last.ckpt" in (done.folder / "train.log").read_text()
    assert not any(
        isinstance(handler, (StartupLogBuffer, JsonLogFile)) for handler in logging.getLogger("lockstep").handlers
    )
