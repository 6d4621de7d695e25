"""Defines a callback that ends a training after some seconds and prints the samples trained in each second."""

import json
import os
import sys
import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.run_trainer import as_run_trainer

PREFIX = "rate: "


class Rate(Callback):
    """Used by name on the command line: `--trainer.callbacks+=benchmarks.threads.rate.Rate`.

    Args:
        seconds: duration of the measurement, at least one step.
        warm_up: steps before it.
    """

    def __init__(self, seconds: float = 5.0, warm_up: int = 5) -> None:
        self.seconds, self.warm_up = seconds, warm_up

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        now, steps = time.perf_counter(), trainer.global_step - self.warm_up
        # The clock starts at the end of the warm-up's last step.
        if steps <= 0:
            self._begin = now
        elif now - self._begin >= self.seconds:
            samples = steps * as_run_trainer(trainer).datamodule.plan.batch_size
            measured = {"samples_per_second": samples / (now - self._begin), "threads": torch.get_num_threads()}
            print(PREFIX + json.dumps(measured), flush=True)
            sys.stderr.flush()
            os._exit(0)  # later work is not measured
