"""Sends a signal to a process in the n-th call of a Lightning hook, by a callback."""

import multiprocessing
import os
import subprocess
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from tests.support.faults.step_faults import STOP_SIGNALS, wait_for_stop_signal


class SignalIn(Callback):
    """Send the process (-1: all) a signal in the `number`-th call of a hook, and its workers too if `group`."""

    def __init__(self, name: str, hook: str, number: int = 1, process: int = -1, group: bool = False) -> None:
        self.name, self.number, self.process, self.group = name, number, process, group
        setattr(self, hook, self._called)

    def _called(self, trainer: Trainer, pl_module: LightningModule, *args: Any, **kwargs: Any) -> None:
        if trainer.sanity_checking or self.process not in (trainer.global_rank, -1):
            return
        self.number -= 1
        if self.number == 0:
            if self.group and not multiprocessing.active_children():
                raise RuntimeError("the process has no workers to signal")
            whom = -os.getpgrp() if self.group else os.getpid()
            subprocess.run(["kill", f"-{self.name.removeprefix('SIG')}", "--", str(whom)], check=not self.group)
            if self.name in STOP_SIGNALS:
                wait_for_stop_signal()


def signal_in(hook: str, name: str, **settings: Any) -> list[str]:
    """The options that add it: ``signal_in("on_validation_batch_end", "SIGTERM", number=2, process=1)``."""
    options = ["--trainer.callbacks+=tests.support.faults.signals.SignalIn"]
    settings = {"name": name, "hook": hook, **settings}
    return options + [f"--trainer.callbacks.{key}={value}" for key, value in settings.items()]
