"""Tests the contracts of the private names about ranks, process groups, signals and loader workers."""

import inspect
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, SingleDeviceStrategy
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector
from torch.utils.data import DataLoader, TensorDataset

from engine.lightning_internals import processes as internals
from tests.engine.lightning_internals.tiny_training import INSTALLED, Model, loader, trainer


@pytest.mark.slow
def test_the_rank_is_known_before_there_is_a_trainer():
    program = "from engine.lightning_internals.processes import process_rank; print(process_rank())"
    environment = {**os.environ, "RANK": "3"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "3", INSTALLED + done.stderr


@pytest.mark.parametrize(("method", "copies"), [("fork", True), ("spawn", True), ("popen", False)])
def test_strategies_that_copy_the_process_are_recognized(method, copies):
    strategy = trainer(strategy=DDPStrategy(start_method=method), devices=2).strategy
    assert internals.copies_this_process(strategy) is copies, INSTALLED


def test_a_function_runs_after_the_ranks_are_connected_and_before_data_are_prepared():
    class Data(Model):
        def prepare_data(self):
            order.append("prepare")

    order = []
    run = trainer(max_steps=1)
    internals.after_setup_environment(run.strategy, lambda: order.append("first"))
    internals.after_setup_environment(run.strategy, lambda: order.append("second"))
    run.fit(Data(), loader(1), loader(1))
    assert order == ["first", "second", "prepare"], INSTALLED


def test_lightning_handles_no_signals():
    assert "self._signal_connector.register_signal_handlers()" in inspect.getsource(Trainer._run), INSTALLED
    assert "_sigterm_notifier_fn" in inspect.getsource(_SignalConnector.register_signal_handlers), INSTALLED
    run = trainer()
    loop = run.fit_loop.epoch_loop
    assert "self._broadcast_sigterm_tensor()" in inspect.getsource(type(loop).advance), INSTALLED
    before = signal.getsignal(signal.SIGTERM)
    internals.disable_signal_handlers(run)
    run._signal_connector.register_signal_handlers()
    assert signal.getsignal(signal.SIGTERM) is before, INSTALLED
    assert not run.received_sigterm, INSTALLED
    assert loop._broadcast_sigterm_tensor() is None, INSTALLED


def test_a_renamed_signal_handler_is_an_error():
    run = SimpleNamespace(
        _signal_connector=SimpleNamespace(register_signal_handlers=print),
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace()),
    )
    with pytest.raises(AttributeError, match=f"Lightning {version('lightning')} has no .*_broadcast_sigterm_tensor"):
        internals.disable_signal_handlers(run)


def test_the_observer_of_children_does_not_kill():
    failed = SimpleNamespace(poll=lambda: 1, returncode=1, pid=0, send_signal=None)
    observer = _ChildProcessObserver(main_pid=0, child_processes=[failed], sleep_period=0)
    gate = threading.Event()
    observer.run = lambda: gate.wait(20)
    observer.start()
    try:
        internals.disable_child_observer()
        assert observer._child_processes == [], INSTALLED
        assert _ChildProcessObserver._run(observer) is True, INSTALLED
    finally:
        gate.set()
        observer.join(20)


@pytest.mark.parametrize("kind", [DDPStrategy, ModelParallelStrategy])
def test_a_strategys_time_limit_is_set_unless_the_user_gave_one(kind):
    limit, timeout = timedelta(minutes=10), timedelta(minutes=7)
    strategy = kind()
    assert internals.set_strategy_timeout(strategy, limit), INSTALLED
    assert internals.strategy_timeout(strategy) == limit, INSTALLED
    strategy = kind(timeout=timeout)
    assert not internals.set_strategy_timeout(strategy, limit), INSTALLED
    assert internals.strategy_timeout(strategy) == timeout, INSTALLED
    assert not internals.set_strategy_timeout(SingleDeviceStrategy("cpu"), limit), INSTALLED


def test_the_backend_of_the_process_group_is_set():
    strategy = ModelParallelStrategy()
    internals.set_process_group_backend(strategy, "cpu:gloo,cuda:nccl")
    assert strategy.process_group_backend == "cpu:gloo,cuda:nccl", INSTALLED


def test_the_time_limit_of_the_process_group_is_set_and_its_store_found():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        internals.set_group_timeout(timedelta(seconds=77))
        group = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
        assert group.options._timeout == timedelta(seconds=77), INSTALLED
        internals.default_store().set("key", "value")
        assert internals.default_store().get("key") == b"value", INSTALLED
    finally:
        torch.distributed.destroy_process_group()


def test_ddp_broadcasts_no_ignored_buffers():
    module = torch.nn.BatchNorm1d(2)
    internals.ignore_in_ddp(module, ["running_mean"])
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        ddp = torch.nn.parallel.DistributedDataParallel(module)
        assert "running_mean" in ddp.parameters_to_ignore, INSTALLED
        broadcast = {id(buffer) for buffer in ddp.modules_buffers}
        assert id(module.running_mean) not in broadcast, INSTALLED
        assert id(module.running_var) in broadcast, INSTALLED
        del ddp  # before the group, see tests/engine/distributed/test_ddp_reducer.py
    finally:
        torch.distributed.destroy_process_group()


def test_the_worker_processes_of_a_loader_are_found():
    iterator = iter(DataLoader(TensorDataset(torch.ones(2, 1)), num_workers=1))
    (worker,) = internals.worker_processes(iterator)
    assert worker.is_alive(), INSTALLED
    assert internals.worker_processes(iter(loader(1))) == [], INSTALLED
