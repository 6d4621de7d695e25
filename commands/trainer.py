"""The Trainer of a run: Lightning's, with the callbacks that are always there, in the order that they need."""

from collections.abc import Callable

from lightning.pytorch import Trainer

from callbacks.config_over_checkpoint import ConfigOverCheckpoint
from callbacks.due_validation import DueValidation
from callbacks.prediction_file import PredictionFile
from callbacks.results_table import ResultsTable, ShownLast
from callbacks.run_log import RunLog
from callbacks.throughput import Throughput
from callbacks.watchdog import Watchdog


class LockstepTrainer(Trainer):
    """Lightning's Trainer, and `prepare`."""

    def prepare(self) -> None:
        """Download and convert the data of a config, once; safe to repeat and to interrupt."""


def refuse_no_batches(trainer: Trainer, command: str) -> None:
    """Raises ValueError when the command is to use no batch at all."""
    limit = {"fit": "train", "validate": "val"}.get(command, command)
    if getattr(trainer, f"limit_{limit}_batches") == 0:
        raise ValueError(f"trainer.limit_{limit}_batches is 0, so {command} would do nothing")


def add_own_callbacks(trainer: Trainer, keep_config: Callable[[], object]) -> None:
    """Around those of the command line.

    Args:
        trainer: has the callbacks of the command line, a Watchdog among them.
        keep_config: called when training begins.
    """
    run_log, table = RunLog(keep_config), ResultsTable()
    trainer.callbacks[:0] = [run_log, Throughput(), PredictionFile(), ConfigOverCheckpoint(), DueValidation(), table]
    watchdog = next(callback for callback in trainer.callbacks if isinstance(callback, Watchdog))
    watchdog.attach(trainer)
    trainer.callbacks.remove(watchdog)
    trainer.callbacks.insert(0, watchdog)  # hears of an error before callbacks that wait for other processes
    trainer.callbacks.append(ShownLast(table))  # torn down last
