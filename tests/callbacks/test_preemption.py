"""One process; tests/distributed/test_preemption.py has whole runs that are told to stop."""

import inspect
import os
import signal
import time
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector

from callbacks import preemption
from callbacks.preemption import Preemption, leave_signals_alone
from engine.stop_signals import stop_signals
from engine.votes import Votes
from tests.conftest import TINY
from tests.distributed.signals import signal_in


def until(condition, timeout=20):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_lightning_does_with_signals_what_is_taken_from_it():
    """Where Lightning renames or moves this, somebody has to look again at what it does with signals."""
    assert "self._signal_connector.register_signal_handlers()" in inspect.getsource(Trainer._run)
    assert "_sigterm_notifier_fn" in inspect.getsource(_SignalConnector.register_signal_handlers)
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu", enable_progress_bar=False)
    loop = trainer.fit_loop.epoch_loop
    assert "self._broadcast_sigterm_tensor()" in inspect.getsource(type(loop).advance)
    before = signal.getsignal(signal.SIGTERM)
    leave_signals_alone(trainer)
    trainer._signal_connector.register_signal_handlers()
    assert signal.getsignal(signal.SIGTERM) is before and not trainer.received_sigterm
    loop._broadcast_sigterm_tensor()  # without a process group Lightning's own would raise
    trainer._signal_connector.teardown()
    del loop._broadcast_sigterm_tensor
    loop._broadcast_sigterm_tensor, type(loop)._moved = None, type(loop)._broadcast_sigterm_tensor
    with pytest.raises(AttributeError, match="_broadcast_sigterm_tensor is not what it was"):
        leave_signals_alone(trainer)
    del type(loop)._moved


def test_signals_set_a_flag_and_nothing_else():
    before = signal.getsignal(signal.SIGUSR1)
    with stop_signals.listening():
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: stop_signals.received == signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        until(lambda: stop_signals.received == signal.SIGTERM)
        with stop_signals.listening():
            pass
        assert stop_signals.received == signal.SIGTERM, "who listens already goes on"
    assert signal.getsignal(signal.SIGUSR1) is before and stop_signals.received == 0


@pytest.mark.parametrize("pipe", ["broken", "full"])
def test_signals_are_heard_when_nobody_reads_what_is_said(pipe, monkeypatch):
    """`... 2>&1 | tee log`: the Ctrl-C that the run gets ends tee as well."""
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
    kept = os.dup(2)
    os.dup2(write, 2)
    try:
        with stop_signals.listening():
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: stop_signals.received == signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: stop_signals.received == signal.SIGTERM)
    finally:
        os.dup2(kept, 2)
        for descriptor in (kept, write, *([read] if pipe == "full" else [])):
            os.close(descriptor)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_tells_its_parent_nothing():
    with stop_signals.listening():
        ready, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(told, b"!")  # a signal in the middle of the fork would find the parent's handlers still there
            signal.alarm(30)
            signal.pause()
            os._exit(0)
        os.read(ready, 1)
        os.close(ready), os.close(told)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
        assert stop_signals.received == 0


def test_one_process_stops_and_goes_on(lockstep, said):
    options = [*TINY, "--model.init_args.dropout", "0.2", "--trainer.max_epochs", "-1", "--trainer.max_steps", "30"]
    through = lockstep("fit", *options, name="through")
    with pytest.raises(SystemExit) as end:
        lockstep(
            "fit", *options, "--preemption.check_every_n_steps", "10",
            *signal_in("on_train_batch_start", "SIGTERM", number=15), name="a",
        )  # fmt: skip
    assert end.value.code == 143
    assert "stopped by SIGTERM after step 20, saved; go on with the same command and --ckpt_path last" in said
    again = lockstep("fit", *options, "--ckpt_path", "last", name="a")
    assert again.series("train/loss") == through.series("train/loss")
    assert again.series("val/ndcg@10") == through.series("val/ndcg@10")


def test_told_in_its_last_steps_a_run_is_done(lockstep):
    run = lockstep(
        "fit", *TINY, "--trainer.max_steps", "9", *signal_in("on_train_batch_start", "SIGTERM", number=9), name="a"
    )
    assert (run.folder / "checkpoints/last.ckpt").exists()


class Answers:
    """A trainer and its model as Preemption sees them on a GPU, and the seconds that a step takes."""

    def __init__(self, monkeypatch, seconds):
        self.seconds, self.clock, self.looks = seconds, 0.0, []
        monkeypatch.setattr(preemption.time, "monotonic", lambda: self.clock)
        self.strategy = SimpleNamespace(root_device=torch.device("cuda"))
        self._signal_connector = SimpleNamespace(register_signal_handlers=print)
        loop = SimpleNamespace(_broadcast_sigterm_tensor=print, _should_accumulate=lambda: False)
        self.fit_loop = SimpleNamespace(epoch_loop=loop)
        self.is_global_zero, self.global_step, self.votes = True, 0, Votes()

    def train(self, callback, steps):
        for _ in range(steps):
            self.clock += self.seconds
            callback.on_after_backward(self, self)
            self.votes.count(self.votes.ballot({"dtype": torch.float64}))
            self.global_step += 1
            before = callback._looks._last
            callback.on_train_batch_end(self, self, None, None, 0)
            if callback._looks._last != before:
                self.looks.append(self.global_step)


@pytest.mark.parametrize(
    ("seconds", "looks"),
    [(0.01, [1, 2, 12, 22]), (0.5, [1, 2, 6, 10, 14, 18, 22, 26, 30]), (15.0, list(range(1, 31)))],
)
def test_slow_steps_are_all_looked_at(monkeypatch, seconds, looks):
    """With 15 s a step and ten steps between two looks SLURM's 120 s would be over before the first of them."""
    callback, run = Preemption(), Answers(monkeypatch, seconds)
    callback.setup(run, run, "fit")
    run.train(callback, 30)
    assert run.looks == looks
    run.seconds = 15.0
    run.train(callback, 30)
    assert run.looks[-15:] == list(range(46, 61)), "at most ten slow steps after fast ones without a look"
    stop_signals.close()


def test_how_often():
    with pytest.raises(ValueError, match="check_every_n_steps must be at least 1, got 0"):
        Preemption(0)
