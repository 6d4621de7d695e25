"""Keeps the best checkpoint by a validation metric."""

import logging
import math
from pathlib import Path
from typing import Any, Literal

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer
from typing_extensions import override

from callbacks.checkpointing.rotating_checkpoint import RotatingCheckpoint
from engine.checkpointing.checkpoint_schema import declare_callback, require_checkpoint
from engine.checkpointing.rotation import reorder
from engine.checkpointing.schema import METRIC, TEXT, fields, optional
from engine.checkpointing.verification import load_lazily, verify
from engine.distributed.errors import CollectiveInputError
from engine.io.atomic_file import remove
from engine.run_trainer import as_run_trainer
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

declare_callback("BestCheckpoint", fields({"monitor": TEXT, "mode": TEXT, "score": optional(METRIC)}))


class BestCheckpoint(RotatingCheckpoint):
    """Keeps `checkpoints/best.ckpt`: the weights with the best value of a validation metric.

    Of equal values the last is the best. A metric that counts few samples reaches its maximum long before the end of
    training, and the weights still improve after it.

    Args:
        monitor: name of the validation metric, such as `val/ndcg@10`.
        mode: whether larger (`max`) or smaller (`min`) values of the metric are better.
        keep: how many to keep: the best is best.ckpt, the others are best-2.ckpt, best-3.ckpt, ...
    """

    def __init__(self, monitor: str, mode: Literal["min", "max"] = "max", keep: int = 1) -> None:
        super().__init__("best_checkpoint", "best", keep)
        self.monitor, self.mode = monitor, mode
        self._score: float | None = None  # of the checkpoint that is being saved

    def _file_name(self, index: int) -> str:
        return f"best-{index + 1}.ckpt" if index else "best.ckpt"

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._scores: list[float | None] = []  # of self.files; None: there is no file, or it may be replaced
        self._pending: tuple[Path, list[float | None]] | None = None  # last save, and the scores before it

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read the scores from the files, since the resumed checkpoint may know of files that have changed since.

        The resumed checkpoint is loaded before this hook, so its file may be moved.
        """
        if not self.is_disabled(trainer):
            self._scores = trainer.strategy.broadcast(self._sort_files() if trainer.is_global_zero else [])

    def _sort_files(self) -> list[float | None]:
        """Move the intact files to the front, best first, and return the score of each file."""
        # A file without a score may be corrupt or of another metric; a later save may replace it.
        scores = {i: score for i, path in enumerate(self.files) if (score := self._read_score(path)) is not None}
        order = sorted(scores, key=scores.__getitem__, reverse=self.mode == "max")
        try:
            reorder(self.files, order)
        except OSError as error:
            log.warning("the checkpoints in %s could not be reordered: %s", self.files[0].parent, error)
            return [self._read_score(path) for path in self.files]
        return [scores[index] for index in order] + [None] * (self.keep - len(order))

    def _read_score(self, path: Path) -> float | None:
        if not path.exists():
            return None
        try:
            # Reads the whole file: a corrupt best.ckpt must not keep its place.
            verify(path)
            content = load_lazily(path)
            require_checkpoint(content, path)
            saved = content["callbacks"][self.state_key]
        except (ValueError, OSError) as error:  # a corrupt checkpoint is a ValueError, too
            skipped = event("checkpoint_skipped", path=str(path), reason=str(error))
            log.warning("%s; the next evaluation replaces it", error, extra=skipped)
            return None
        # Lightning's own callbacks save checkpoints without this state.
        except KeyError:
            return None
        return saved["score"] if (saved["monitor"], saved["mode"]) == (self.monitor, self.mode) else None

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.is_disabled(trainer):
            return
        self._require_monitor(trainer, CollectiveInputError)
        # The last save has failed meanwhile, so the files are as they were before it.
        if self._pending is not None and self.io.has_failed(self._pending[0]):
            self._scores = self._pending[1]
        score = float(trainer.callback_metrics[self.monitor])
        # NaN compares false with everything, so it would never be replaced.
        score = (-math.inf if self.mode == "max" else math.inf) if math.isnan(score) else score
        # Rank 0 decides: saving is a collective of all ranks, and a metric may differ in its last bits between ranks.
        index = trainer.strategy.broadcast(self._insert_position(score))
        if index is not None:
            self._pending = self.files[index], list(self._scores)
            # Rotation moves each file from `index` on to the next name. The last file, or the first free name, ends it.
            free = self._scores.index(None, index) if None in self._scores[index:] else -1
            if free >= 0 and trainer.is_global_zero:
                self._discard(free, index)
            self._scores.pop(free)
            self._scores.insert(index, score)
            # `state_dict` puts the score into this checkpoint alone. Another checkpoint, such as last.ckpt, has None.
            self._score = score
            self._save(trainer, index)
            self._score = None

    @override
    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Refuse a wrong name now, hours before the first evaluation. A model may log nothing in the sanity check.
        if not as_run_trainer(trainer).fast_dev_run and _validation_metrics(trainer):
            self._require_monitor(trainer, MisconfigurationException)

    def _require_monitor(self, trainer: Trainer, error_type: type[Exception]) -> None:
        """Check that the metric is logged. All ranks log the same metrics, so all of them raise."""
        if self.monitor not in trainer.callback_metrics:
            raise error_type(
                f"best_checkpoint.monitor is {self.monitor!r}, which is not logged. Use one of the validation metrics: "
                f"{_validation_metrics(trainer)}"
            )

    def _discard(self, free: int, index: int) -> None:
        """Discard a file that is corrupt or of another metric: rotation must not move it over a good checkpoint."""
        if free == index:
            self.io.replace_next(self.files[index])
        else:
            self.io.finish_writing()
            remove(self.files[free])

    def _insert_position(self, score: float) -> int | None:
        for index, other_score in enumerate(self._scores):
            # `>=`: of equal values the last is the best.
            if other_score is None or (score >= other_score if self.mode == "max" else score <= other_score):
                return index
        return None

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"monitor": self.monitor, "mode": self.mode, "score": self._score}


def _validation_metrics(trainer: Trainer) -> list[str]:
    return sorted(name for name in trainer.callback_metrics if name.startswith("val/"))
