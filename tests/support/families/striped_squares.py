"""Chats about colored squares as a stream: every second has images. A callback records the samples of each rank."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from datamodules.multimodal.batch import ChatTrainBatch
from datamodules.multimodal.chat_dataset import ChatItem
from tests.support.families.colored_squares import ColoredSquares, Squares


class Striped:
    """The samples in their order: on two processes the first has all those at even positions."""

    identity = "striped"

    def __init__(self, squares: Squares) -> None:
        self.squares, self.collate = squares, squares.collate

    def records_from(self, epoch: int, start: int) -> Iterator[int]:
        return iter(range(start, len(self.squares)))

    def name(self, record: int) -> str:
        return str(record)

    def item(self, record: int) -> ChatItem:
        return self.squares.item(0, record)


class StripedSquares(ColoredSquares):
    def setup(self, stage: str) -> None:
        super().setup(stage)
        self.train_set = self.stream(Striped(self.train_set.source))


class Seen(Callback):
    """Writes what a process trains on into the run's folder, in the form that sample_log reads."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.begun = trainer.global_step

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Sequence[ChatTrainBatch], batch_idx: int
    ) -> None:
        record: dict[str, Any] = {
            "begun": self.begun,
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "samples": [sample for part in batch for sample in part.rows.samples.tolist()],
            "views": sum(len(part.encoder_input.pixels) for part in batch),
        }
        path = Path(trainer.default_root_dir) / "seen" / f"{trainer.global_rank}.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
