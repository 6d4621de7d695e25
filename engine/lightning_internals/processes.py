"""Reads and sets what Lightning and torch keep about processes: ranks, process groups, signals, loader workers."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.metadata import version
from multiprocessing.process import BaseProcess

import torch
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy, Strategy
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import nn
from torch.distributed import Store
from torch.distributed.distributed_c10d import _get_default_store, default_pg_timeout
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

_CONNECTING = (DDPStrategy, FSDPStrategy, ModelParallelStrategy)
"""Strategies that connect ranks, with a time limit for collectives. Those of a single process have none."""


def process_rank() -> int:
    """Return the rank of this process, also before there is a trainer; Lightning keeps it on a function."""
    rank: int = vars(rank_zero_only)["rank"]
    return rank


def copies_this_process(strategy: Strategy) -> bool:
    """Return whether ranks are forked or spawned from this process; the launcher's class is private."""
    return isinstance(strategy.launcher, _MultiProcessingLauncher)


def after_setup_environment(strategy: Strategy, function: Callable[[], None]) -> None:
    """Call `function` when the strategy has connected the ranks; Lightning has no hook before data are prepared."""
    # The bound method of this object, which the attribute below hides.
    setup_environment = strategy.setup_environment

    def setup_and_call() -> None:
        setup_environment()
        function()

    strategy.setup_environment = setup_and_call  # type: ignore[method-assign]  # of this object alone


def disable_signal_handlers(trainer: Trainer) -> None:
    """Stop Lightning from handling signals; no setting does it.

    Its handlers save and enter collectives at whatever step a rank has reached, and every step broadcasts SIGTERM.

    Raises:
        AttributeError: the installed Lightning has other names for them.
    """
    connector, loop = trainer._signal_connector, trainer.fit_loop.epoch_loop
    for owner, name in ((connector, "register_signal_handlers"), (loop, "_broadcast_sigterm_tensor")):
        if not callable(getattr(owner, name, None)):
            raise AttributeError(f"Lightning {version('lightning')} has no {type(owner).__name__}.{name}")
        # Replaced on this object alone, not on its class.
        setattr(owner, name, lambda: None)


def disable_child_observer() -> None:
    """Make the thread idle that kills this process with SIGKILL when a child ends; Lightning has no setting for it.

    The watchdog ends all ranks instead, with a message and an exit code.
    """
    for thread in threading.enumerate():
        if isinstance(thread, _ChildProcessObserver):
            # Without children it finds that all have ended, and its thread ends.
            thread._child_processes = []


def strategy_timeout(strategy: Strategy) -> timedelta:
    """Return the time limit for collectives that the strategy was built with; it has no public attribute."""
    # torch's default replaces a limit of None.
    return (strategy._timeout if isinstance(strategy, _CONNECTING) else None) or default_pg_timeout


def set_strategy_timeout(strategy: Strategy, timeout: timedelta) -> bool:
    """Set the time limit for collectives before the ranks connect, unless the user gave one; return whether it is set.

    The limit is an argument of the constructor, and Lightning builds the strategy.
    """
    # The default means that the user gave no limit.
    if not isinstance(strategy, _CONNECTING) or strategy._timeout != default_pg_timeout:
        return False
    strategy._timeout = timeout
    return True


def set_process_group_backend(strategy: ModelParallelStrategy, backend: str) -> None:
    """Set the backend of the process group before the ranks connect.

    It is an argument of the constructor, which does not know the device yet.
    """
    strategy._process_group_backend = backend


def set_group_timeout(timeout: timedelta) -> None:
    """Set the time limit for collectives of a process group; torch before 2.15 has no public function for it."""
    public = getattr(torch.distributed, "set_timeout", None)
    (public or torch.distributed.distributed_c10d._set_pg_timeout)(timeout)


def default_store() -> Store:
    """Return the store of the default process group; torch has no public function for it."""
    return _get_default_store()


def worker_processes(iterator: object) -> list[BaseProcess]:
    """Return the worker processes of a DataLoader's iterator; empty without workers. It has no public attribute."""
    return list(iterator._workers) if isinstance(iterator, _MultiProcessingDataLoaderIter) else []


def ignore_in_ddp(module: nn.Module, names: Sequence[str]) -> None:
    """Make DDP neither broadcast these parameters and buffers of a module nor reduce their gradients.

    DDP reads the names from a private attribute of the module. The static method that sets it also marks the tensors,
    which torch.save would then write with their attributes.
    """
    module._ddp_params_and_buffers_to_ignore = [*names]  # type: ignore[assignment]  # Modules declare no such member.
