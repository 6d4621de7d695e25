"""Defines a callback that ends a training after its first optimizer step and prints its cost."""

import json
import os
import sys
import time
from typing import Any

import psutil
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

PREFIX = "first step: "


class FirstStep(Callback):
    """Used by name on the command line: `--trainer.callbacks+=benchmarks.start_up.first_step.FirstStep`."""

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        # With gradient accumulation, the first micro-batches end without an optimizer step.
        if trainer.global_step:
            process = psutil.Process()
            measured = {
                "cpu": time.process_time(),
                "wall": time.time() - process.create_time(),
                "memory": process.memory_info().rss,
            }
            print(PREFIX + json.dumps(measured), flush=True)
            sys.stderr.flush()
            trainer.strategy.barrier()  # a rank that ends early would break the step's last collective on the others
            os._exit(0)  # later work is not measured
