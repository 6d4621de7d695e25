"""train.log and log.jsonl: who writes which lines, and what happens when the disk refuses them."""

import logging
import os
import threading

import pytest

from callbacks.log_files import JsonLogFile, LogFile
from engine.early_lines import EarlyLines
from engine.events import UNSAID, event
from engine.json_lines import JsonLines
from tests.log_lines import events, fields_of, log_lines


@pytest.fixture
def files(tmp_path):
    """Attaches both files of a process to the log: ``files(process=0)``; gives the log."""
    log, before = logging.getLogger("lockstep"), list(logging.getLogger("lockstep").handlers)
    level = log.level

    def attach(process=0, folder=tmp_path):
        log.handlers = []
        log.setLevel(logging.DEBUG)
        text, lines = LogFile(tmp_path / "train.log"), JsonLogFile(folder, process)
        lines.setFormatter(JsonLines("a", process))
        lines.setLevel(logging.INFO)
        for handler in (text, lines):
            log.addHandler(handler)
        return log

    yield attach
    for handler in log.handlers:
        handler.close()
    log.handlers = before
    log.setLevel(level)


def test_another_process_writes_what_the_first_may_not_know(files, tmp_path):
    log = files(process=3)
    log.info("training begins", extra=UNSAID | event("run_started", epoch=0, processes=4))
    log.warning("the step is left out", extra=event("gradients_not_finite", policy="skip"))
    assert not (tmp_path / "log-3.jsonl").exists(), "all say so, and the first one writes it down"
    log.warning("SLURM job 7 is requeued", extra=event("run_requeued", job="7"))
    log.error("something of its own")
    lines = log_lines(tmp_path / "log-3.jsonl")
    assert [(line["process"], line["message"]) for line in lines] == [
        (3, "SLURM job 7 is requeued"), (3, "something of its own"),
    ]  # fmt: skip


def test_a_folder_that_was_taken_away_stays_away(files, tmp_path):
    """The first process removes that of a start that is refused, while another one may still have something to say."""
    log = files(process=1, folder=tmp_path / "refused")
    log.error("the training set is empty", extra=event("run_failed", error="empty"))
    assert not (tmp_path / "refused").exists()


def test_a_folder_that_cannot_be_is_said_once_and_the_run_goes_on(files, tmp_path):
    (tmp_path / "file").write_text("no folder")
    log = files(folder=tmp_path / "file")
    for _ in range(3):
        log.info("a step")
    text = (tmp_path / "train.log").read_text()
    assert text.count("log.jsonl cannot be written") == 1 and text.count("a step") == 3


class Full:
    """A file on a full disk; `both` lets it refuse when another thread's file does."""

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


def test_two_threads_whose_files_are_refused_at_once_do_not_wait_for_each_other(files, tmp_path):
    log = files()
    log.info("begin")
    text, lines = log.handlers
    met = threading.Barrier(2)

    def both():
        """Where each file has a lock of its own both threads come here, each with one of them."""
        try:
            met.wait(1)
        except threading.BrokenBarrierError:
            pass

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
    found = log_lines(tmp_path / "log.jsonl")
    assert {one["path"] for one in fields_of(found, "disk_full")} == {
        str(tmp_path / "train.log"), str(tmp_path / "log.jsonl"),
    }  # fmt: skip
    assert "there is room" in found[-1]["message"] or any("there is room" == one["message"] for one in found)
    assert (tmp_path / "train.log").read_text().count("a line") == 1


def test_what_was_said_before_the_folder_was_known_is_in_the_files(lockstep, done):
    last = done.folder / "checkpoints/last.ckpt"
    last.write_bytes(last.read_bytes()[:-100])
    lockstep("fit", "--config", str(done.folder / "config.yaml"), "--trainer.max_epochs", "3", "--ckpt_path", "last",
             name=done.folder.name)  # fmt: skip
    lines = log_lines(done.folder / "log.jsonl")
    told = [name for name in events(lines) if name not in ("checkpoint_saved", "evaluated")]
    assert told == ["run_started", "run_ended", "checkpoint_passed_over", "run_resumed", "run_ended"]
    (resumed,) = (line for line in lines if line["fields"].get("event") == "run_resumed")
    assert resumed["step"] == 26 and not resumed["fields"]["path"].endswith("/last.ckpt")
    assert "passing over last.ckpt" in (done.folder / "train.log").read_text()
    assert not any(isinstance(one, (EarlyLines, JsonLogFile)) for one in logging.getLogger("lockstep").handlers)
