"""Counts the waits of a step with CUDA's own warnings; tests/engine/test_device_waits.py counts them on a CPU."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from tests.conftest import TINY
from tests.support.device.options import on, quiet

MESSAGE = "called a synchronizing CUDA operation"


class Warned(Callback):
    """Writes waits.json: the places in Python at which each step has waited."""

    def __init__(self) -> None:
        self.steps: list[list[str]] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._catcher = warnings.catch_warnings(record=True)
        self._caught = self._catcher.__enter__()
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        torch.cuda.set_sync_debug_mode("default")
        self._catcher.__exit__(None, None, None)
        waits = [each for each in self._caught if MESSAGE in str(each.message)]
        self.steps.append([f"{each.filename}:{each.lineno}" for each in waits])

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        (Path(trainer.default_root_dir) / "waits.json").write_text(json.dumps(self.steps))


@pytest.mark.no_cpu_form
@pytest.mark.parametrize(("precision", "number"), [("32-true", 2), ("bf16-mixed", 2), ("16-mixed", 3)])
def test_a_step_waits_for_the_norm_the_loss_and_the_scaler(device, workplace, record_property, precision, number):
    """Some steps also read the counters of all ranks, so the step with the fewest waits is compared."""
    options = [*TINY, *on(device, precision), *quiet(8), "--trainer.log_every_n_steps", "50"]
    options += ["--trainer.limit_val_batches", "0", f"--trainer.callbacks+={__name__}.Warned"]
    run = workplace.run("fit", *options, name="counted")
    fewest = min(json.loads((run.folder / "waits.json").read_text()), key=len)
    record_property("waits", len(fewest))
    assert len(fewest) == number, fewest
