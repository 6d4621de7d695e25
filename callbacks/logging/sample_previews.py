"""Writes previews after each validation: the same few samples, with the model's answers."""

import base64
import json
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from typing_extensions import override

from callbacks.logging.preview_rendering import markdown_table, picture_grid
from callbacks.trackers.experiment_tracker import ExperimentTracker
from engine.io.atomic_file import remove, remove_leftovers, write_atomically
from engine.module import LockstepModule
from engine.run_trainer import as_run_trainer
from engine.telemetry.log_events import event
from engine.telemetry.sample_previews import MAX_PREVIEWS, SamplePreview

log = logging.getLogger("lockstep")

FOLDER = "examples"
"""Name of the folder in the run's folder."""

TAG = "val/examples"
"""Tag in TensorBoard and the trackers."""

_MAX_FILES = 32
"""Validations that are kept: the first, the newest, and others spread evenly between them."""

_NAME = re.compile(r"val-(\d+)\.json")


class SamplePreviewLogger(Callback):
    """Writes runs/NAME/examples/val-STEP.json after each validation of a training, always of the same samples.

    Args:
        number: number of samples, at most 8; 0: none.
    """

    def __init__(self, number: int = MAX_PREVIEWS) -> None:
        if not 0 <= number <= MAX_PREVIEWS:
            raise ValueError(f"sample_previews.number must be from 0 to {MAX_PREVIEWS}, got {number}")
        self.number = number
        self._disk_failed = self._has_warned = False

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if isinstance(pl_module, LockstepModule):
            # A module keeps the content of no preview if the number is 0.
            enabled = stage == "fit" and not as_run_trainer(trainer).fast_dev_run
            pl_module.preview_reservoir.number = self.number if enabled else 0

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and self._is_enabled(pl_module):
            run = Path(trainer.default_root_dir)
            remove_leftovers(run / FOLDER, ".json")
            # A resumed run repeats the validations after its checkpoint and writes their files again.
            for step, file in preview_files(run):
                if step > trainer.global_step:
                    remove(file)

    @override
    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._is_enabled(pl_module):
            pl_module.preview_reservoir.reset()

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or not self._is_enabled(pl_module):
            return
        # Called on all ranks, because it may gather the contents.
        renderers = pl_module.sample_previews()
        if renderers and trainer.is_global_zero:
            self._log_previews(trainer, renderers)

    def _log_previews(self, trainer: Trainer, renderers: Sequence[Callable[[], SamplePreview]]) -> None:
        """Render and log the previews on rank 0. An error costs previews and never the run."""
        previews = []
        for render in renderers:
            try:
                previews.append(render())
            except Exception as error:  # such as a source file that has changed since it was read
                self._warn_once("a preview cannot be rendered", error)
        try:
            if previews:
                self._write(Path(trainer.default_root_dir), trainer.global_step, previews)
                _send_to_loggers(trainer.loggers, trainer.global_step, previews)
        except Exception as error:
            self._warn_once("the previews cannot be logged everywhere", error)

    def _warn_once(self, problem: str, error: Exception) -> None:
        log.debug("%s", problem, exc_info=error)
        if not self._has_warned:
            log.warning("%s (%s: %s). Training continues", problem, type(error).__name__, error)
        self._has_warned = True

    @staticmethod
    def _is_enabled(pl_module: LightningModule) -> TypeGuard[LockstepModule]:
        """Return whether previews are written. The answer is equal on all ranks."""
        return isinstance(pl_module, LockstepModule) and pl_module.preview_reservoir.number > 0

    def _write(self, run: Path, step: int, previews: Sequence[SamplePreview]) -> None:
        """Write the file of a validation. A full disk costs this file and not the run."""
        file = run / FOLDER / f"val-{step}.json"
        record = {"stage": "val", "step": step, "examples": [to_json(preview) for preview in previews]}
        try:
            write_atomically(file, (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8"))
        except OSError as error:
            if not self._disk_failed:
                log.warning(
                    "%s cannot be written: %s. Previews are missing until it can", file, error,
                    extra=event("disk_full", path=str(file), reason=str(error)),
                )  # fmt: skip
            self._disk_failed = True
            return
        self._disk_failed = False
        files = preview_files(run)
        if len(files) > _MAX_FILES:
            # One file more than allowed: remove the file whose neighbors cover its place best.
            remove(files[_most_redundant([step for step, _ in files])][1])


def _send_to_loggers(loggers: Sequence[Logger], step: int, previews: Sequence[SamplePreview]) -> None:
    """Log texts and pictures to TensorBoard, and the pictures to the trackers."""
    pictures = picture_grid(previews)
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_text(TAG, markdown_table(previews), step)
            if pictures is not None:
                logger.experiment.add_image(TAG, pictures, step, dataformats="HWC")
        elif pictures is not None and isinstance(logger, ExperimentTracker):
            logger.log_preview(TAG, pictures, step)


def _most_redundant(steps: Sequence[int]) -> int:
    """Return the index, neither first nor last, whose neighbors are closest to each other."""
    return min(range(1, len(steps) - 1), key=lambda index: steps[index + 1] - steps[index - 1])


def preview_files(run: Path) -> list[tuple[int, Path]]:
    """Return (step, file) of each validation in a run's folder, in ascending order of steps."""
    matches = ((_NAME.fullmatch(file.name), file) for file in (run / FOLDER).glob("val-*.json"))
    return sorted((int(match[1]), file) for match, file in matches if match)


def to_json(preview: SamplePreview) -> dict[str, Any]:
    """Return a JSON-serializable preview, with the picture in base64."""
    picture = preview.picture and base64.b64encode(preview.picture).decode("ascii")
    texts = {name: _valid_utf8(text) for name, text in preview._asdict().items() if isinstance(text, str)}
    return {**preview._asdict(), **texts, "picture": picture}


def _valid_utf8(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
