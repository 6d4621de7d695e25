"""`predict` writes what it predicts: one JSON object a line, in the order of the input, whatever the processes."""

import heapq
import json
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter

log = logging.getLogger("lockstep")


class PredictionFile(BasePredictionWriter):
    """Writes runs/NAME/predictions.jsonl. A module's `predict_step` returns a list of (row, JSON-able object).

    Each process writes a part of its own as it goes, so memory does not grow; the first one merges them by row. A
    module that `predicts_at_the_end` writes a file of its own.
    """

    def __init__(self, filename: str = "predictions.jsonl") -> None:
        super().__init__(write_interval="batch")
        self.filename = filename

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._on = not getattr(pl_module, "predicts_at_the_end", False)
        if not self._on:
            return
        self._part = self._part_path(trainer, trainer.global_rank).open("w", encoding="utf-8")

    def write_on_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        prediction: list[tuple[int, dict[str, Any]]],
        batch_indices: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        for row, answer in sorted([*prediction, *_unanswered(trainer)], key=lambda line: line[0]):
            self._part.write(f"{row}\t{json.dumps(answer, ensure_ascii=False)}\n")

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._on:
            return
        self._part.close()
        trainer.strategy.barrier("predictions")
        if trainer.is_global_zero:
            self._merge(trainer)

    def _merge(self, trainer: Trainer) -> None:
        parts = [self._part_path(trainer, process) for process in range(trainer.world_size)]
        target = Path(trainer.default_root_dir) / self.filename
        beside = target.with_name(target.name + ".new")
        count = 0
        with ExitStack() as stack, beside.open("w", encoding="utf-8") as output:
            # Every part is in ascending order of rows, so the merge holds one line of each.
            streams = [stack.enter_context(part.open(encoding="utf-8")) for part in parts]
            for line in heapq.merge(*streams, key=lambda line: int(line.split("\t", 1)[0])):
                output.write(line.split("\t", 1)[1])
                count += 1
        beside.replace(target)
        for part in parts:
            part.unlink()
        log.info("%d predictions in %s", count, target)

    def _part_path(self, trainer: Trainer, process: int) -> Path:
        folder = Path(trainer.default_root_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.filename}.part{process}"


def _unanswered(trainer: Trainer) -> list[tuple[int, dict[str, Any]]]:
    """What the loader has left out of the batch: nobody must wonder which line an answer is to."""
    describe = getattr(trainer.datamodule, "describe", lambda row: {})  # type: ignore[attr-defined]
    left_out = trainer.predict_dataloaders.left_out
    return [(one.sample, {**describe(one.sample), "answer": None, "why": one.what}) for one in left_out]
