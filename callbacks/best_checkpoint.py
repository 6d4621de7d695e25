"""The best checkpoint by a validation metric."""

import logging
import math
from pathlib import Path
from typing import Any, Literal

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningModule, Trainer

from callbacks.checkpoint_row import CheckpointRow
from engine.checkpoint_file import DamagedCheckpoint, head, verify
from engine.durable_file import remove
from engine.events import event
from engine.faults import AgreedFailure
from engine.retention import to_front

log = logging.getLogger("lockstep")


class BestCheckpoint(CheckpointRow):
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
        if not self.off(trainer):
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
            passed_over = event("checkpoint_passed_over", path=str(path), reason=str(error))
            log.warning("WARNING: %s; the next evaluation takes its place", error, extra=passed_over)
            return None
        except KeyError:
            return None
        return saved["score"] if (saved["monitor"], saved["mode"]) == (self.monitor, self.mode) else None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.off(trainer):
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


def _of_validation(trainer: Trainer) -> list[str]:
    return sorted(name for name in trainer.callback_metrics if name.startswith("val/"))
