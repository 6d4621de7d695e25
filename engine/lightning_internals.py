"""Wraps the private names of Lightning, torch and jsonargparse that the project uses; no other file uses them.

Each function states why no public name suffices. `tests/engine/test_lightning_internals.py` tests what each name does,
and reports the installed version when an update changes it. This file imports nothing of the project.
"""

import argparse
import threading
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from importlib.metadata import version
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar

import torch
from lightning.fabric.loggers.logger import _DummyExperiment
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver
from lightning.fabric.utilities.logger import _flatten_dict
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loops.progress import _ProcessedTracker
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher
from lightning.pytorch.trainer.call import _call_configure_model
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch import Tensor, nn
from torch.distributed import Store
from torch.distributed.distributed_c10d import _get_default_store, default_pg_timeout
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

NullExperiment = _DummyExperiment
"""Experiment that ignores every call, which loggers return on ranks that write nothing. Lightning gives it no public
name."""

flatten_config = _flatten_dict
"""Flattens nested hyper-parameters as Lightning's own loggers do, so that names agree. It has no public name."""


# -- training loop -----------------------------------------------------------------------------------------------------


def is_last_micro_batch(trainer: Trainer) -> bool:
    """Return whether an optimizer step follows the micro-batch that is being trained.

    Lightning also steps at the end of an epoch, so the batch index alone does not determine it.
    """
    return trainer.accumulate_grad_batches == 1 or not trainer.fit_loop.epoch_loop._should_accumulate()


def is_log_step(trainer: Trainer) -> bool:
    """Return whether Lightning writes what is logged in this step of a training; it counts the steps privately.

    The connector's `should_update_logs` is true for the same steps. It compares the trainer's state with the name of
    each loop first, and callbacks ask six times a step.
    """
    interval: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # A connector sets it.
    step = trainer.fit_loop.epoch_loop._batches_that_stepped + 1
    return interval > 0 and (step % interval == 0 or trainer.should_stop)


def set_log_step(trainer: Trainer, steps: int) -> None:
    """Set Lightning's count of finished optimizer steps, which intervals of logging refer to; no setting has it."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = steps


def unlogged_metrics(trainer: Trainer) -> dict[str, float]:
    """Return the metrics of this step if Lightning has not passed them to the loggers yet; empty if it has.

    Lightning passes them after the `on_train_batch_end` hooks, in which a checkpoint may be saved. The public
    `logged_metrics` also holds those of earlier steps and evaluations.
    """
    progress = trainer.fit_loop.epoch_loop.batch_progress.current
    assert isinstance(progress, _ProcessedTracker), "training counts what it has processed"
    if progress.processed == progress.completed or not is_log_step(trainer) or not is_last_micro_batch(trainer):
        return {}
    return {name: float(value) for name, value in trainer._logger_connector.metrics["log"].items()}


_STEP_HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip


def skip_empty_hooks(callbacks: Iterable[Callback]) -> None:
    """Make Lightning skip the hooks of a training step that a callback inherits from Callback, where they are empty.

    Lightning calls them in every step, each with the callback's name for the profiler. It skips a hook that cannot be
    called, which no setting does. Pass Lockstep's own callbacks only: a user's may call its own empty hooks.
    """
    for callback in callbacks:
        for hook in _STEP_HOOKS:
            if hook not in vars(callback) and getattr(type(callback), hook) is getattr(Callback, hook):
                setattr(callback, hook, None)


class FastAttributes(nn.Module):
    """Module of which some attributes are set at little cost: those that change in every step.

    Lightning sets the name of the current hook before and after every hook, about 50 times a step, and a Module's
    `__setattr__` first checks whether a value is a parameter, a buffer or a module.
    """

    fast_attributes: ClassVar[Set[str]] = {"_current_fx_name"}

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.fast_attributes:
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)


def start_next_epoch(trainer: Trainer) -> None:
    """Make a resumed run train the batches of the next epoch from the first on. Call it in `on_train_start`."""
    trainer.fit_loop.epoch_loop.restarting = False


def validation_follows(trainer: Trainer) -> bool:
    """Return whether a validation starts after this micro-batch; the public settings alone do not determine it."""
    loop = trainer.fit_loop
    fetcher = loop._data_fetcher
    assert fetcher is not None, "the loop has one from its setup to its teardown"
    return loop.epoch_loop._should_check_val_fx(fetcher)


def request_validation(trainer: Trainer) -> None:
    """Make a validation follow the micro-batch that is being trained, and each later one.

    Nothing restores the intervals, so call it at the last step of a training. The names are public, but what the loop
    reads at which moment is not documented.
    """
    trainer.check_val_every_n_epoch, trainer.val_check_batch = 1, 1


def stops_early(trainer: Trainer) -> bool:
    """Return whether a requested stop takes effect; `min_epochs` and `min_steps` may delay it."""
    return bool(trainer.should_stop and trainer.fit_loop._can_stop_early)


def configure_model(trainer: Trainer) -> None:
    """Run the `configure_model` hooks now; Lightning itself runs them after the callbacks' `setup`."""
    _call_configure_model(trainer)


def is_attached(module: LightningModule) -> bool:
    """Return whether the module has a trainer; the public property raises if it has none."""
    return module._trainer is not None


def unscales_gradients(optimizer: object) -> bool:
    """Return whether a (fused) optimizer unscales fp16 gradients itself, which torch states in a private attribute."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


# -- processes ---------------------------------------------------------------------------------------------------------


def process_rank() -> int:
    """Return the rank of this process, also before there is a trainer; Lightning keeps it on a function."""
    rank: int = vars(rank_zero_only)["rank"]
    return rank


def copies_this_process(strategy: Strategy) -> bool:
    """Return whether ranks are forked or spawned from this process; the launcher's class is private."""
    return isinstance(strategy.launcher, _MultiProcessingLauncher)


def after_setup_environment(strategy: Strategy, function: Callable[[], None]) -> None:
    """Call `function` when the strategy has connected the ranks; Lightning has no hook before data are prepared."""
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
        setattr(owner, name, lambda: None)


def disable_child_observer() -> None:
    """Make the thread idle that kills this process with SIGKILL when a child ends; Lightning has no setting for it.

    The watchdog ends all ranks instead, with a message and an exit code.
    """
    for thread in threading.enumerate():
        if isinstance(thread, _ChildProcessObserver):
            thread._child_processes = []


def strategy_timeout(strategy: Strategy) -> timedelta:
    """Return the time limit for collectives that the strategy was built with; it has no public attribute."""
    return getattr(strategy, "_timeout", None) or default_pg_timeout


def set_strategy_timeout(strategy: Strategy, timeout: timedelta) -> bool:
    """Set the time limit for collectives before the ranks connect, unless the user gave one; return whether it is set.

    The limit is an argument of the constructor, and Lightning builds the strategy.
    """
    if getattr(strategy, "_timeout", None) != default_pg_timeout:
        return False
    strategy._timeout = timeout  # type: ignore[attr-defined]  # Strategies that connect ranks have it.
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


# -- tensors and data --------------------------------------------------------------------------------------------------


def copy_module_versions(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    """Copy the versions of the modules in a state dict, which torch keeps in a private attribute of it."""
    if hasattr(source, "_metadata"):
        target._metadata = source._metadata  # type: ignore[attr-defined]  # torch adds it.


def multiply_all(tensors: list[Tensor], factor: Tensor) -> None:
    """Multiply tensors in place by a scalar in one kernel; torch's multi-tensor functions have no public names."""
    torch._foreach_mul_(tensors, factor)


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy tensors in place in one kernel; see `multiply_all`."""
    torch._foreach_copy_(targets, sources)


def worker_processes(iterator: object) -> list[BaseProcess]:
    """Return the worker processes of a DataLoader's iterator; empty without workers. It has no public attribute."""
    return list(getattr(iterator, "_workers", []))


# -- tensors without values --------------------------------------------------------------------------------------------

DispatchMode = TorchDispatchMode
"""Base class of a context that sees each operation on tensors; torch documents it and has it in a private module."""


def without_values() -> AbstractContextManager[Any]:
    """Return a context in which tensors have shapes, formats and storages, and take no memory.

    Tensors on the device `meta` have these as well, but attention has no fused kernel there. `FakeTensorMode` has no
    public name.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def simulated_ranks(number: int) -> Iterator[None]:
    """Make this process rank 0 of a process group whose other ranks do not exist, and which transfers nothing.

    torch has the backend in its package, without a public name for its store.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=number)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


# -- parsers and writers -----------------------------------------------------------------------------------------------


def option_names(parser: argparse.ArgumentParser) -> list[str]:
    """Return all options of a parser, for spelling suggestions; argparse only prints them."""
    return list(parser._option_string_actions)


def replace_event_file(summary_writer: Any, open_file: Callable[[str], Any]) -> None:
    """Replace the file that a SummaryWriter appends to; torch and tensorboard open it without a hook.

    Args:
        summary_writer: torch's; its first event is on the disk.
        open_file: opens a path for appending.
    """
    events = summary_writer.file_writer.event_writer
    events._async_writer._writer._writer = open_file(events._file_name)
