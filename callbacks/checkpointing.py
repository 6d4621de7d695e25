"""Two independent checkpoints of a run: the best by a validation metric, and the last.

Lightning ties `save_last` to the best: when the metric stops improving, the last checkpoint gets old as well. Here
each is a callback of its own, so a run that is killed goes on from where it was. Both keep a row of files
(`engine.retention`), and what happens when a file cannot be written is agreed by all processes (`engine.checkpoints`).
"""

import logging
import math
from pathlib import Path
from typing import Any, Literal

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from engine.checkpoint_file import CHECKPOINTS, DamagedCheckpoint, candidates, head, saved_at, verify
from engine.checkpoints import DurableCheckpointIO
from engine.durable_file import remove, remove_leftovers
from engine.faults import AgreedFailure
from engine.retention import to_front

__all__ = ["CHECKPOINTS", "BestCheckpoint", "LastCheckpoint"]

log = logging.getLogger("lockstep")


class _Row(Checkpoint):
    """Saves into a row of files, of which the first is the one that counts."""

    def __init__(self, option: str, stem: str, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"{option}.keep must be at least 1, got {keep}")
        self.stem, self.keep = stem, keep

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if not isinstance(trainer.strategy.checkpoint_io, DurableCheckpointIO):
            trainer.strategy.checkpoint_io = DurableCheckpointIO()
        self.io = trainer.strategy.checkpoint_io
        folder = Path(trainer.default_root_dir) / CHECKPOINTS
        self.row = [folder / self._name(place) for place in range(self.keep)]
        self.io.keep(self.row)
        if trainer.is_global_zero:
            for name in remove_leftovers(folder):
                log.info("removed %s, which a process that was killed has left", name)

    def _name(self, place: int) -> str:
        raise NotImplementedError

    def _off(self, trainer: Trainer) -> bool:
        return bool(trainer.fast_dev_run) or trainer.state.fn != "fit" or trainer.sanity_checking

    def _save(self, trainer: Trainer, place: int = 0) -> None:
        trainer.save_checkpoint(self.row[place], weights_only=False)
        self.io.agree(trainer.strategy)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._off(trainer):
            return
        self.io.agree(trainer.strategy, last=True)
        if trainer.is_global_zero and self.row[0].exists():
            self._remove_surplus()

    def _remove_surplus(self) -> None:
        """What an earlier start of the run kept, when it was to keep more."""
        for path in self.row[0].parent.glob(f"{self.stem}-*.ckpt"):
            if path not in self.row and path.stem.removeprefix(f"{self.stem}-").isdigit():
                remove(path)


class BestCheckpoint(_Row):
    """Keeps `checkpoints/best.ckpt`: the weights with the best value of a validation metric.

    Args:
        monitor: name of the validation metric, such as `val/ndcg@10`.
        mode: whether the metric is to be as large (`max`) or as small (`min`) as can be.
        keep: how many to keep: the best is best.ckpt, the others are best-2.ckpt, best-3.ckpt, ...
    """

    def __init__(self, monitor: str, mode: Literal["min", "max"] = "max", keep: int = 1) -> None:
        super().__init__("best_checkpoint", "best", keep)
        self.monitor, self.mode = monitor, mode
        self._score: float | None = None  # of the checkpoint that is being saved

    def _name(self, place: int) -> str:
        return f"best-{place + 1}.ckpt" if place else "best.ckpt"

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._scores: list[float | None] = []
        self._saving: tuple[Path, list[float | None]] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """What counts is what is in the files, not what the checkpoint that the run goes on from knew of them.

        That one has been loaded by now: it may be one of those that move up.
        """
        if not self._off(trainer):
            self._scores = trainer.strategy.broadcast(self._tidy() if trainer.is_global_zero else [])

    def _tidy(self) -> list[float | None]:
        """Moves the good ones to the front, the best first; their scores."""
        scores = [self._read_score(path) for path in self.row]
        good = [place for place, score in enumerate(scores) if score is not None]
        good.sort(key=lambda place: scores[place], reverse=self.mode == "max")
        try:
            to_front(self.row, good)
        except OSError as error:
            log.warning("WARNING: the checkpoints of %s could not be put in order: %s", self.row[0].parent, error)
            return [self._read_score(path) for path in self.row]
        return [scores[place] for place in good] + [None] * (self.keep - len(good))

    def _read_score(self, path: Path) -> float | None:
        if not path.exists():
            return None
        try:
            verify(path)
            saved = head(path)["callbacks"][self.state_key]
        except (DamagedCheckpoint, OSError) as error:
            log.warning("WARNING: %s; the next evaluation takes its place", error)
            return None
        except KeyError:
            return None
        return saved["score"] if (saved["monitor"], saved["mode"]) == (self.monitor, self.mode) else None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._off(trainer):
            return
        self._require_monitor(trainer, AgreedFailure)
        if self._saving is not None and self.io.failed(self._saving[0]):
            self._scores = self._saving[1]
        score = float(trainer.callback_metrics[self.monitor])
        score = (-math.inf if self.mode == "max" else math.inf) if math.isnan(score) else score
        place = trainer.strategy.broadcast(self._place(score))
        if place is not None:
            self._saving = self.row[place], list(self._scores)
            gap = self._scores.index(None, place) if None in self._scores[place:] else -1
            if gap >= 0 and trainer.is_global_zero:
                self._make_room(place, gap)
            self._scores.pop(gap)
            self._scores.insert(place, score)
            self._score = score
            self._save(trainer, place)
            self._score = None

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Hours before the first evaluation. A model that logs nothing in the sanity check is asked after that.
        if not trainer.fast_dev_run and _of_validation(trainer):
            self._require_monitor(trainer, MisconfigurationException)

    def _require_monitor(self, trainer: Trainer, failure: type[Exception]) -> None:
        """All processes log the same metrics, and so raise alike."""
        if self.monitor not in trainer.callback_metrics:
            raise failure(
                f"best_checkpoint.monitor is {self.monitor!r}, but the evaluation gives {_of_validation(trainer)}: "
                "name one of them"
            )

    def _make_room(self, place: int, gap: int) -> None:
        """What does not count (it is damaged, or of another metric) must not move on to where a good one is."""
        if gap == place:
            self.io.replace_next(self.row[place])
        else:
            self.io.finish_writing()
            remove(self.row[gap])

    def _place(self, score: float) -> int | None:
        for place, other in enumerate(self._scores):
            if other is None or (score > other if self.mode == "max" else score < other):
                return place
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"monitor": self.monitor, "mode": self.mode, "score": self._score}


class LastCheckpoint(_Row):
    """Keeps `checkpoints/last.ckpt`: where the run goes on after a stop.

    Args:
        every_n_steps: optimizer steps between saves; it is also saved at the end of every epoch.
        keep: how many to keep: last.ckpt and, in case it gets damaged, those before it: last-1.ckpt, last-2.ckpt, ...
    """

    def __init__(self, every_n_steps: int = 500, keep: int = 2) -> None:
        super().__init__("last_checkpoint", "last", keep)
        if every_n_steps < 1:
            raise ValueError(f"last_checkpoint.every_n_steps must be at least 1, got {every_n_steps}")
        self.every_n_steps = every_n_steps
        self._saved_step = 0  # nothing is worth saving before the first step
        self._after_validation = False

    def _name(self, place: int) -> str:
        return f"last-{place}.ckpt" if place else "last.ckpt"

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit" and "saved_at" in checkpoint:
            self.io.goes_on_from(checkpoint["saved_at"])

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["saved_at"] = self.io.stamp()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._saved_step = trainer.global_step
        if trainer.is_global_zero:
            for path in candidates(Path(trainer.default_root_dir)):
                self.io.saves_after(saved_at(path))
        if trainer.ckpt_path is not None and Path(trainer.ckpt_path).absolute() != self.row[0].absolute():
            # last.ckpt was passed over, perhaps because it is damaged: it must not move on to where a good one is.
            self.io.replace_next(self.row[0])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # After an epoch's last batch the validation is still to come; a save here would make a resumed run skip it.
        if self._off(trainer) or trainer.is_last_batch or trainer.fit_loop.epoch_loop._should_accumulate():
            return
        step = trainer.global_step
        # The end of the run inside an epoch. At `on_train_epoch_end` Lightning would take the epoch for finished.
        ends = step == trainer.max_steps or _told_to_stop(trainer)
        if step != self._saved_step and (ends or step % self.every_n_steps == 0):
            self._after_validation = trainer.fit_loop.epoch_loop._should_check_val_fx(trainer.fit_loop._data_fetcher)
            if not self._after_validation:
                self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._off(trainer):
            return
        # Early stopping may have decided in this very validation that the run ends inside the epoch.
        inside = not trainer.is_last_batch and not trainer.fit_loop.epoch_loop._should_accumulate()
        ends = inside and _told_to_stop(trainer) and trainer.global_step != self._saved_step
        if self._after_validation or ends:
            self._after_validation = False
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_last_batch and not self._off(trainer) and trainer.global_step != self._saved_step:
            self._save(trainer)

    def save_now(self, trainer: Trainer) -> None:
        """Saves last.ckpt at once and returns when it is on the disk; entered by all processes at the same step.

        Raises:
            AgreedFailure: on all processes, when it could not be written.
        """
        if trainer.global_step == self._saved_step:
            self.io.replace_next(self.row[0])  # the one before it should be of another step
        self._save(trainer)
        self.io.agree(trainer.strategy, last=True)

    def _save(self, trainer: Trainer, place: int = 0) -> None:
        super()._save(trainer, place)
        self._saved_step = trainer.global_step


def _of_validation(trainer: Trainer) -> list[str]:
    return sorted(name for name in trainer.callback_metrics if name.startswith("val/"))


def _told_to_stop(trainer: Trainer) -> bool:
    return bool(trainer.should_stop and trainer.fit_loop._can_stop_early)
