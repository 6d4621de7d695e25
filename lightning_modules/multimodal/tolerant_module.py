"""Trains and evaluates on although samples cannot be used: they are named, counted, and at most a set number."""

from collections.abc import Iterable
from typing import Any

from torch.optim import Optimizer

from datamodules.multimodal.batch import LeftOut
from engine.module import LockstepModule
from lightning_modules.multimodal.left_out import LeftOutOfEvaluation, LeftOutSamples, require_few


class TolerantModule(LockstepModule):
    """Counts the samples that its batches leave out."""

    def __init__(self, **training: Any) -> None:
        super().__init__(**training)
        self.left_out, self.left_out_of_evaluation = LeftOutSamples(self.votes), LeftOutOfEvaluation()

    def left_out_of(self, batch: Any) -> Iterable[LeftOut]:
        """The samples that a micro-batch to train on leaves out."""
        return (one for part in batch for one in part.left_out)

    # -- training ----------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit":
            self.left_out.open()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self.left_out.cast(self.left_out_of(batch))

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        super().on_before_optimizer_step(optimizer)
        if self.is_log_step:  # in others the counts are not waited for
            for reason, total in self._require_few_left_out().items():
                if self._may_leave_out[reason]:
                    self.log(f"train/{reason}_samples", float(total), on_step=True, on_epoch=False, batch_size=1)

    def on_train_epoch_end(self) -> None:
        self._require_few_left_out()

    def _require_few_left_out(self) -> dict[str, int]:
        totals = self.left_out.totals
        require_few(totals["unusable"], self.data.max_unusable, "the training")
        return totals

    @property
    def _may_leave_out(self) -> dict[str, bool]:
        return {"unusable": self.data.max_unusable > 0, "too_long": self.data.too_long == "drop"}

    # -- evaluation --------------------------------------------------------------------------------------------------

    def require_few_unusable(self, stage: str) -> None:
        """At the end of an evaluation (`val`, `test`), on every process: logs how many there were.

        Raises:
            AgreedFailure: they were too many.
        """
        if self.data.max_unusable:
            unusable = self.left_out_of_evaluation.totals(self.device)["unusable"]
            self.log(f"{stage}/unusable_samples", float(unusable), batch_size=1)
            require_few(unusable, self.data.max_unusable, "the evaluation")

    def on_predict_epoch_start(self) -> None:
        self.left_out_of_evaluation.begin()

    def on_predict_epoch_end(self) -> None:
        if self.data.max_unusable:
            unusable = self.left_out_of_evaluation.totals(self.device)["unusable"]
            require_few(unusable, self.data.max_unusable, "the questions")

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self._trainer is not None and self.trainer.state.fn == "fit":
            checkpoint["left_out"] = self.left_out.totals

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.left_out.go_on_from(checkpoint.get("left_out", {}))
        super().on_load_checkpoint(checkpoint)
