"""Samples that a run leaves out are named, counted and listed, and when there are too many all processes end alike."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from callbacks.bad_sample_list import BadSampleList
from engine.bad_samples import LeftOut
from engine.gather import gathered_objects
from engine.left_out import LeftOutOfEvaluation, LeftOutSamples, Names, left_out_of, require_few


class BadSamples(Callback):
    """Logs `train/unusable_samples` (and `val/`, `test/`), holds `data.max_bad_samples`, writes bad_samples.jsonl.

    In training the count of all processes is at hand after every step, and looked at where metrics are written and at
    the end of an epoch, so that no other step waits for the device. Only then, and only if there are new ones, the
    processes tell each other which they are, and the first one writes them down. The limit is of different samples:
    one that is drawn in every epoch counts once.
    """

    def __init__(self) -> None:
        self._names = Names()
        self._before: dict[str, Any] = {}
        self._unlisted: list[LeftOut] = []

    # -- training ----------------------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._training = LeftOutSamples(pl_module.votes)
        self._training.go_on_from(self._before)
        self._training.open()
        self._listed = self._before.get("unusable", 0)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._training.cast(self._met(trainer.train_dataloader, batch))

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        if pl_module.is_log_step:  # in others the counts are not waited for
            data = pl_module.data
            counted = {"unusable": data.leaves_out_bad, "too_long": getattr(data, "too_long", "stop") == "drop"}
            for reason, total in self._require_few(trainer, pl_module).items():
                if counted[reason]:
                    name = f"train/{reason}_samples"
                    pl_module.log(name, float(total), on_step=True, on_epoch=False, batch_size=1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._require_few(trainer, pl_module)

    def _require_few(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, int]:
        totals, data = self._training.totals, pl_module.data
        if totals["unusable"] > self._listed:
            self._listed = totals["unusable"]
            self._training.tell(self._list(trainer, "train"))
        if data.leaves_out_bad:
            require_few(len(self._training.different), data.max_bad_samples, "the training", data.limit_of_bad_samples)
        return totals

    # -- evaluation --------------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._evaluation = LeftOutOfEvaluation()

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._evaluation.take(self._met(trainer.val_dataloaders, batch))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end_evaluation(trainer, pl_module, "val", "the evaluation")

    on_test_epoch_start = on_validation_epoch_start

    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._evaluation.take(self._met(trainer.test_dataloaders, batch))

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end_evaluation(trainer, pl_module, "test", "the evaluation")

    on_predict_epoch_start = on_validation_epoch_start

    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._evaluation.take(self._met(trainer.predict_dataloaders, batch))

    def on_predict_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end_evaluation(trainer, pl_module, "predict", "the questions")

    def _end_evaluation(self, trainer: Trainer, pl_module: LightningModule, stage: str, where: str) -> None:
        data = pl_module.data
        if not data.leaves_out_bad:
            return
        unusable = self._evaluation.totals(pl_module.device)["unusable"]
        if unusable:
            self._list(trainer, stage)
        if stage != "predict":
            pl_module.log(f"{stage}/unusable_samples", float(unusable), batch_size=1)
        require_few(unusable, data.max_bad_samples, where, data.limit_of_bad_samples)

    # -- both --------------------------------------------------------------------------------------------------------

    def _met(self, loader: Any, batch: Any) -> list[LeftOut]:
        """What a batch leaves out: its loader knows of some, the batch itself of others."""
        left_out = [*loader.left_out_of_next(), *left_out_of(batch)]
        self._names.say(left_out)
        self._unlisted += [one for one in left_out if one.reason == "unusable"]
        return left_out

    def _list(self, trainer: Trainer, stage: str) -> list[list[LeftOut]]:
        """On every process; returns what was new, of each of them."""
        everywhere = gathered_objects(self._unlisted)
        self._unlisted = []
        if trainer.is_global_zero:
            listing = BadSampleList(trainer.default_root_dir)
            listing.add(stage, trainer.current_epoch, trainer.global_step, everywhere)
        return everywhere

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit":
            checkpoint["left_out"] = self._training.state()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._before = checkpoint.get("left_out", {})
