"""What the model makes of a few samples, after each validation: for whoever wants to see more of it than figures."""

import base64
import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from callbacks.example_sheet import draw, text
from callbacks.tracker import Tracker
from engine.durable_file import beside, remove, remove_leftovers
from engine.events import event
from engine.examples import Example
from engine.module import LockstepModule
from engine.shown_samples import MOST_SHOWN

log = logging.getLogger("lockstep")

FOLDER = "examples"
"""Of a run's folder."""

TAG = "val/examples"
"""Where TensorBoard and its like have them."""

_MOST_FILES = 32
"""Validations that are kept: the first, the newest, and between them some about as far from each other."""

_NAME = re.compile(r"val-(\d+)\.json")


class ExampleLog(Callback):
    """Writes runs/NAME/examples/val-STEP.json after each validation of a training: the same samples every time.

    Args:
        number: samples of each validation that are shown with what the model made of them, at most 8; 0: none.
    """

    def __init__(self, number: int = MOST_SHOWN) -> None:
        if not 0 <= number <= MOST_SHOWN:
            raise ValueError(f"example_log.number is a number of samples from 0 to {MOST_SHOWN}, got {number}")
        self.number = number
        self._refused = self._told = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if isinstance(pl_module, LockstepModule):
            pl_module.shown_samples.number = self.number if stage == "fit" and not trainer.fast_dev_run else 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and self._shows(pl_module):
            run = Path(trainer.default_root_dir)
            remove_leftovers(run / FOLDER, ".json")
            # What was written after the checkpoint is about to be written again.
            for step, file in example_files(run):
                if step > trainer.global_step:
                    remove(file)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._shows(pl_module):
            pl_module.shown_samples.forget()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or not self._shows(pl_module):
            return
        drawings = pl_module.examples()
        if drawings and trainer.is_global_zero:
            self._make(trainer, drawings)

    def _make(self, trainer: Trainer, drawings: Sequence[Callable[[], Example]]) -> None:
        """On one process alone, from files that may have changed since; what fails here costs pictures, not the run."""
        examples = []
        for draw_one in drawings:
            try:
                examples.append(draw_one())
            except Exception as error:
                self._tell_once("cannot be made and is left out", error)
        try:
            if examples:
                self._write(Path(trainer.default_root_dir), trainer.global_step, examples)
                _show(trainer.loggers, trainer.global_step, examples)
        except Exception as error:
            self._tell_once("cannot be shown everywhere", error)

    def _tell_once(self, what: str, error: Exception) -> None:
        log.debug("an example %s", what, exc_info=error)
        if not self._told:
            reason = f"{type(error).__name__}: {error}"
            log.warning("WARNING: an example of the validation %s (%s). The run goes on; told once", what, reason)
        self._told = True

    @staticmethod
    def _shows(pl_module: Any) -> bool:
        """On all processes alike."""
        return isinstance(pl_module, LockstepModule) and pl_module.shown_samples.number > 0

    def _write(self, run: Path, step: int, examples: Sequence[Example]) -> None:
        """A disk that does not take it costs these examples, not the run."""
        file = run / FOLDER / f"val-{step}.json"
        record = {"stage": "val", "step": step, "examples": [as_json(example) for example in examples]}
        try:
            file.parent.mkdir(exist_ok=True)
            hidden = beside(file)
            try:
                hidden.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
                os.replace(hidden, file)
            finally:
                hidden.unlink(missing_ok=True)
        except OSError as error:
            if not self._refused:
                log.warning(
                    "WARNING: %s cannot be written: %s. Examples are missing until it can", file, error,
                    extra=event("disk_full", path=str(file), reason=str(error)),
                )  # fmt: skip
            self._refused = True
            return
        self._refused = False
        files = example_files(run)
        if len(files) > _MOST_FILES:
            remove(files[_densest([step for step, _ in files])][1])


def _show(loggers: Sequence[Logger], step: int, examples: Sequence[Example]) -> None:
    """In TensorBoard as text and, where there are pictures, beside them; the latter at trackers, too."""
    sheet = draw(examples) if any(example.picture for example in examples) else None
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.experiment.add_text(TAG, text(examples), step)
            if sheet is not None:
                logger.experiment.add_image(TAG, sheet, step, dataformats="HWC")
        elif sheet is not None and isinstance(logger, Tracker):
            logger.log_picture(TAG, sheet, step)


def _densest(steps: Sequence[int]) -> int:
    """The place, neither first nor last, whose neighbours are the nearest to each other."""
    return min(range(1, len(steps) - 1), key=lambda place: steps[place + 1] - steps[place - 1])


def example_files(run: Path) -> list[tuple[int, Path]]:
    """(step, file), ascending, of a run's folder."""
    found = ((_NAME.fullmatch(file.name), file) for file in (run / FOLDER).glob("val-*.json"))
    return sorted((int(name[1]), file) for name, file in found if name)


def as_json(example: Example) -> dict[str, Any]:
    """With the picture in base64, and question marks for half characters, which no file can hold."""
    picture = example.picture and base64.b64encode(example.picture).decode("ascii")
    texts = {name: _whole(said) for name, said in example._asdict().items() if isinstance(said, str)}
    return {**example._asdict(), **texts, "picture": picture}


def _whole(said: str) -> str:
    return said.encode("utf-8", "replace").decode("utf-8")
