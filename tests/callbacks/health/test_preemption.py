"""Tests preemption on one rank; tests/distributed/resume/test_preemption.py stops whole runs."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch

from callbacks.health import preemption
from callbacks.health.preemption import Preemption
from engine.distributed.step_counters import StepCounters
from engine.health.signals import stop_signals
from tests.conftest import TINY
from tests.support.faults.signals import signal_in
from tests.support.waiting import wait_until


def test_signals_set_a_flag_and_nothing_else():
    before = signal.getsignal(signal.SIGUSR1)
    with stop_signals.handlers_installed():
        os.kill(os.getpid(), signal.SIGUSR1)
        wait_until(lambda: stop_signals.received == signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: stop_signals.received == signal.SIGTERM)
        with stop_signals.handlers_installed():
            pass
        assert stop_signals.received == signal.SIGTERM, "the outer handlers stay installed"
    assert signal.getsignal(signal.SIGUSR1) is before
    assert stop_signals.received == 0


@pytest.mark.parametrize("pipe", ["broken", "full"])
def test_signals_arrive_when_the_output_is_not_read(pipe, monkeypatch):
    """In `... 2>&1 | tee log` Ctrl-C ends tee as well."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    read, write = os.pipe()
    if pipe == "full":
        os.set_blocking(write, False)
        with pytest.raises(BlockingIOError):
            while True:
                os.write(write, b" " * 4096)
        os.set_blocking(write, True)
    else:
        os.close(read)
    stderr_copy = os.dup(2)
    os.dup2(write, 2)
    try:
        with stop_signals.handlers_installed():
            os.kill(os.getpid(), signal.SIGINT)
            wait_until(lambda: stop_signals.received == signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until(lambda: stop_signals.received == signal.SIGTERM)
    finally:
        os.dup2(stderr_copy, 2)
        for descriptor in (stderr_copy, write, *([read] if pipe == "full" else [])):
            os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_sends_nothing_to_its_parent():
    with stop_signals.handlers_installed():
        ready, reported = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(reported, b"!")  # during the fork the parent's handlers are still installed
            signal.alarm(30)
            signal.pause()
            os._exit(0)
        os.read(ready, 1)
        os.close(ready), os.close(reported)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
        assert stop_signals.received == 0


def test_one_process_stops_and_resumes(lockstep, messages):
    options = [*TINY, "--model.init_args.dropout", "0.2", "--trainer.max_epochs", "-1", "--trainer.max_steps", "30"]
    through = lockstep("fit", *options, name="through")
    with pytest.raises(SystemExit) as end:
        lockstep(
            "fit",
            *options,
            "--preemption.check_every_n_steps",
            "10",
            *signal_in("on_train_batch_start", "SIGTERM", number=15),
            name="a",
        )
    assert end.value.code == 143
    assert "stopped by SIGTERM after step 20, saved; resume with the same command and --ckpt_path last" in messages
    again = lockstep("fit", *options, "--ckpt_path", "last", name="a")
    assert again.series("train/loss") == through.series("train/loss")
    assert again.series("val/ndcg@10") == through.series("val/ndcg@10")


def test_a_run_that_is_stopped_in_its_last_steps_is_done(lockstep):
    run = lockstep(
        "fit",
        *TINY,
        "--trainer.max_steps",
        "9",
        "--trainer.limit_val_batches",
        "0",
        *signal_in("on_train_batch_start", "SIGTERM", number=9),
        name="a",
    )
    saved = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)
    assert saved["global_step"] == 9


class GpuRun:
    """Stand-in for a trainer and its module on a GPU, with steps of `seconds`."""

    def __init__(self, monkeypatch, seconds):
        self.seconds, self.clock, self.polls = seconds, 0.0, []
        monkeypatch.setattr(preemption.time, "monotonic", lambda: self.clock)
        self.strategy = SimpleNamespace(root_device=torch.device("cuda"))
        self._signal_connector = SimpleNamespace(register_signal_handlers=print)
        loop = SimpleNamespace(_broadcast_sigterm_tensor=print, _should_accumulate=lambda: False)
        self.fit_loop = SimpleNamespace(epoch_loop=loop)
        self.is_global_zero, self.global_step, self.counters = True, 0, StepCounters()
        self.accumulate_grad_batches = 1

    def train(self, callback, steps):
        for _ in range(steps):
            self.clock += self.seconds
            callback.on_before_backward(self, self, None)
            self.counters.accumulate(torch.tensor(self.counters.pop_pending(), dtype=torch.float64))
            self.global_step += 1
            before = callback._poll._last
            callback.on_train_batch_end(self, self, None, None, 0)
            if callback._poll._last != before:
                self.polls.append(self.global_step)


@pytest.mark.parametrize(
    ("seconds", "checks"),
    [(0.01, [1, 2, 12, 22]), (0.5, [1, 2, 6, 10, 14, 18, 22, 26, 30]), (15.0, list(range(1, 31)))],
)
def test_slow_steps_are_all_polled(monkeypatch, seconds, checks):
    """With steps of 15 s and ten steps between polls, SLURM's 120 s would end before the first poll."""
    callback, run = Preemption(), GpuRun(monkeypatch, seconds)
    callback.setup(run, run, "fit")
    run.train(callback, 30)
    assert run.polls == checks
    run.seconds = 15.0
    run.train(callback, 30)
    assert run.polls[-15:] == list(range(46, 61)), "at most ten slow steps after fast ones without a poll"
    stop_signals.restore_handlers()


def test_an_interval_of_0_steps_is_refused():
    with pytest.raises(ValueError, match="check_every_n_steps must be at least 1, got 0"):
        Preemption(0)
