"""Reads and sets the state of Lightning's training loop, which is private."""

from collections.abc import Iterable, Set
from typing import Any, ClassVar

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loops.progress import _ProcessedTracker
from lightning.pytorch.trainer.call import _call_configure_model
from torch import nn
from typing_extensions import override


def is_last_micro_batch(trainer: Trainer) -> bool:
    """Return whether an optimizer step follows the micro-batch that is being trained.

    Lightning also steps at the end of an epoch, so the batch index alone does not determine it.
    """
    # The public attribute first: this runs several times a micro-batch, and most runs do not accumulate.
    return trainer.accumulate_grad_batches == 1 or not trainer.fit_loop.epoch_loop._should_accumulate()


def is_log_step(trainer: Trainer) -> bool:
    """Return whether Lightning writes what is logged in this step of a training; it counts the steps privately.

    The connector's `should_update_logs` is true for the same steps. It compares the trainer's state with the name of
    each loop first, and callbacks ask six times a step.
    """
    interval: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # A connector sets it.
    # + 1: Lightning 2.6 counts a step after `on_train_batch_end`, and hooks ask before.
    step = trainer.fit_loop.epoch_loop._batches_that_stepped + 1
    return interval > 0 and (step % interval == 0 or trainer.should_stop)


def set_log_step(trainer: Trainer, steps: int) -> None:
    """Set Lightning's count of finished optimizer steps, which intervals of logging refer to; no setting has it."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = steps


def unlogged_metrics(trainer: Trainer) -> dict[str, float]:
    """Return the metrics of this step if Lightning has not passed them to the loggers yet; empty if it has.

    Lightning passes them after the `on_train_batch_end` hooks, in which a checkpoint may be saved. The public
    `logged_metrics` also holds metrics of earlier steps and evaluations.
    """
    progress = trainer.fit_loop.epoch_loop.batch_progress.current
    assert isinstance(progress, _ProcessedTracker), "training counts what it has processed"
    # A batch counts as processed before the `on_train_batch_end` hooks and as completed after them.
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
                # An attribute of the object, not of its class. A hook that the class overrides is kept.
                setattr(callback, hook, None)


class FastAttributes(nn.Module):
    """Module whose attributes that change in every step are set at little cost.

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
    """Make a validation follow the micro-batch that is being trained, and each later micro-batch.

    Nothing restores the intervals, so call it at the last step of a training. The names are public, but what the loop
    reads at which moment is not documented.
    """
    trainer.check_val_every_n_epoch, trainer.val_check_batch = 1, 1


def mark_validation_pending(trainer: Trainer) -> None:
    """Make a checkpoint saved now contain a validation of which no batch is done, so that a resumed run repeats it.

    Lightning resumes a validation in which a batch is started and not processed, which only its private counters show.
    The finished batches must not count, because a checkpoint does not have the metrics over them.
    """
    progress = trainer.fit_loop.epoch_loop.val_loop.batch_progress
    progress.reset()
    progress.increment_ready()
    progress.increment_started()


def clear_pending_validation(trainer: Trainer) -> None:
    """Forget the mark of a pending validation, which is running now. Call it in `on_validation_start`."""
    # Lightning resets the counters of this validation, but not the total over all validations, which has the mark too.
    trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.reset()


def micro_batch_index(trainer: Trainer) -> int:
    """Return the index, within the epoch, of the current micro-batch. Hooks receive it as `batch_idx`."""
    return trainer.fit_loop.epoch_loop.batch_progress.current.ready - 1  # `ready` counts it already


def micro_batches_started(trainer: Trainer) -> int:
    """Return the number of micro-batches that the run has started since its first step, resumed parts included."""
    return trainer.fit_loop.epoch_loop.batch_progress.total.ready


def micro_batches_processed(trainer: Trainer) -> int:
    """Return the number of micro-batches of this epoch that are processed, with the optimizer step if one followed."""
    current = trainer.fit_loop.epoch_loop.batch_progress.current
    return current.processed  # type: ignore[attr-defined]  # It is a _ProcessedTracker, annotated as its base.


def set_max_steps(trainer: Trainer, steps: int) -> None:
    """Change the limit of optimizer steps of a running training; the trainer's own property cannot be set."""
    trainer.fit_loop.epoch_loop.max_steps = steps


def stops_early(trainer: Trainer) -> bool:
    """Return whether a requested stop takes effect; `min_epochs` and `min_steps` may delay it."""
    # `should_stop` alone is only a request.
    return bool(trainer.should_stop and trainer.fit_loop._can_stop_early)


def configure_model(trainer: Trainer) -> None:
    """Run the `configure_model` hooks now; Lightning itself runs them after the callbacks' `setup`."""
    _call_configure_model(trainer)


def is_attached(module: LightningModule) -> bool:
    """Return whether the module has a trainer; the public property raises if it has none."""
    return module._trainer is not None
