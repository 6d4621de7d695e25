"""Tests time limits of phases and of collectives; tests/distributed tests what happens when they are exceeded."""

import faulthandler
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy

from callbacks.guards.finite_guard import FiniteGuard
from callbacks.health.slurm_requeue import checkpoint_times, requeue_if_saved
from callbacks.health.watchdog import Watchdog
from engine.health.process_monitor import ProcessMonitor
from tests.conftest import TINY
from tests.support.fake_trainer import fake_trainer


def test_every_phase_has_its_time_limit(lockstep, monkeypatch):
    entered = []
    enter = ProcessMonitor.enter

    def spy(self, phase, time_limit):
        if entered[-1:] != [(phase, time_limit)]:
            entered.append((phase, time_limit))
        enter(self, phase, time_limit)

    monkeypatch.setattr(ProcessMonitor, "enter", spy)
    limits = ["--watchdog.timeout", "50", "--watchdog.start_timeout", "70"]
    lockstep("fit", *TINY, *limits, "--trainer.max_epochs", "1", "--last_checkpoint.every_n_steps", "4", name="a")
    phases = [phase for phase, _ in entered]
    assert phases[:4] == ["start-up", "sanity check", "start-up", "first step"], "before the first step"
    assert phases[4:8] == ["training", "saving", "training", "saving"]
    assert phases[-1] == "end of training"
    assert "validation" in phases
    assert "end of validation" in phases
    quick = {"training", "validation"}
    assert {phase for phase, time_limit in entered if time_limit == 50} == quick
    assert {phase for phase, time_limit in entered if time_limit == 70} == set(phases) - {"training"}


def test_the_last_resort_follows_the_phase_at_once(tmp_path, monkeypatch):
    """The monitor thread arms the timer twice a second, but cannot run while the next call holds the GIL."""
    limits = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda limit, **_: limits.append(limit))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: limits.append(None))
    watchdog = Watchdog(timeout=4, start_timeout=70)
    monitor = watchdog._monitor = ProcessMonitor(4, tmp_path)
    monitor._client = object()  # of several processes
    watchdog._enter("first step", 70)
    watchdog._enter("training", 4)
    with watchdog.extended_timeout("rollback"):
        assert (monitor.phase, monitor.max_idle) == ("rollback", 70)
    assert (monitor.phase, monitor.max_idle) == ("training", 4)
    watchdog._enter("training", float("inf"))
    assert limits == [90, 24, 90, 24, None]


def test_an_error_in_an_operation_ends_its_longer_timeout(tmp_path):
    watchdog = Watchdog(timeout=4, start_timeout=70)
    monitor = watchdog._monitor = ProcessMonitor(4, tmp_path)
    watchdog._enter("training", 4)
    with pytest.raises(OSError, match="the disk"), watchdog.extended_timeout("rollback"):
        raise OSError("the disk")
    assert (monitor.phase, monitor.max_idle) == ("training", 4)


def test_a_rollback_may_take_as_long_as_a_start(tmp_path, monkeypatch):
    """Rank 0 verifies all checkpoints while the other ranks wait."""
    watchdog, guard, phases = Watchdog(timeout=50, start_timeout=70), FiniteGuard("rollback"), []
    monitor = watchdog._monitor = ProcessMonitor(50, tmp_path)
    watchdog._enter("training", 50)

    def reads(*_):
        phases.append((monitor.phase, monitor.max_idle))
        return tmp_path / "last.ckpt", 3

    monkeypatch.setattr("callbacks.guards.finite_guard.roll_back", reads)
    guard._roll_back(SimpleNamespace(callbacks=[watchdog, guard]), None, None, "the gradient is NaN")
    assert phases == [("rollback", 70)]
    assert (monitor.phase, monitor.max_idle) == ("training", 50)
    guard._roll_back(SimpleNamespace(callbacks=[guard]), None, None, "the gradient is NaN")


@pytest.mark.parametrize("kind", ["validation", "test", "predict"])
def test_metrics_over_everything_may_take_as_long_as_a_start(tmp_path, kind):
    """Metrics are computed in the module's hook at the end of the epoch, after the callbacks' hooks."""
    watchdog = Watchdog(timeout=50, start_timeout=70)
    watchdog._monitor = ProcessMonitor(50, tmp_path)
    trainer = fake_trainer()
    getattr(watchdog, f"on_{kind}_batch_end")(trainer)
    assert watchdog._monitor.max_idle == 50
    getattr(watchdog, f"on_{kind}_epoch_end")(trainer, None)
    assert watchdog._monitor.max_idle == 70
    assert watchdog._monitor.phase.startswith("end of ")


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork"])
def test_copies_of_a_process_are_refused(lockstep, strategy):
    with pytest.raises(ValueError, match="use --trainer.strategy ddp$"):
        lockstep("fit", *TINY, "--trainer.devices", "2", "--trainer.strategy", strategy, name="a")


def test_a_timeout_of_0_is_none_and_a_negative_one_is_refused():
    assert Watchdog(timeout=0).timeout == float("inf")
    with pytest.raises(ValueError, match="watchdog.start_timeout .* got -1"):
        Watchdog(start_timeout=-1)


@pytest.mark.parametrize("given", [None, timedelta(minutes=7)])
def test_the_connections_get_the_same_limits_unless_they_have_their_own(given):
    strategy = DDPStrategy(**({} if given is None else {"timeout": given}))
    Watchdog(start_timeout=600).attach(SimpleNamespace(strategy=strategy))
    assert strategy._timeout == (given or timedelta(minutes=10))
    unlimited = DDPStrategy(**({} if given is None else {"timeout": given}))
    Watchdog(start_timeout=0).attach(SimpleNamespace(strategy=unlimited))
    assert unlimited._timeout == (given or timedelta(days=24)), "PyTorch's own would be 30 minutes"


@pytest.mark.parametrize(("timeout", "limit"), [(50, timedelta(seconds=60)), (0, timedelta(days=24))])
def test_connections_wait_a_little_longer_than_the_watch(tmp_path, timeout, limit):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        watchdog = Watchdog(timeout=timeout)
        watchdog._monitor, watchdog._sets_group_timeout = ProcessMonitor(50, tmp_path), True
        watchdog._enter("first step", watchdog.start_timeout)
        watchdog._enter("training", watchdog.timeout)
        group = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
        assert group.options._timeout == limit
    finally:
        torch.distributed.destroy_process_group()


def test_a_slurm_job_that_lost_a_process_comes_back(tmp_path, monkeypatch, scontrol, messages):
    read_calls = scontrol()
    saved = tmp_path / "checkpoints/last.ckpt"
    saved.parent.mkdir()
    saved.write_bytes(b"1")
    before = checkpoint_times(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    requeue_if_saved(tmp_path, before)
    assert read_calls() == []
    assert messages == ["the SLURM job is not requeued: it has saved nothing since it started"]
    (tmp_path / "checkpoints/best.ckpt").write_bytes(b"2")
    requeue_if_saved(tmp_path, before)
    assert read_calls() == ["show job 7", "requeue 7"]
    monkeypatch.delenv("SLURM_JOB_ID")
    requeue_if_saved(tmp_path, before)
    assert len(read_calls()) == 2
