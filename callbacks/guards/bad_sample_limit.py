"""Limits the bad samples of a run: counts them over all ranks and lists them in a file."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.checkpointing.checkpoint_schema import declare_part
from engine.checkpointing.schema import COUNT, TEXT, fields, list_of
from engine.data.dataloader import TimedDataLoader
from engine.data.sample_loading import SkippedSample
from engine.data.skip_counters import EvaluationSkipCounter, SkipCounter, SkipLogger, check_skip_limit, skipped_in
from engine.distributed.collectives import all_gather_objects
from engine.distributed.data_parallel_rank import data_parallel_rank
from engine.module import LockstepModule, as_lockstep_module
from engine.run_trainer import as_run_trainer
from engine.telemetry.append_file import AppendOnlyFile
from engine.telemetry.log_events import rank_keys

_MAX_REASON = 2_000  # characters of the reason, which may quote the sample

_STATE = "left_out"
"""Key of the counts in a checkpoint. The names inside are those of version 0.1.0, whose checkpoints still resume."""

declare_part(_STATE, fields({}, {"unusable": COUNT, "too_long": COUNT, "different": list_of(TEXT)}))


class BadSampleLimit(Callback):
    """Logs `train/bad_samples` (and `val/`, `test/`), enforces `data.max_bad_samples`, writes bad_samples.jsonl.

    In training the total over all ranks is known after every step. It is read only in steps that are logged and at the
    end of an epoch, so that other steps do not wait for the device. If it has grown, the ranks gather the new samples
    and rank 0 lists them. The limit counts different samples: a sample that is drawn in every epoch counts once.
    """

    def __init__(self) -> None:
        self._skip_logger = SkipLogger()
        self._resumed: dict[str, Any] = {}
        self._unlisted: list[SkippedSample] = []

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._training = SkipCounter(as_lockstep_module(pl_module).counters)
        self._training.load_state_dict(self._resumed)
        self._training.register()
        self._num_listed = self._resumed.get("unusable", 0)

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        self._training.add(self._collect_skipped(trainer, as_run_trainer(trainer).train_dataloader, batch))

    @override
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        # The backward pass has summed the counters of this step over all ranks.
        module = as_lockstep_module(pl_module)
        if module.is_log_step:
            data = module.data
            is_logged = {"bad": data.skips_bad_samples, "too_long": data.too_long == "drop"}
            for reason, total in self._check_training(trainer, module).items():
                if is_logged[reason]:
                    name = f"train/{reason}_samples"
                    module.log(name, float(total), on_step=True, on_epoch=False, batch_size=1)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_training(trainer, as_lockstep_module(pl_module))

    def _check_training(self, trainer: Trainer, pl_module: LockstepModule) -> dict[str, int]:
        totals, data = self._training.totals, pl_module.data
        # The totals are equal on all ranks, so either all of them gather or none.
        if totals["bad"] > self._num_listed:
            self._num_listed = totals["bad"]
            self._training.record_bad(self._list_new(trainer, "train"))
        if data.skips_bad_samples:
            check_skip_limit(len(self._training.different), data.max_bad_samples, "the training")
        return totals

    # -- evaluation --------------------------------------------------------------------------------------------------

    @override
    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._evaluation = EvaluationSkipCounter()

    on_test_epoch_start = on_predict_epoch_start = on_validation_epoch_start

    @override
    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._evaluation.add(self._collect_skipped(trainer, as_run_trainer(trainer).val_dataloaders, batch))

    @override
    def on_test_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._evaluation.add(self._collect_skipped(trainer, as_run_trainer(trainer).test_dataloaders, batch))

    @override
    def on_predict_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._evaluation.add(self._collect_skipped(trainer, as_run_trainer(trainer).predict_dataloaders, batch))

    @override
    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_evaluation(trainer, as_lockstep_module(pl_module), "val", "the evaluation")

    @override
    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_evaluation(trainer, as_lockstep_module(pl_module), "test", "the evaluation")

    @override
    def on_predict_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check_evaluation(trainer, as_lockstep_module(pl_module), "predict", "the prediction")

    def _check_evaluation(self, trainer: Trainer, pl_module: LockstepModule, stage: str, where: str) -> None:
        data = pl_module.data
        # Equal on all ranks, as it is a setting.
        if not data.skips_bad_samples:
            return
        bad = self._evaluation.totals(pl_module.device)["bad"]
        if bad:
            self._list_new(trainer, stage)
        # Lightning refuses `log` in a prediction.
        if stage != "predict":
            pl_module.log(f"{stage}/bad_samples", float(bad), batch_size=1)
        # Checked after the list is written, because the error refers to it.
        check_skip_limit(bad, data.max_bad_samples, where)

    # -- both --------------------------------------------------------------------------------------------------------

    def _collect_skipped(self, trainer: Trainer, loader: TimedDataLoader, batch: object) -> list[SkippedSample]:
        """Return and log the samples that a batch lacks, skipped by its loader or by its collation."""
        skipped = [*loader.next_skipped(), *skipped_in(batch)]
        if not data_parallel_rank(trainer).is_group_leader:  # another rank reads the same samples
            return []
        self._skip_logger.log(skipped)
        self._unlisted += [skip for skip in skipped if skip.reason == "bad"]
        return skipped

    def _list_new(self, trainer: Trainer, stage: str) -> list[list[SkippedSample]]:
        """Write the new samples of all ranks to the file, and return them by rank. A collective."""
        samples_by_rank = all_gather_objects(self._unlisted)
        self._unlisted = []
        if trainer.is_global_zero:
            file = BadSampleList(trainer.default_root_dir)
            file.add(stage, trainer.current_epoch, trainer.global_step, samples_by_rank)
        return samples_by_rank

    # -- checkpoints -------------------------------------------------------------------------------------------------

    @override
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, object]) -> None:
        if trainer.state.fn == "fit":
            checkpoint[_STATE] = self._training.state_dict()

    @override
    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._resumed = checkpoint.get(_STATE, {})


class BadSampleList:
    """The file runs/NAME/bad_samples.jsonl, with a line for each bad sample of a stage.

    A sample is listed once, even if it is drawn in every epoch or the run is resumed. A sample of a stream is known by
    its position only, which differs between epochs, so it is listed once an epoch.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "bad_samples.jsonl"

    def add(self, stage: str, epoch: int, step: int, samples_by_rank: Iterable[Sequence[SkippedSample]]) -> None:
        """Append the samples that are not listed yet.

        Args:
            stage: train, val, test or predict.
            epoch: epoch in which they were drawn.
            step: number of finished optimizer steps.
            samples_by_rank: the bad samples of each rank.
        """
        # The file is the only record of what earlier starts have listed.
        listed = self._read()
        file = AppendOnlyFile(self.path)
        for rank, samples in enumerate(samples_by_rank):
            for skip in samples:
                key = stage, skip.sample, skip.what[:_MAX_REASON]
                if key in listed:
                    continue
                listed.add(key)
                line = dict(zip(("stage", "sample", "what"), key, strict=True))
                line |= {"epoch": epoch, "step": step, **rank_keys(rank)}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        file.close()

    def _read(self) -> set[tuple[str, int, str]]:
        """Return the keys of all lines. A line that a killed process has left incomplete is ignored."""
        listed = set()
        if self.path.exists():
            # splitlines() would also split at rare line separators, which a file's name may contain.
            for text in self.path.read_text(encoding="utf-8", errors="replace").split("\n"):
                try:
                    line = json.loads(text)
                    listed.add((line["stage"], line["sample"], line["what"]))
                except (ValueError, LookupError, TypeError):
                    continue
        return listed
