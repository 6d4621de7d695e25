"""Writes predictions as one JSON object per line, in the order of the input, on any world size."""

import heapq
import json
import logging
import os
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter
from typing_extensions import override

from engine.distributed.data_parallel_rank import data_parallel_rank
from engine.io.atomic_file import replace_file
from engine.module import as_lockstep_module
from engine.run_trainer import as_run_trainer

log = logging.getLogger("lockstep")


class PredictionWriter(BasePredictionWriter):
    """Writes runs/NAME/predictions.jsonl. A module's `predict_step` returns a list of (row, JSON-serializable object).

    Predictions for another input than the run's own data (`predict_input` of the data module) have a file of their own:
    predictions-people.jsonl for people.jsonl. A file of the same name is replaced, which is logged.

    Each rank writes its own part during prediction, so memory does not grow. Rank 0 merges the parts by row. A module
    with `predicts_at_the_end` writes its own file.
    """

    def __init__(self) -> None:
        super().__init__(write_interval="batch")

    @override
    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._enabled = not as_lockstep_module(pl_module).predicts_at_the_end
        if not self._enabled:
            return
        source = as_run_trainer(trainer).datamodule.predict_input
        self.filename = f"predictions-{Path(source).stem}.jsonl" if source else "predictions.jsonl"
        target = Path(trainer.default_root_dir) / self.filename
        if target.is_dir():  # before hours of prediction
            raise IsADirectoryError(f"{target} is a directory, expected a file to replace or none: move it away")
        # File names with bytes that are not UTF-8 become escapes, which JSON has.
        rank = data_parallel_rank(trainer)
        # Ranks of a tensor-parallel group predict the same rows, so one of them writes.
        part = self._part_path(trainer, rank.rank) if rank.is_group_leader else Path(os.devnull)
        self._part = part.open("w", encoding="utf-8", errors="backslashreplace")

    @override
    def write_on_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        prediction: list[tuple[int, dict[str, Any]]],
        batch_indices: object,
        batch: object,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        # The rows are written in ascending order, on which the merge relies.
        for row, answer in sorted([*prediction, *_skipped_rows(trainer)], key=lambda line: line[0]):
            # The row in front of the object, so that the merge need not parse it. JSON escapes tabs and line ends.
            self._part.write(f"{row}\t{json.dumps(answer, ensure_ascii=False)}\n")

    @override
    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._enabled:
            return
        self._part.close()
        trainer.strategy.barrier("predictions")  # all parts are complete before they are merged
        if trainer.is_global_zero:
            self._merge(trainer)

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if (part := getattr(self, "_part", None)) is not None:  # the answers so far reach the disk
            part.close()

    def _merge(self, trainer: Trainer) -> None:
        parts = [self._part_path(trainer, rank) for rank in range(data_parallel_rank(trainer).size)]
        target = Path(trainer.default_root_dir) / self.filename
        if target.exists():
            when = datetime.fromtimestamp(target.stat().st_mtime).astimezone().isoformat(" ", "seconds")
            log.warning("replacing %s, the predictions of %s", target, when)
        count = 0

        def write_merged(output: IO[bytes]) -> None:
            nonlocal count
            with ExitStack() as stack:
                # Each part is in ascending order of rows, so the merge holds one line of each part in memory.
                streams = [stack.enter_context(part.open("rb")) for part in parts]
                for line in heapq.merge(*streams, key=lambda line: int(line.split(b"\t", 1)[0])):
                    output.write(line.split(b"\t", 1)[1])
                    count += 1

        # A kill before the replacement leaves the old predictions and all parts.
        replace_file(target, write_merged)
        for part in parts:
            part.unlink()
        log.info("wrote %d predictions to %s", count, target)

    def _part_path(self, trainer: Trainer, rank: int) -> Path:
        folder = Path(trainer.default_root_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self.filename}.part{rank}"


def _skipped_rows(trainer: Trainer) -> list[tuple[int, dict[str, Any]]]:
    """Return a row without an answer for each skipped sample, so that lines can be matched to the input."""
    run = as_run_trainer(trainer)
    return [
        (skipped.sample, {**run.datamodule.describe(skipped.sample), "answer": None, "why": skipped.what})
        for skipped in run.predict_dataloaders.skipped
    ]
