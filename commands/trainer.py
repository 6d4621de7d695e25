"""The Trainer of a run: Lightning's, with the callbacks that are always there, in the order that they need."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import Trainer

from callbacks.auto_micro_batch import AutoMicroBatch
from callbacks.bad_samples import BadSamples
from callbacks.config_over_checkpoint import ConfigOverCheckpoint
from callbacks.due_validation import DueValidation
from callbacks.memory import Memory
from callbacks.metrics_endpoint import MetricsEndpoint
from callbacks.prediction_file import PredictionFile
from callbacks.results_table import ResultsTable, ShownLast
from callbacks.run_log import RunLog
from callbacks.watchdog import Watchdog
from commands.console import LogSettings
from commands.model_card import write_card
from commands.trained_run import training_of
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule
from engine.new_directory import new_directory


class LockstepTrainer(Trainer):
    """Lightning's Trainer, `prepare` and `export`.

    Args:
        auto_micro_batch: before training, find the largest micro-batch that fits: half of a process's share of the global batch, half of that, and so on. `data.micro_batch_size` is then the most to try. Refused where there is nothing to find (FSDP, losses of the whole batch); with `if_possible` a warning instead.
        limit_train_batches: global batches (optimizer steps) of an epoch that are trained, or their share; 1 is one, 1.0 is all.
        limit_val_batches: evaluation batches of all processes together that validate, or their share.
        limit_test_batches: as `limit_val_batches`, of a test.
        limit_predict_batches: as `limit_val_batches`, of a prediction.
        overfit_batches: train and validate on so many global batches, or their share, the same in every epoch; 0.0 for no such thing.
        val_check_interval: validate every so many optimizer steps, after a share of an epoch, or after a time (DD:HH:MM:SS).
        lightning: see Lightning's Trainer.
    """  # noqa: E501

    checkpoint_to_load: str | None = None
    """The file that the command begins with, for modules that ask before Lightning loads it."""

    # What is a number or a share stands here again, as `int | float`. Lightning's Union[int, float] is for typing the
    # same as Union[float, int]; where a library has asked for that one first, it is what one gets: 1 becomes 1.0, all.
    def __init__(
        self,
        *,
        auto_micro_batch: bool | Literal["if_possible"] = False,
        limit_train_batches: int | float | None = None,
        limit_val_batches: int | float | None = None,
        limit_test_batches: int | float | None = None,
        limit_predict_batches: int | float | None = None,
        overfit_batches: int | float = 0.0,
        val_check_interval: int | float | str | timedelta | dict[str, int] | None = None,
        **lightning: Any,
    ) -> None:
        super().__init__(
            limit_train_batches=limit_train_batches,
            limit_val_batches=limit_val_batches,
            limit_test_batches=limit_test_batches,
            limit_predict_batches=limit_predict_batches,
            overfit_batches=overfit_batches,
            val_check_interval=val_check_interval,
            **lightning,
        )
        self.auto_micro_batch = auto_micro_batch

    def prepare(self) -> None:
        """Download and convert the data of a config, once; safe to repeat and to interrupt."""

    def export(
        self,
        model: LockstepModule,
        datamodule: LockstepDataModule,
        output: str,
        ckpt_path: str | None = None,
        merge: bool = False,
    ) -> None:
        """Write what a run has trained as a directory that needs nothing of this project.

        Args:
            output: the directory; it must not be there yet. A model card, README.md, is in it.
            ckpt_path: `best`, `last` or a checkpoint's file.
            merge: write a language model whole, its adapters merged into its weights.
        """
        if type(model).export is LockstepModule.export:
            raise ValueError(f"export: {type(model).__name__} has no other form than its checkpoints")
        if ckpt_path is None:
            raise ValueError("export: of which checkpoint? --ckpt_path best, last or FILE")
        folder = Path(output)
        if folder.exists():  # before minutes of loading
            raise FileExistsError(f"{output} is there already; export writes a new directory")
        model.trainer, datamodule.trainer, self.datamodule = self, self, datamodule
        model.configure_model()
        checkpoint = self.strategy.checkpoint_io.load_checkpoint(ckpt_path)
        model.on_load_checkpoint(checkpoint)
        model.load_state_dict(checkpoint["state_dict"])
        with new_directory(folder) as new:
            exported = model.export(new, merge)
            write_card(new, folder.name, exported, datamodule.description(), training_of(Path(ckpt_path), checkpoint))


def refuse_no_batches(trainer: Trainer, command: str) -> None:
    """Raises ValueError when the command is to use no batch at all."""
    limit = {"fit": "train", "validate": "val"}.get(command, command)
    if command != "export" and getattr(trainer, f"limit_{limit}_batches") == 0:
        raise ValueError(f"trainer.limit_{limit}_batches is 0, so {command} would do nothing")


def add_own_callbacks(trainer: Trainer, keep_config: Callable[[], object], log: LogSettings, altered: str) -> None:
    """Around those of the command line.

    Args:
        trainer: has the callbacks of the command line, a Watchdog among them.
        keep_config: called when training begins.
        log: what the run says, and in which form.
        altered: settings of an evaluation that are not its run's.
    """
    run_log, table = RunLog(keep_config, log.level == "debug", altered), ResultsTable()
    if auto := getattr(trainer, "auto_micro_batch", False):
        trainer.callbacks.append(AutoMicroBatch(if_possible=auto == "if_possible"))
    trainer.callbacks[:0] = [
        run_log, Memory(), BadSamples(), PredictionFile(), ConfigOverCheckpoint(), DueValidation(), table
    ]  # fmt: skip
    watchdog = next(callback for callback in trainer.callbacks if isinstance(callback, Watchdog))
    watchdog.attach(trainer)
    trainer.callbacks.remove(watchdog)
    trainer.callbacks.insert(0, watchdog)  # hears of an error before callbacks that wait for other processes
    for endpoint in [callback for callback in trainer.callbacks if isinstance(callback, MetricsEndpoint)]:
        endpoint.attach(trainer, watchdog)
    if log.console == "text":
        trainer.callbacks.append(ShownLast(table))  # torn down last
